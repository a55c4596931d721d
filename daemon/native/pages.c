/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of a list: which are in a set, and on which nodes they are. */
#include "pagekey.h"
#include "sys.h"

enum { QUERY_BATCH = 4096 };

static size_t home_of(uint64_t page, size_t slots)
{
	return (size_t)((hash_key(page) >> 32) & (slots - 1));
}

/* Where a page is, or would be. Pages are inverted, so that an empty slot is 0. */
static size_t find(const uint64_t *table, size_t slots, uint64_t page)
{
	size_t at = home_of(page, slots);

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

/* Node of each page, or a negative errno where there is none. */
int tierd_query_nodes(int pid, const uint64_t *vpn, int16_t *node, size_t n)
{
	void *address[QUERY_BATCH];
	int status[QUERY_BATCH];

	for (size_t done = 0; done < n;) {
		size_t batch = n - done < QUERY_BATCH ? n - done : QUERY_BATCH;
		long result;

		for (size_t i = 0; i < batch; i++)
			address[i] = (void *)(uintptr_t)(key_vpn(vpn[done + i]) << PAGE_SHIFT);
		result = sys_move_pages(pid, batch, address, NULL, status);
		if (result < 0)
			return (int)result;
		for (size_t i = 0; i < batch; i++)
			node[done + i] = (int16_t)status[i];
		done += batch;
	}
	return 0;
}
