/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorts what a question to the table has selected, by heat and then by key. By digits, least
 * significant first: a question for tens of thousands of pages is asked every tick, and
 * comparing pages would be most of what the service executes.
 */
#include "heat_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	DIGIT_BITS = 11,
	BUCKETS = 1 << DIGIT_BITS,
	HEAT_DIGITS = 3,
	KEY_DIGITS = 6,
	FEW = 512,
};

/* Heat is never negative, so that its bits are in the order of its values. */
static uint32_t heat_digit(bool hottest, const struct rank *rank, unsigned int digit)
{
	uint32_t bits;

	memcpy(&bits, &rank->heat, sizeof(bits));
	return (hottest ? ~bits : bits) >> (digit * DIGIT_BITS) & (BUCKETS - 1);
}

static uint32_t key_digit(const struct rank *rank, unsigned int digit)
{
	return (uint32_t)(rank->key >> (digit * DIGIT_BITS)) & (BUCKETS - 1);
}

/* Offsets of the buckets of counts; false if all members are in one. */
static bool offsets_of(uint32_t *count, size_t n)
{
	uint32_t sum = 0;

	for (unsigned int i = 0; i < BUCKETS; i++) {
		uint32_t own = count[i];

		if (own == n)
			return false;
		count[i] = sum;
		sum += own;
	}
	return true;
}

static void sort_digits(struct rank *rank, struct rank *spare, uint32_t *count, size_t n,
			bool by_heat, bool hottest)
{
	struct rank *from = rank, *to = spare;
	const unsigned int digits = by_heat ? HEAT_DIGITS : KEY_DIGITS;

	for (unsigned int digit = 0; digit < digits; digit++) {
		struct rank *swap = to;

		memset(count, 0, BUCKETS * sizeof(*count));
		for (size_t i = 0; i < n; i++)
			count[by_heat ? heat_digit(hottest, &from[i], digit)
				      : key_digit(&from[i], digit)]++;
		if (!offsets_of(count, n))
			continue;
		for (size_t i = 0; i < n; i++)
			to[count[by_heat ? heat_digit(hottest, &from[i], digit)
					 : key_digit(&from[i], digit)]++] = from[i];
		to = from;
		from = swap;
	}
	if (from != rank)
		memcpy(rank, from, n * sizeof(*rank));
}

/* For a few, whose digits would cost more to count than they cost to compare. */
static void sort_few(bool hottest, struct rank *rank, size_t n)
{
	for (size_t gap = n; (gap = gap <= 2 ? gap / 2 : gap * 5 / 11) > 0;) {
		for (size_t i = gap; i < n; i++) {
			struct rank item = rank[i];
			size_t at = i;

			for (; at >= gap && rank_before(hottest, &item, &rank[at - gap]); at -= gap)
				rank[at] = rank[at - gap];
			rank[at] = item;
		}
	}
}

/* By heat, and then each run of one heat by key: there are few, or long ones of no heat. */
int heat_rank_sort(bool hottest, struct rank *rank, size_t n)
{
	uint32_t *count;
	struct rank *spare;

	if (n <= FEW) {
		sort_few(hottest, rank, n);
		return 0;
	}
	count = malloc(BUCKETS * sizeof(*count));
	spare = malloc(n * sizeof(*spare));
	if (count == NULL || spare == NULL) {
		free(count);
		free(spare);
		return -ENOMEM;
	}
	sort_digits(rank, spare, count, n, true, hottest);
	for (size_t first = 0, end; first < n; first = end) {
		for (end = first + 1; end < n && rank[end].heat == rank[first].heat; end++)
			;
		if (end - first <= FEW)
			sort_few(hottest, rank + first, end - first);
		else
			sort_digits(rank + first, spare, count, end - first, false, hottest);
	}
	free(count);
	free(spare);
	return 0;
}
