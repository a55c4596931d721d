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
	uint64_t block = UINT64_MAX;
	int64_t huge = 0;
	size_t joined = 0;
	int pagemap = -1;

	for (size_t i = 0; i < batch->n; i++) {
		const uint64_t address = (uint64_t)(uintptr_t)batch->address[i];

		if (batch->fate[i] != FATE_OPEN || order[batch->item[i]] >= HUGE_ORDER)
			continue;
		if (pagemap < 0 && (pagemap = sys_open_pagemap(pid)) < 0)
			return;
		if (block != address / HUGE_BYTES) {
			block = address / HUGE_BYTES;
			huge = is_mapped_huge(pagemap, address);
		}
		if (huge < 0)
			break;
		if (huge > 0) {
			batch->fate[i] = TIERD_JOINED;
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
