/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the scanner takes from others. Reclaim, khugepaged, DAMON and idle page tracking read the
 * accessed bits that it clears, so a page that was found accessed is marked as young, and as not
 * idle, as the kernel's own users of the bit do (mm/page_idle.c, mm/damon/ops-common.c). That reads
 * the page's struct page, which is in no cache: a page is marked once in a window of four seconds.
 *
 * The first scan of a page table marks nothing. The accessed bits that it finds may have been set
 * at any time since the process began. With a mark from them reclaim would keep every page once,
 * whether it is in use or not, and then could not tell the two apart.
 */
#ifndef TIERD_YOUNG_H
#define TIERD_YOUNG_H

#include "compat.h"
#include "tierd.h"

#define TIERD_WINDOW_SHIFT 32 /* 2^32 ns: 4.3 s */
#define TIERD_WINDOW_PARTS 5  /* tables begin theirs at 2^5 times */

#ifdef CONFIG_PAGE_IDLE_FLAG
#include <linux/page_idle.h>

#define TIERD_CAN_MARK_YOUNG 1

static inline void tierd_page_mark(struct page *page)
{
	const unsigned long young = 1ul << PG_young, idle = 1ul << PG_idle;
	struct folio *folio;

	/*
	 * Most pages in use are young already, and a read leaves the cache line shared. A tail page
	 * has neither flag.
	 */
	if ((READ_ONCE(*(unsigned long *)&page->flags) & (young | idle)) == young)
		return;
	folio = page_folio(page);
	if (!folio_test_young(folio))
		folio_set_young(folio);
	if (folio_test_idle(folio))
		folio_clear_idle(folio);
}
#else
#define TIERD_CAN_MARK_YOUNG 0

static inline void tierd_page_mark(struct page *page)
{
}
#endif

/* Whether accessed bits of a table say that its pages were in use lately. */
static inline bool tierd_may_mark(const struct tierd_walk *walk, const struct tierd_chunk *chunk)
{
	return walk->mark && !chunk->first_scan;
}

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

#endif
