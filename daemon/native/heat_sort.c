/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorts what a question to the table has selected, by heat and then by key. A question for
 * thousands of pages is asked every tick, and comparing pages would be most of what the service
 * executes: they are spread over as many buckets as there are pages, by the part of heat in
 * which they differ. Of most buckets one or two pages are left to be compared.
 */
#include "heat_table.h"

enum { FEW = 16, MOST_BITS = 11 };

static inline uint64_t value_of(const struct rank *rank, bool by_key)
{
	return by_key ? rank->key : rank->order;
}

static inline void sort_few(struct rank *rank, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		struct rank item = rank[i];
		size_t at = i;

		for (; at > 0 && rank_before(&item, &rank[at - 1]); at--)
			rank[at] = rank[at - 1];
		rank[at] = item;
	}
}

/* By value, such that each bucket's pages come before the next one's; their sizes. */
__attribute__((always_inline)) static inline void spread(struct rank *rank, struct rank *spare,
							 size_t n, bool by_key, uint64_t least,
							 unsigned int shift, uint32_t *end,
							 unsigned int buckets)
{
	uint32_t sum = 0;

	memset(end, 0, buckets * sizeof(*end));
	for (size_t i = 0; i < n; i++)
		end[(value_of(&rank[i], by_key) - least) >> shift]++;
	for (unsigned int i = 0; i < buckets; i++) {
		uint32_t own = end[i];

		end[i] = sum;
		sum += own;
	}
	for (size_t i = 0; i < n; i++)
		spare[end[(value_of(&rank[i], by_key) - least) >> shift]++] = rank[i];
	memcpy(rank, spare, n * sizeof(*rank));
}

static void sort_by_order(struct rank *rank, struct rank *spare, size_t n);
static void sort_by_key(struct rank *rank, struct rank *spare, size_t n);

/* Each call tells pages apart by at least four bits more: there are few within each other. */
__attribute__((always_inline)) static inline void sort_by(struct rank *rank, struct rank *spare,
							  size_t n, bool by_key)
{
	uint32_t end[1 << MOST_BITS], first = 0;
	uint64_t least = UINT64_MAX, most = 0;
	unsigned int bits = 0, wide, shift, buckets;

	if (n <= FEW) {
		sort_few(rank, n);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		uint64_t value = value_of(&rank[i], by_key);

		least = value < least ? value : least;
		most = value > most ? value : most;
	}
	if (least == most) {
		if (!by_key)
			sort_by_key(rank, spare, n);
		return;
	}
	while (bits < MOST_BITS && (size_t)2 << bits <= n)
		bits++;
	wide = 64 - (unsigned int)__builtin_clzll(most - least);
	shift = wide > bits ? wide - bits : 0;
	buckets = (unsigned int)((most - least) >> shift) + 1;
	spread(rank, spare, n, by_key, least, shift, end, buckets);
	for (unsigned int i = 0; i < buckets; first = end[i++]) {
		if (end[i] - first <= FEW)
			sort_few(rank + first, end[i] - first);
		else if (by_key)
			sort_by_key(rank + first, spare, end[i] - first);
		else
			sort_by_order(rank + first, spare, end[i] - first);
	}
}

static void sort_by_order(struct rank *rank, struct rank *spare, size_t n)
{
	sort_by(rank, spare, n, false);
}

static void sort_by_key(struct rank *rank, struct rank *spare, size_t n)
{
	sort_by(rank, spare, n, true);
}

/* Those of no heat are many, and so far from the least of others that these would share buckets. */
void heat_rank_sort(bool hottest, struct rank *rank, struct rank *spare, size_t n)
{
	const uint32_t none = order_of(hottest, 0.0F);
	size_t cold = 0, warm = 0;

	for (size_t i = 0; i < n; i++) {
		if (rank[i].order != none)
			spare[warm++] = rank[i];
		else
			rank[cold++] = rank[i];
	}
	if (hottest) {
		memmove(rank + warm, rank, cold * sizeof(*rank));
		memcpy(rank, spare, warm * sizeof(*rank));
		sort_by_key(rank + warm, spare, cold);
		sort_by_order(rank, spare, warm);
	} else {
		memcpy(rank + cold, spare, warm * sizeof(*rank));
		sort_by_key(rank, spare, cold);
		sort_by_order(rank + cold, spare, warm);
	}
}
