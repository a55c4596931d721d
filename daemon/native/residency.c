/* SPDX-License-Identifier: Apache-2.0 */
/* Where pages are: present ranges from pagemap, nodes from move_pages. */
#include <errno.h>

#include "pagekey.h"
#include "sys.h"

enum { QUERY_BATCH = 4096 };

/*
 * Runs of pages in [start, end) (addresses) that have all categories of `need` and
 * none of `without`, at most `max_pages` 4 KiB pages of them (0: no limit). Returns
 * the number of regions; `*walk_end` is where to go on.
 */
int64_t tierd_pagemap_scan(int fd, uint64_t start, uint64_t end, uint64_t need, uint64_t without,
			   uint64_t max_pages, struct tierd_region *region, size_t regions,
			   uint64_t *walk_end)
{
	struct sys_pm_scan scan = {
	    .size = sizeof(scan),
	    .start = start,
	    .end = end,
	    .vec = (uint64_t)(uintptr_t)region,
	    .vec_len = regions,
	    .max_pages = max_pages,
	    .category_inverted = without,
	    .category_mask = need | without,
	    .return_mask = TIERD_PAGE_HUGE,
	};
	int found = sys_pagemap_scan(fd, &scan);

	*walk_end = scan.walk_end;
	return found;
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
