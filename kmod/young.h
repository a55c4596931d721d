/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the scanner takes from others. Reclaim, khugepaged, DAMON and idle page tracking read the
 * accessed bits that it clears, so a page that was found accessed is marked as young, and as not
 * idle, as the kernel's own users of the bit do (mm/page_idle.c, mm/damon/ops-common.c). That reads
 * the page's struct page, which is in no cache: a page is marked once in a window of four seconds.
 */
#ifndef TIERD_YOUNG_H
#define TIERD_YOUNG_H

#include "compat.h"
#include "tierd.h"

#include <linux/prefetch.h>

#define TIERD_WINDOW_SHIFT 32 /* 2^32 ns: 4.3 s */
#define TIERD_WINDOW_PARTS 5  /* tables begin theirs at 2^5 times */

#ifdef CONFIG_PAGE_IDLE_FLAG
#include <linux/page_idle.h>

#define TIERD_CAN_MARK_YOUNG 1

static inline void tierd_folio_mark(struct folio *folio)
{
	/* Most pages in use are young already, and a read leaves the cache line shared. */
	if (!folio_test_young(folio))
		folio_set_young(folio);
	if (folio_test_idle(folio))
		folio_clear_idle(folio);
}
#else
#define TIERD_CAN_MARK_YOUNG 0

static inline void tierd_folio_mark(struct folio *folio)
{
}
#endif

/* Begins a table's next window when it is time, after which its pages are marked again. */
static inline void tierd_window(const struct tierd_walk *walk, struct tierd_chunk *chunk,
				unsigned long addr)
{
	unsigned int turn = addr >> PMD_SHIFT & ((1u << TIERD_WINDOW_PARTS) - 1);
	u64 shifted = walk->now_ns + ((u64)turn << (TIERD_WINDOW_SHIFT - TIERD_WINDOW_PARTS));
	u32 window = shifted >> TIERD_WINDOW_SHIFT;

	if (chunk->window == window)
		return;
	chunk->window = window;
	bitmap_zero(chunk->marked, TIERD_TABLE_PAGES);
}

/*
 * Marks those of eight pages that were accessed and are not marked yet. `entries`: of the first,
 * under the table's lock; `marked`: their part of the chunk's bitmap.
 */
static inline void tierd_mark_group(struct tierd_walk *walk, pte_t *entries, u8 accessed,
				    u8 *marked)
{
	struct page *page[8];
	unsigned int i, count = 0;
	unsigned long rest;
	pte_t pte;

	if (!walk->mark || !(accessed & ~*marked))
		return;
	for (rest = accessed & ~*marked; rest; rest &= rest - 1) {
		pte = tierd_ptep_get(entries + __ffs(rest));
		if (!tierd_plain_pte(pte))
			continue;
		page[count] = pfn_to_page(pte_pfn(pte));
		/* All at once: to wait for one after the other would take several times as long. */
		prefetchw(page[count++]);
	}
	*marked |= accessed;
	for (i = 0; i < count; i++)
		tierd_folio_mark(page_folio(page[i]));
	walk->marked += count;
}

#endif
