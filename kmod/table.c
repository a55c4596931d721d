// SPDX-License-Identifier: GPL-2.0-only
/*
 * Last-level tables: nearly all of the scanner's work. Entries are gone over eight at a time,
 * as their histories are; what need not be done for each of them is done once for the eight.
 */
#include "classes.h"
#include "entries.h"
#include "tierd.h"
#include "young.h"

#include <linux/hugetlb.h>
#include <linux/prefetch.h>

/**
 * struct tierd_table - a table that is locked, and what is known of it
 * @vma: the mapping
 * @entries: the first one
 * @chunk: its histories
 * @base: the address of its first page
 * @flush: the TLB has to be flushed before the lock is let go of
 */
struct tierd_table {
	struct vm_area_struct *vma;
	pte_t *entries;
	struct tierd_chunk *chunk;
	unsigned long base;
	bool flush;
};

/* Of eight entries from `start` on, those that lie in [from, to). */
static u8 tierd_table_ours_of(unsigned int start, unsigned int from, unsigned int to)
{
	u8 ours = 0xff;

	if (likely(start >= from && start + 8 <= to))
		return ours;
	if (start < from)
		ours &= 0xff << (from - start);
	if (start + 8 > to)
		ours &= 0xff >> (start + 8 - to);
	return ours;
}

/* Records of the pages of a group that were chosen. */
static void tierd_table_report_group(struct tierd_walk *walk, struct tierd_table *table,
				     unsigned int start, struct tierd_classes classes)
{
	unsigned long addr = table->base + start * PAGE_SIZE, pfn, rest;
	const u8 *history = &table->chunk->history[start];
	pte_t *ptep = table->entries + start;
	unsigned int i, flags;
	struct page *page;
	bool dirty;
	pte_t pte;

	for (rest = classes.chosen; rest; rest &= rest - 1) {
		i = __ffs(rest);
		pte = tierd_ptep_get(ptep + i);
		if (!tierd_plain_pte(pte))
			continue;
		pfn = pte_pfn(pte);
		page = pfn_to_page(pfn);
		dirty = pte_dirty(pte);
		if (tierd_may_clear_dirty(walk, page))
			dirty = tierd_take_dirty(table->vma, (unsigned long *)(ptep + i), page,
						 &table->flush);
		flags = dirty ? TIERD_PAGE_DIRTY : 0;
		flags |= classes.hot >> i & 1 ? TIERD_PAGE_HOT : 0;
		flags |= classes.changed >> i & 1 ? TIERD_PAGE_CHANGED : 0;
		tierd_report(walk, addr + i * PAGE_SIZE, page, pfn, history[i], flags);
	}
}

/*
 * Adds the page of an entry that maps one and was accessed. The struct pages are fetched all at
 * once: to wait for one after the other would take several times as long.
 */
static __always_inline unsigned int tierd_table_mark_fetch(pte_t *entry, struct page **page,
							   unsigned int count)
{
	pte_t pte = tierd_ptep_get(entry);

	if (unlikely(pte_special(pte) || tierd_pte_devmap(pte)))
		return count;
	page[count] = pfn_to_page(tierd_pte_pfn(pte));
	prefetchw(page[count]);
	return count + 1;
}

/*
 * Marks pages of eight, of which the bits of `rest` tell. Apart from what asks whether there is
 * one: the kernel clears the array each time.
 */
static noinline void tierd_table_mark_pages(struct tierd_walk *walk, pte_t *entries,
					    unsigned long rest)
{
	unsigned int i, count = 0;
	struct page *page[8];

	if (rest == 0xff) {
		for (i = 0; i < 8; i++)
			count = tierd_table_mark_fetch(entries + i, page, count);
	} else {
		for (; rest; rest &= rest - 1)
			count = tierd_table_mark_fetch(entries + __ffs(rest), page, count);
	}
	for (i = 0; i < count; i++)
		tierd_page_mark(page[i]);
	walk->marked += count;
}

/*
 * Marks those of eight pages that were accessed and are not marked yet, under the table's lock.
 * `entries`: of the first one, which is the chunk's page number `start`.
 */
static void tierd_table_mark_group(struct tierd_walk *walk, struct tierd_chunk *chunk,
				   pte_t *entries, unsigned int start, u8 accessed)
{
	u8 *marked = (u8 *)chunk->marked + start / 8;
	u8 rest = accessed & ~*marked;

	if (!rest || !tierd_may_mark(walk, chunk))
		return;
	*marked |= accessed;
	tierd_table_mark_pages(walk, entries, rest);
}

/* Eight entries, of which some are ours: reads and clears accessed bits, ages, classifies. */
static void tierd_table_walk_group(struct tierd_walk *walk, struct tierd_table *table,
				   unsigned int start, u8 ours)
{
	unsigned long addr = table->base + start * PAGE_SIZE;
	struct tierd_entries found = tierd_entries_get(table->entries + start);
	u8 *hot = (u8 *)table->chunk->hot + start / 8;
	u8 present = found.present & ours, accessed = found.young & ours;
	struct tierd_classes classes;
	u64 histories;

	if (accessed) {
		tierd_entries_clear_young(table->vma, addr, table->entries + start, accessed);
		tierd_table_mark_group(walk, table->chunk, table->entries + start, start, accessed);
	}
	walk->pages += hweight8(present);
	walk->accessed += hweight8(accessed);
	/* A first scan finds what was touched at any time before: it only clears. */
	if (!walk->age)
		accessed = 0;
	histories = tierd_history_age(&table->chunk->history[start], accessed, present, ours);
	if (!histories && !*hot)
		return;
	tierd_count_silent(walk, histories, 1);
	classes = tierd_classify(walk, histories, *hot, ours, (addr >> PAGE_SHIFT) / 8);
	*hot = classes.hot;
	if (classes.chosen)
		tierd_table_report_group(walk, table, start, classes);
}

/**
 * tierd_walk_table() - read and clear the accessed bits of a part of the table behind a PMD
 * @walk: the pass
 * @vma: the mapping
 * @pmdp: the PMD entry
 * @chunk: the table's histories
 * @addr: where to begin
 * @end: where to end
 */
void tierd_walk_table(struct tierd_walk *walk, struct vm_area_struct *vma, pmd_t *pmdp,
		      struct tierd_chunk *chunk, unsigned long addr, unsigned long end)
{
	unsigned int from = (addr & ~PMD_MASK) >> PAGE_SHIFT, start;
	unsigned int to = from + ((end - addr) >> PAGE_SHIFT);
	struct tierd_table table = {
		.vma = vma,
		.chunk = chunk,
		.base = addr & PMD_MASK,
		.flush = walk->settings->flags & TIERD_SCAN_FLUSH,
	};
	spinlock_t *ptl;

	table.entries = tierd_lock_table(walk->mm, pmdp, table.base, &ptl);
	if (!table.entries)
		return;
	tierd_history_as_pages(chunk);
	tierd_window(walk, chunk, addr);
	for (start = round_down(from, 8); start < to; start += 8)
		tierd_table_walk_group(walk, &table, start, tierd_table_ours_of(start, from, to));
	/* Under the lock: nobody may act on a clean entry that a CPU still knows as dirty. */
	if (table.flush)
		tierd_flush_tlb();
	tierd_unlock_table(ptl);
}

/**
 * tierd_arm_table() - clear the accessed bits of a part of the table behind a PMD
 * @walk: the pass
 * @vma: the mapping
 * @pmdp: the PMD entry
 * @chunk: the table's histories
 * @addr: where to begin
 * @end: where to end
 */
void tierd_arm_table(struct tierd_walk *walk, struct vm_area_struct *vma, pmd_t *pmdp,
		     struct tierd_chunk *chunk, unsigned long addr, unsigned long end)
{
	unsigned int from = (addr & ~PMD_MASK) >> PAGE_SHIFT, start;
	unsigned int to = from + ((end - addr) >> PAGE_SHIFT);
	unsigned long base = addr & PMD_MASK;
	spinlock_t *ptl;
	pte_t *table;
	u8 young;

	table = tierd_lock_table(walk->mm, pmdp, base, &ptl);
	if (!table)
		return;
	tierd_history_as_pages(chunk);
	tierd_window(walk, chunk, addr);
	for (start = round_down(from, 8); start < to; start += 8) {
		young = tierd_entries_get(table + start).young &
			tierd_table_ours_of(start, from, to);
		if (!young)
			continue;
		tierd_entries_clear_young(vma, base + start * PAGE_SIZE, table + start, young);
		tierd_table_mark_group(walk, chunk, table + start, start, young);
	}
	tierd_unlock_table(ptl);
}
