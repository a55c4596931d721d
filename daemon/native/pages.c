/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages of a list are in a set. */
#include "pagekey.h"

/* Where a page is, or would be. Pages are inverted, so that an empty slot is 0. */
static size_t find(const uint64_t *table, size_t slots, uint64_t page)
{
	size_t at = (hash_key(page) >> 32) & (slots - 1);

	while (table[at] != 0 && table[at] != ~page)
		at = (at + 1) & (slots - 1);
	return at;
}

void tierd_members_add(uint64_t *table, size_t slots, const uint64_t *page, size_t n)
{
	for (size_t i = 0; i < n; i++)
		table[find(table, slots, page[i])] = ~page[i];
}

void tierd_members(const uint64_t *table, size_t slots, const uint64_t *page, size_t stride,
		   size_t n, uint8_t *found)
{
	for (size_t i = 0; i < n; i++)
		found[i] = table[find(table, slots, page[i * stride])] != 0;
}
