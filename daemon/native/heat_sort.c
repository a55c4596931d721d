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
	DIGITS = KEY_DIGITS + HEAT_DIGITS,
	FEW = 512,
};

/* Heat is never negative, so that its bits are in the order of its values. */
static uint32_t heat_order(bool hottest, const struct rank *rank)
{
	uint32_t bits;

	memcpy(&bits, &rank->heat, sizeof(bits));
	return hottest ? ~bits : bits;
}

static unsigned int digit_of(uint64_t key, uint32_t order, unsigned int digit)
{
	uint64_t word = digit < KEY_DIGITS ? key >> (digit * DIGIT_BITS)
					   : order >> ((digit - KEY_DIGITS) * DIGIT_BITS);

	return (unsigned int)(word & (BUCKETS - 1));
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

int heat_rank_sort(bool hottest, struct rank *rank, size_t n)
{
	uint32_t(*count)[BUCKETS];
	struct rank *from = rank, *to, *spare;

	if (n <= FEW) {
		sort_few(hottest, rank, n);
		return 0;
	}
	count = calloc(DIGITS, sizeof(*count));
	spare = malloc(n * sizeof(*spare));
	if (count == NULL || spare == NULL) {
		free(count);
		free(spare);
		return -ENOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		const uint32_t order = heat_order(hottest, &rank[i]);

		for (unsigned int digit = 0; digit < DIGITS; digit++)
			count[digit][digit_of(rank[i].key, order, digit)]++;
	}
	to = spare;
	for (unsigned int digit = 0; digit < DIGITS; digit++) {
		struct rank *swap = to;

		if (!offsets_of(count[digit], n))
			continue;
		for (size_t i = 0; i < n; i++) {
			const uint32_t order = heat_order(hottest, &from[i]);

			to[count[digit][digit_of(from[i].key, order, digit)]++] = from[i];
		}
		to = from;
		from = swap;
	}
	if (from != rank)
		memcpy(rank, from, n * sizeof(*rank));
	free(count);
	free(spare);
	return 0;
}
