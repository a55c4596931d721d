// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page tables, read with the inline helpers that a module may use. The caller holds the
 * mmap lock (scan.c), or an anon_vma lock that pins the mapping (resolve.c). Either keeps
 * the upper levels where they are; a last-level table may still be taken away, under RCU
 * and with the PMD changed first, so the PMD is looked at again under the table's lock.
 */
#include "classes.h"
#include "compat.h"
#include "tierd.h"
#include "young.h"

#include <linux/huge_mm.h>
#include <linux/hugetlb.h>

/**
 * tierd_find_pmd() - the PMD entry of an address
 * @mm: the address space
 * @addr: the address
 * @next: where a hole ends, or NULL
 *
 * Return: The entry, or NULL for a hole.
 */
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

/**
 * tierd_lock_table() - lock the last-level table behind a PMD
 * @mm: the address space
 * @pmdp: the PMD entry
 * @addr: the address
 * @ptl: the table's lock
 *
 * Return: The entry of the address, with RCU and the lock held; NULL if there is no table.
 */
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
	if (pmd_same(pmd, tierd_pmdp_get(pmdp))) {
		tierd_sparse_hand_over(*ptl);
		tierd_sparse_hand_over(RCU);
		return ptep;
	}
	spin_unlock(*ptl);
none:
	rcu_read_unlock();
	return NULL;
}

/**
 * tierd_unlock_table() - undo tierd_lock_table()
 * @ptl: the table's lock
 */
void tierd_unlock_table(spinlock_t *ptl)
{
	tierd_sparse_take_over(RCU);
	tierd_sparse_take_over(ptl);
	spin_unlock(ptl);
	rcu_read_unlock();
}

/**
 * tierd_vma_wanted() - whether a mapping's pages can be tiered
 * @vma: the mapping
 *
 * Device memory and hugetlb pages have no place in tiers, or none that can be changed.
 *
 * Return: True if they can.
 */
bool tierd_vma_wanted(struct vm_area_struct *vma)
{
	return !(vma->vm_flags & (VM_IO | VM_PFNMAP | VM_MIXEDMAP | VM_HUGETLB));
}

/* Clears the accessed bit of what a PMD maps, and marks it; whether it was set. */
static bool tierd_walk_clear_huge_young(struct tierd_walk *walk, struct vm_area_struct *vma,
					pmd_t *pmdp, struct tierd_chunk *chunk, unsigned long addr)
{
	pmd_t pmd = tierd_pmdp_get(pmdp);

	if (!pmd_young(pmd) || !tierd_pmdp_clear_young(vma, addr & PMD_MASK, pmdp))
		return false;
	tierd_window(walk, chunk, addr);
	if (tierd_may_mark(walk, chunk) && !test_bit(0, chunk->marked)) {
		__set_bit(0, chunk->marked);
		tierd_page_mark(pmd_page(pmd));
		walk->marked++;
	}
	return true;
}

static void tierd_walk_huge(struct tierd_walk *walk, struct vm_area_struct *vma, pmd_t *pmdp,
			    struct tierd_chunk *chunk, unsigned long addr)
{
	bool flush = walk->settings->flags & TIERD_SCAN_FLUSH;
	spinlock_t *ptl = pmd_lock(walk->mm, pmdp);
	pmd_t pmd = tierd_pmdp_get(pmdp);
	u8 *hot = (u8 *)chunk->hot;
	struct tierd_classes classes;
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
	young = tierd_walk_clear_huge_young(walk, vma, pmdp, chunk, addr);
	walk->pages += TIERD_TABLE_PAGES;
	walk->accessed += young ? TIERD_TABLE_PAGES : 0;
	young &= walk->age != 0;
	chunk->history[0] = chunk->history[0] >> 1 | (young ? 0x80 : 0);
	tierd_count_silent(walk, chunk->history[0], TIERD_TABLE_PAGES);
	dirty = pmd_dirty(pmd);
	if (tierd_may_clear_dirty(walk, page))
		dirty = tierd_take_dirty(vma, (unsigned long *)pmdp, page, &flush);
	classes = tierd_classify(walk, chunk->history[0], *hot, 1, addr >> PMD_SHIFT);
	*hot = classes.hot;
	if (classes.chosen & 1)
		tierd_report(walk, addr & PMD_MASK, page, page_to_pfn(page), chunk->history[0],
			     TIERD_PAGE_PMD | (dirty ? TIERD_PAGE_DIRTY : 0) |
				     (classes.hot & 1 ? TIERD_PAGE_HOT : 0) |
				     (classes.changed ? TIERD_PAGE_CHANGED : 0));
	if (flush)
		tierd_flush_tlb();
unlock:
	spin_unlock(ptl);
}

/* Clears the accessed bits of [addr, end) of one PMD entry. */
static void tierd_walk_arm_pmd(struct tierd_walk *walk, struct vm_area_struct *vma, pmd_t *pmdp,
			       struct tierd_chunk *chunk, unsigned long addr, unsigned long end)
{
	spinlock_t *ptl;

	if (tierd_pmd_huge(tierd_pmdp_get(pmdp))) {
		ptl = pmd_lock(walk->mm, pmdp);
		if (tierd_pmd_huge(tierd_pmdp_get(pmdp))) {
			tierd_history_as_pmd(chunk);
			tierd_walk_clear_huge_young(walk, vma, pmdp, chunk, addr);
		}
		spin_unlock(ptl);
		return;
	}
	tierd_arm_table(walk, vma, pmdp, chunk, addr, end);
}

/**
 * tierd_walk_pmd() - read and clear the accessed bits of a part of one PMD entry, or only clear
 * them
 * @walk: the pass
 * @vma: the mapping
 * @pmdp: the PMD entry
 * @addr: where to begin
 * @end: where to end
 */
void tierd_walk_pmd(struct tierd_walk *walk, struct vm_area_struct *vma, pmd_t *pmdp,
		    unsigned long addr, unsigned long end)
{
	pmd_t pmd = tierd_pmdp_get(pmdp);
	struct tierd_chunk *chunk;
	bool huge = tierd_pmd_huge(pmd);

	if (!huge && !tierd_pmd_table(pmd))
		return;
	chunk = tierd_history_get(walk->target, addr);
	if (!chunk)
		return;
	walk->tables++;
	if (walk->arm)
		tierd_walk_arm_pmd(walk, vma, pmdp, chunk, addr, end);
	else if (huge)
		tierd_walk_huge(walk, vma, pmdp, chunk, addr);
	else
		tierd_walk_table(walk, vma, pmdp, chunk, addr, end);
}
