/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages of one list are in another. */
#include <errno.h>
#include <stdlib.h>

#include "tierd_native.h"

static size_t home_of(uint64_t page, size_t slots)
{
	uint64_t hash = page * UINT64_C(0x9E3779B97F4A7C15);

	return (size_t)((hash >> 32) & (slots - 1));
}

/* found[i] tells whether page[i] is among set[0..members). Keys of all ones are never. */
int tierd_members(const uint64_t *page, size_t n, const uint64_t *set, size_t members,
		  uint8_t *found)
{
	size_t slots = 64;
	uint64_t *table;

	while (slots < 2 * members)
		slots *= 2;
	/* Inverted, so that an empty slot is 0. */
	table = calloc(slots, sizeof(*table));
	if (table == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < members; i++) {
		size_t at = home_of(set[i], slots);

		while (table[at] != 0 && table[at] != ~set[i])
			at = (at + 1) & (slots - 1);
		table[at] = ~set[i];
	}
	for (size_t i = 0; i < n; i++) {
		size_t at = home_of(page[i], slots);

		while (table[at] != 0 && table[at] != ~page[i])
			at = (at + 1) & (slots - 1);
		found[i] = table[at] != 0;
	}
	free(table);
	return 0;
}
