/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages that have become part of a 2 MiB folio since they were planned: khugepaged
 * (mm/khugepaged.c) joins them, and moving one of them moves all, 512 times what was decided on
 * budgeted. So pages are checked directly before a call. Without PAGEMAP_SCAN (Linux 6.7) they are
 * moved as planned, and so are pages that are joined between the check and the call.
 */
#include <unistd.h>

#include "mover.h"
#include "sys.h"

static const uint64_t BLOCK_MASK = HUGE_PAGES * PAGE_BYTES - 1;

static bool is_open_page(const struct batch *batch, const uint8_t *order, size_t i)
{
	return batch->fate[i] == FATE_OPEN && order[batch->item[i]] < HUGE_ORDER;
}

static uint64_t address_of(const struct batch *batch, size_t i)
{
	return (uint64_t)(uintptr_t)batch->address[i];
}

/* From `first` on, the end of the folios that share its 2 MiB; `*page`: an open one, or 0. */
static size_t block_end(const struct batch *batch, const uint8_t *order, size_t first,
			uint64_t *page)
{
	size_t end;

	*page = 0;
	for (end = first; end < batch->n; end++) {
		uint64_t address = address_of(batch, end);

		if (((address ^ address_of(batch, first)) & ~BLOCK_MASK) != 0)
			break;
		if (is_open_page(batch, order, end))
			*page = address;
	}
	return end;
}

/* One entry maps all 2 MiB or none of them, so any page of them tells. */
static int64_t is_mapped_huge(int pagemap, uint64_t page)
{
	struct tierd_region run;
	uint64_t walk_end;

	return tierd_pagemap_scan(pagemap, page, page + PAGE_BYTES,
				  TIERD_PAGE_PRESENT | TIERD_PAGE_HUGE, TIERD_PAGE_PFNZERO, 1, &run,
				  1, &walk_end);
}

void batch_settle_joined(struct batch *batch, int pid, const uint8_t *order)
{
	size_t joined = 0, end;
	int pagemap = -1;

	for (size_t first = 0; first < batch->n; first = end) {
		uint64_t page;
		int64_t found;

		end = block_end(batch, order, first, &page);
		if (page == 0)
			continue;
		if (pagemap < 0 && (pagemap = sys_open_pagemap(pid)) < 0)
			return;
		found = is_mapped_huge(pagemap, page);
		if (found < 0)
			break;
		for (size_t i = first; i < end && found > 0; i++) {
			if (!is_open_page(batch, order, i))
				continue;
			batch->fate[i] = TIERD_JOINED;
			batch->error[i] = 0;
			batch->asked[joined++] = i;
		}
	}
	if (pagemap >= 0)
		close(pagemap);
	/* Not where they were, if most of their folio was elsewhere. */
	(void)batch_ask(batch, pid, joined, -1);
	for (size_t k = 0; k < joined; k++)
		batch->after[batch->asked[k]] = batch->status[k];
}
