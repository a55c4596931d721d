/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What histories make of pages, and the records of those that are told. Inline, for a look at a
 * process may have a hundred thousand of them.
 */
#ifndef TIERD_CLASSES_H
#define TIERD_CLASSES_H

#include "bits.h"
#include "compat.h"
#include "tierd.h"

/**
 * struct tierd_classes - of eight pages, one bit each
 * @hot: the class of each
 * @changed: which just changed it
 * @chosen: which to report
 */
struct tierd_classes {
	u8 hot, changed, chosen;
};

/* Pages that stay hot are reported in turns, so that each scan has as many of them. */
static inline bool tierd_is_turn(const struct tierd_walk *walk, unsigned long place)
{
	return (u32)(place + walk->target->stats.rounds) % walk->settings->report_scans == 0;
}

/*
 * The classes of pages by their histories: hot is what was seen in hot_scans, or was hot and
 * was seen in more than cold_scans. `place` decides whose turn it is.
 */
static inline struct tierd_classes tierd_classify(const struct tierd_walk *walk, u64 histories,
						  u8 was, u8 ours, unsigned long place)
{
	u64 count = tierd_history_count(histories);
	struct tierd_classes classes;
	u8 now;

	now = tierd_history_reach(count, walk->hot_least);
	now |= was & tierd_history_reach(count, walk->cold_least);
	classes.hot = (now & ours) | (was & ~ours);
	classes.changed = classes.hot ^ was;
	classes.chosen = classes.changed;
	if (!(walk->settings->flags & TIERD_SCAN_CHANGES) && tierd_is_turn(walk, place))
		classes.chosen |= now & ours;
	return classes;
}

static inline bool tierd_may_clear_dirty(const struct tierd_walk *walk, struct page *page)
{
	return (walk->settings->flags & TIERD_SCAN_DIRTY) && PageAnon(page);
}

/* Dirty bits move from the table to the pages, so that no write is forgotten. */
static inline bool tierd_take_dirty(const struct vm_area_struct *vma, unsigned long *entry,
				    struct page *page, bool *flush)
{
	if (!tierd_clear_dirty(vma, entry))
		return false;
	folio_mark_dirty(page_folio(page));
	*flush = true;
	return true;
}

/* Counts pages that were in steady use, and those of them that are not now. */
static inline void tierd_count_silent(struct tierd_walk *walk, u64 histories, unsigned int pages)
{
	u64 steady = tierd_history_steady(histories);

	if (!steady)
		return;
	walk->turnover->steady += pages * tierd_marks(steady);
	walk->turnover->silent += pages * tierd_marks(steady & ~histories);
}

/* Counts a page that has become hot, if its whole history is known. */
static inline void tierd_count_hot(struct tierd_walk *walk, u8 history)
{
	if (walk->age < TIERD_HISTORY)
		return;
	walk->turnover->became++;
	walk->turnover->newcomers += history == 0xc0;
}

/* A page's node: told by its frame's number, as far as that does. */
static inline int tierd_node_of(const struct tierd_walk *walk, struct page *page, unsigned long pfn)
{
	unsigned int i;

	for (i = 0; i < walk->spans; i++)
		if (pfn - walk->span[i].start < walk->span[i].count)
			return walk->span[i].node;
	return page_to_nid(page);
}

/* What only the page itself tells, which is not in any cache. */
static inline unsigned int tierd_page_flags(struct page *page, struct folio *folio)
{
	return (folio_test_anon(folio) ? TIERD_PAGE_ANON : 0) |
	       (tierd_folio_shared(folio, page) ? TIERD_PAGE_SHARED : 0);
}

/* Makes a record of a page, if its node is asked for. */
static inline void tierd_report(struct tierd_walk *walk, unsigned long addr, struct page *page,
				unsigned long pfn, u8 history, unsigned int flags)
{
	const struct tierd_settings *settings = walk->settings;
	const nodemask_t *nodes =
		flags & TIERD_PAGE_HOT ? &settings->hot_nodes : &settings->cold_nodes;
	unsigned int order = flags & TIERD_PAGE_PMD ? HPAGE_PMD_ORDER : 0;
	int node = tierd_node_of(walk, page, pfn);
	struct tierd_record *record;
	struct folio *folio;

	if (!node_isset(node, *nodes))
		return;
	if (flags & TIERD_PAGE_HOT && flags & TIERD_PAGE_CHANGED)
		tierd_count_hot(walk, history);
	if (!(settings->flags & TIERD_SCAN_BRIEF)) {
		folio = page_folio(page);
		flags |= tierd_page_flags(page, folio);
		order = folio_order(folio);
	}
	record = &walk->records[walk->found++];
	record->page = walk->key | addr >> PAGE_SHIFT;
	record->pfn = pfn;
	record->time_ns = walk->now_ns;
	record->kind = TIERD_RECORD_PAGE;
	record->flags = flags;
	record->order = order;
	record->history = history;
	record->node = node;
	record->value = walk->age;
}

#endif
