/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorts what a question to the table has selected, by heat and then by key. A question for
 * thousands of pages is asked every tick, and comparing pages would be most of what the service
 * executes: they are spread over as many buckets as there are pages, by the part of heat in
 * which they differ. Of most buckets one or two pages are left to be compared.
 */
#include "heat_table.h"

enum { FEW = 16, MOST_BITS = 11 };

/* Heat is never negative, so that its bits are in the order of its values. */
static inline uint64_t value_of(const struct rank *rank, bool by_key, bool hottest)
{
	uint32_t bits;

	if (by_key)
		return rank->key;
	memcpy(&bits, &rank->heat, sizeof(bits));
	return hottest ? ~bits : bits;
}

static void sort_few(bool hottest, struct rank *rank, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		struct rank item = rank[i];
		size_t at = i;

		for (; at > 0 && rank_before(hottest, &item, &rank[at - 1]); at--)
			rank[at] = rank[at - 1];
		rank[at] = item;
	}
}

/* By value, such that each bucket's pages come before the next one's; their sizes. */
static void spread(struct rank *rank, struct rank *spare, size_t n, bool by_key, bool hottest,
		   uint64_t least, unsigned int shift, uint32_t *end, unsigned int buckets)
{
	uint32_t sum = 0;

	memset(end, 0, buckets * sizeof(*end));
	for (size_t i = 0; i < n; i++)
		end[(value_of(&rank[i], by_key, hottest) - least) >> shift]++;
	for (unsigned int i = 0; i < buckets; i++) {
		uint32_t own = end[i];

		end[i] = sum;
		sum += own;
	}
	for (size_t i = 0; i < n; i++)
		spare[end[(value_of(&rank[i], by_key, hottest) - least) >> shift]++] = rank[i];
	memcpy(rank, spare, n * sizeof(*rank));
}

/* Each call tells pages apart by at least four bits more: there are few within each other. */
static void sort_by(struct rank *rank, struct rank *spare, size_t n, bool by_key, bool hottest)
{
	uint32_t end[1 << MOST_BITS], first = 0;
	uint64_t least = UINT64_MAX, most = 0;
	unsigned int bits = 0, wide, shift, buckets;

	if (n <= FEW) {
		sort_few(hottest, rank, n);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		uint64_t value = value_of(&rank[i], by_key, hottest);

		least = value < least ? value : least;
		most = value > most ? value : most;
	}
	if (least == most) {
		if (!by_key)
			sort_by(rank, spare, n, true, hottest);
		return;
	}
	while (bits < MOST_BITS && (size_t)2 << bits <= n)
		bits++;
	wide = 64 - (unsigned int)__builtin_clzll(most - least);
	shift = wide > bits ? wide - bits : 0;
	buckets = (unsigned int)((most - least) >> shift) + 1;
	spread(rank, spare, n, by_key, hottest, least, shift, end, buckets);
	for (unsigned int i = 0; i < buckets; first = end[i++]) {
		if (end[i] - first > 1)
			sort_by(rank + first, spare, end[i] - first, by_key, hottest);
	}
}

/* Those of no heat are many, and so far from the least of others that these would share buckets. */
void heat_rank_sort(bool hottest, struct rank *rank, struct rank *spare, size_t n)
{
	size_t cold = 0, warm = 0;

	for (size_t i = 0; i < n; i++) {
		if (rank[i].heat > 0.0F)
			spare[warm++] = rank[i];
		else
			rank[cold++] = rank[i];
	}
	if (hottest) {
		memmove(rank + warm, rank, cold * sizeof(*rank));
		memcpy(rank, spare, warm * sizeof(*rank));
		sort_by(rank + warm, spare, cold, true, hottest);
		sort_by(rank, spare, warm, false, hottest);
	} else {
		memcpy(rank + cold, spare, warm * sizeof(*rank));
		sort_by(rank, spare, cold, true, hottest);
		sort_by(rank + cold, spare, warm, false, hottest);
	}
}
