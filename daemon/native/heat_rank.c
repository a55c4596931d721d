/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts ranks, and selects the best of them. */
#include "heat_rank.h"

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

/*
 * Spread over as many buckets as there are slots, by the part of heat in which they differ, most
 * are alone; what shares a bucket is spread again. Slots of equal heat are spread by key.
 */
__attribute__((always_inline)) static inline void spread(struct rank *rank, struct rank *spare,
							 size_t n, bool by_key)
{
	uint32_t end[1 << MOST_BITS], first = 0;
	uint64_t least = UINT64_MAX, most = 0;
	unsigned int bits = 0, wide, shift, buckets;

	for (size_t i = 0; i < n; i++) {
		uint64_t value = value_of(&rank[i], by_key);

		least = value < least ? value : least;
		most = value > most ? value : most;
	}
	if (least == most) {
		if (!by_key)
			rank_sort(rank, spare, n, true);
		return;
	}
	while (bits < MOST_BITS && (size_t)2 << bits <= n)
		bits++;
	wide = 64 - (unsigned int)__builtin_clzll(most - least);
	shift = wide > bits ? wide - bits : 0;
	buckets = (unsigned int)((most - least) >> shift) + 1;
	memset(end, 0, buckets * sizeof(*end));
	for (size_t i = 0; i < n; i++)
		end[(value_of(&rank[i], by_key) - least) >> shift]++;
	for (unsigned int i = 0; i < buckets; i++) {
		uint32_t own = end[i];

		end[i] = first;
		first += own;
	}
	for (size_t i = 0; i < n; i++)
		spare[end[(value_of(&rank[i], by_key) - least) >> shift]++] = rank[i];
	memcpy(rank, spare, n * sizeof(*rank));
	first = 0;
	for (unsigned int i = 0; i < buckets; first = end[i++]) {
		if (end[i] - first <= FEW)
			sort_few(rank + first, end[i] - first);
		else
			rank_sort(rank + first, spare, end[i] - first, by_key);
	}
}

/* Compiled for each of both, for it is most of what a tick's questions execute. */
void rank_sort(struct rank *rank, struct rank *spare, size_t n, bool by_key)
{
	if (by_key)
		spread(rank, spare, n, true);
	else
		spread(rank, spare, n, false);
}

/* Hoare's selection. */
void rank_select(struct rank *rank, size_t n, size_t most)
{
	size_t low = 0, high = n - 1;

	while (low < high) {
		const struct rank pivot = rank[low + (high - low) / 2];
		size_t i = low, j = high;

		for (;;) {
			struct rank swap;

			while (rank_before(&rank[i], &pivot))
				i++;
			while (rank_before(&pivot, &rank[j]))
				j--;
			if (i >= j)
				break;
			swap = rank[i];
			rank[i++] = rank[j];
			rank[j--] = swap;
		}
		/* All up to j are no worse than all behind it. */
		if (j == high)
			j--;
		if (j >= most)
			high = j;
		else
			low = j + 1;
	}
}
