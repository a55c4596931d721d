// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page tables, read with the inline helpers that a module may use. The caller holds the
 * mmap lock (scan.c), or an anon_vma lock that pins the mapping (resolve.c). Either keeps
 * the upper levels where they are; a last-level table may still be taken away, under RCU
 * and with the PMD changed first, so the PMD is looked at again under the table's lock.
 */
#include "bits.h"
#include "compat.h"
#include "tierd.h"

#include <linux/huge_mm.h>
#include <linux/hugetlb.h>

/* The PMD entry of `addr`, or NULL; then *next (if asked) is where the hole ends. */
pmd_t *tierd_find_pmd(struct mm_struct *mm, unsigned long addr, unsigned long *next)
{
	pgd_t *pgdp = pgd_offset(mm, addr);
	unsigned long size = PGDIR_SIZE;
	p4d_t *p4dp;
	pud_t *pudp;
	pud_t pud;

	if (pgd_none(*pgdp) || pgd_bad(*pgdp))
		goto hole;
	size = P4D_SIZE;
	p4dp = p4d_offset(pgdp, addr);
	if (p4d_none(*p4dp) || p4d_bad(*p4dp))
		goto hole;
	size = PUD_SIZE;
	pudp = pud_offset(p4dp, addr);
	pud = READ_ONCE(*pudp);
	if (pud_none(pud) || !pud_present(pud) || pud_leaf(pud) || pud_bad(pud))
		goto hole;
	return pmd_offset(pudp, addr);
hole:
	if (next)
		*next = (addr | (size - 1)) + 1;
	return NULL;
}

/* Locks the table behind a PMD; returns the entry of `addr` and holds RCU, or NULL. */
pte_t *tierd_lock_table(struct mm_struct *mm, pmd_t *pmdp, unsigned long addr, spinlock_t **ptl)
{
	pmd_t pmd;
	pte_t *ptep;

	rcu_read_lock();
	pmd = tierd_pmdp_get(pmdp);
	if (!tierd_pmd_table(pmd))
		goto none;
	ptep = pte_offset_kernel(&pmd, addr);
	*ptl = pte_lockptr(mm, &pmd);
	spin_lock(*ptl);
	if (pmd_same(pmd, tierd_pmdp_get(pmdp)))
		return ptep;
	spin_unlock(*ptl);
none:
	rcu_read_unlock();
	return NULL;
}

/* Device memory and hugetlb pages have no place in tiers, or none that can be changed. */
bool tierd_vma_wanted(struct vm_area_struct *vma)
{
	return !(vma->vm_flags & (VM_IO | VM_PFNMAP | VM_MIXEDMAP | VM_HUGETLB));
}

static bool may_clear_dirty(const struct tierd_walk *walk, struct page *page)
{
	return (walk->settings->flags & TIERD_SCAN_DIRTY) && PageAnon(page) && TIERD_CAN_FLUSH;
}

/* Makes a record of a page whose class is `hot` now, if its node is asked for. */
static void report(struct tierd_walk *walk, unsigned long addr, struct page *page, u8 history,
		   bool hot, unsigned int flags)
{
	const struct tierd_settings *settings = walk->settings;
	struct tierd_record *record;
	struct folio *folio;
	int node = page_to_nid(page);

	if (!node_isset(node, hot ? settings->hot_nodes : settings->cold_nodes))
		return;
	folio = page_folio(page);
	if (hot)
		flags |= TIERD_PAGE_HOT;
	if (folio_test_anon(folio))
		flags |= TIERD_PAGE_ANON;
	if (tierd_folio_shared(folio, page))
		flags |= TIERD_PAGE_SHARED;
	record = &walk->records[walk->found++];
	record->page = (u64)walk->target->number << TIERD_KEY_SHIFT | addr >> PAGE_SHIFT;
	record->pfn = page_to_pfn(page);
	record->time_ns = walk->now_ns;
	record->kind = TIERD_RECORD_PAGE;
	record->flags = flags;
	record->order = folio_order(folio);
	record->history = history;
	record->node = node;
	record->value = walk->target->age;
}

/* Pages that stay hot are reported in turns, so that each scan has as many of them. */
static bool is_turn(const struct tierd_walk *walk, unsigned long place)
{
	return (u32)(place + walk->target->stats.rounds) % walk->settings->report_scans == 0;
}

/*
 * The classes of pages by their histories, as bits: hot is what was seen in hot_scans, or
 * was hot and was seen in more than cold_scans. Returns those to report, and marks which
 * of them changed. `place` decides whose turn it is.
 */
static u8 classify(const struct tierd_walk *walk, u64 histories, u8 ours, unsigned long place,
		   u8 *hot, u8 *changed)
{
	const struct tierd_settings *settings = walk->settings;
	u8 was = *hot, now;

	now = tierd_history_seen(histories, settings->hot_scans);
	if (was)
		now |= was & tierd_history_seen(histories, settings->cold_scans + 1);
	now = (now & ours) | (was & ~ours);
	*hot = now;
	*changed = now ^ was;
	if (settings->flags & TIERD_SCAN_CHANGES || !is_turn(walk, place))
		return *changed;
	return *changed | (now & ours);
}

/* One that maps a page of memory; in the areas we walk all others are marked as special. */
static bool plain_pte(pte_t pte)
{
	return pte_present(pte) && !pte_special(pte) && !tierd_pte_devmap(pte);
}

/* Dirty bits move from the table to the pages, so that no write is forgotten. */
static bool take_dirty(unsigned long *entry, struct page *page, bool *flush)
{
	if (!tierd_clear_dirty(entry))
		return false;
	folio_mark_dirty(page_folio(page));
	*flush = true;
	return true;
}

/* Records of the pages of a group that `chosen` has. */
static void report_group(struct tierd_walk *walk, pte_t *ptep, const u8 *history,
			 unsigned long addr, u8 chosen, u8 hot, u8 changed, bool *flush)
{
	unsigned long bits = chosen;
	unsigned int i, flags;
	struct page *page;
	bool dirty;
	pte_t pte;

	for_each_set_bit(i, &bits, 8) {
		pte = tierd_ptep_get(ptep + i);
		if (!plain_pte(pte))
			continue;
		page = pte_page(pte);
		dirty = pte_dirty(pte);
		if (may_clear_dirty(walk, page))
			dirty = take_dirty((unsigned long *)(ptep + i), page, flush);
		flags = dirty ? TIERD_PAGE_DIRTY : 0;
		if (changed >> i & 1)
			flags |= TIERD_PAGE_CHANGED;
		report(walk, addr + i * PAGE_SIZE, page, history[i], hot >> i & 1, flags);
	}
}

/* Up to eight entries of a table: reads and clears the accessed bits, ages, classifies. */
static void walk_group(struct tierd_walk *walk, struct vm_area_struct *vma, pte_t *table,
		       struct tierd_chunk *chunk, unsigned long base, unsigned int from,
		       unsigned int to, bool *flush)
{
	unsigned int start = round_down(from, 8), i;
	u8 ours = ((1u << (to - from)) - 1) << from % 8;
	u8 *history = &chunk->history[start], *hot = (u8 *)chunk->hot + start / 8;
	u8 present = 0, accessed = 0, changed, chosen;
	unsigned long young = 0;
	u64 histories;

	/* From the last to the first, so that a bit is shifted in by one place each. */
	for (i = to; i-- > from;) {
		pte_t pte = tierd_ptep_get(table + i);

		present = present << 1 | (pte_present(pte) ? 1 : 0);
		young = young << 1 | (pte_young(pte) ? 1 : 0);
	}
	present <<= from % 8;
	young = (young << from % 8) & present;
	for_each_set_bit(i, &young, 8)
		if (tierd_ptep_clear_young(vma, base + (start + i) * PAGE_SIZE, table + start + i))
			accessed |= 1u << i;
	walk->pages += hweight8(present);
	walk->accessed += hweight8(accessed);
	/* A first look finds what was touched at any time before: it only clears. */
	if (!walk->target->age)
		accessed = 0;
	histories = tierd_history_age(history, accessed, present, ours);
	if (!histories && !*hot)
		return;
	chosen =
	    classify(walk, histories, ours, (base >> PAGE_SHIFT) / 8 + start / 8, hot, &changed);
	if (chosen)
		report_group(walk, table + start, history, base + start * PAGE_SIZE, chosen, *hot,
			     changed, flush);
}

static void walk_table(struct tierd_walk *walk, struct vm_area_struct *vma, pmd_t *pmdp,
		       struct tierd_chunk *chunk, unsigned long addr, unsigned long end)
{
	unsigned int i = (addr & ~PMD_MASK) >> PAGE_SHIFT, next;
	unsigned int last = i + ((end - addr) >> PAGE_SHIFT);
	bool flush = walk->settings->flags & TIERD_SCAN_FLUSH;
	unsigned long base = addr & PMD_MASK;
	spinlock_t *ptl;
	pte_t *table;

	table = tierd_lock_table(walk->mm, pmdp, base, &ptl);
	if (!table)
		return;
	tierd_history_as_pages(chunk);
	for (; i < last; i = next) {
		next = min(round_down(i, 8) + 8, last);
		walk_group(walk, vma, table, chunk, base, i, next, &flush);
	}
	/* Under the lock: nobody may act on a clean entry that a CPU still knows as dirty. */
	if (flush)
		tierd_flush_tlb();
	spin_unlock(ptl);
	rcu_read_unlock();
}

static void walk_huge(struct tierd_walk *walk, struct vm_area_struct *vma, pmd_t *pmdp,
		      struct tierd_chunk *chunk, unsigned long addr)
{
	bool flush = walk->settings->flags & TIERD_SCAN_FLUSH;
	spinlock_t *ptl = pmd_lock(walk->mm, pmdp);
	pmd_t pmd = tierd_pmdp_get(pmdp);
	u8 *hot = (u8 *)chunk->hot, changed;
	struct page *page;
	bool dirty, young;

	if (!tierd_pmd_huge(pmd))
		goto unlock; /* split meanwhile: the next round sees its parts */
	page = pmd_page(pmd);
	if (!PageAnon(page) && !page_folio(page)->mapping)
		goto unlock; /* the huge zero page */
	if (chunk->pmd && chunk->pmd_round == chunk->round)
		goto unlock; /* a range ends in the middle of it: once a round is enough */
	tierd_history_as_pmd(chunk);
	chunk->pmd_round = chunk->round;
	young = pmd_young(pmd) && tierd_pmdp_clear_young(vma, addr & PMD_MASK, pmdp);
	walk->pages += TIERD_TABLE_PAGES;
	walk->accessed += young ? TIERD_TABLE_PAGES : 0;
	young &= walk->target->age != 0;
	chunk->history[0] = chunk->history[0] >> 1 | (young ? 0x80 : 0);
	dirty = pmd_dirty(pmd);
	if (may_clear_dirty(walk, page))
		dirty = take_dirty((unsigned long *)pmdp, page, &flush);
	if (classify(walk, chunk->history[0], 1, addr >> PMD_SHIFT, hot, &changed) & 1)
		report(walk, addr & PMD_MASK, page, chunk->history[0], *hot & 1,
		       TIERD_PAGE_PMD | (dirty ? TIERD_PAGE_DIRTY : 0) |
			   (changed ? TIERD_PAGE_CHANGED : 0));
	if (flush)
		tierd_flush_tlb();
unlock:
	spin_unlock(ptl);
}

/* Clears the accessed bits of [addr, end) of one PMD entry. */
static void arm_pmd(struct tierd_walk *walk, struct vm_area_struct *vma, pmd_t *pmdp,
		    unsigned long addr, unsigned long end)
{
	unsigned long base = addr & PMD_MASK;
	spinlock_t *ptl;
	pte_t *table;

	walk->tables++;
	if (tierd_pmd_huge(tierd_pmdp_get(pmdp))) {
		ptl = pmd_lock(walk->mm, pmdp);
		if (tierd_pmd_huge(tierd_pmdp_get(pmdp)))
			tierd_pmdp_clear_young(vma, base, pmdp);
		spin_unlock(ptl);
		return;
	}
	table = tierd_lock_table(walk->mm, pmdp, base, &ptl);
	if (!table)
		return;
	for (; addr < end; addr += PAGE_SIZE) {
		pte_t *ptep = table + ((addr & ~PMD_MASK) >> PAGE_SHIFT);
		pte_t pte = tierd_ptep_get(ptep);

		if (pte_present(pte) && pte_young(pte))
			tierd_ptep_clear_young(vma, addr, ptep);
	}
	spin_unlock(ptl);
	rcu_read_unlock();
}

/* Looks at [addr, end) of one PMD entry, or arms it. */
void tierd_walk_pmd(struct tierd_walk *walk, struct vm_area_struct *vma, pmd_t *pmdp,
		    unsigned long addr, unsigned long end)
{
	pmd_t pmd = tierd_pmdp_get(pmdp);
	struct tierd_chunk *chunk;
	bool huge = tierd_pmd_huge(pmd);

	if (!huge && !tierd_pmd_table(pmd))
		return;
	if (walk->arm) {
		arm_pmd(walk, vma, pmdp, addr, end);
		return;
	}
	chunk = tierd_history_get(walk->target, addr);
	if (!chunk)
		return;
	walk->tables++;
	if (huge)
		walk_huge(walk, vma, pmdp, chunk, addr);
	else
		walk_table(walk, vma, pmdp, chunk, addr, end);
}
