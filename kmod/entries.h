/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Eight entries of a last-level table at a time, which is a cache line: read all, and written
 * only where an accessed bit is set. The caller holds the table's lock and numbers them from a
 * multiple of eight.
 */
#ifndef TIERD_ENTRIES_H
#define TIERD_ENTRIES_H

#include "compat.h"

/**
 * struct tierd_entries - of eight entries, one bit each
 * @present: which map a page
 * @young: which of those were accessed
 */
struct tierd_entries {
	u8 present, young;
};

static inline struct tierd_entries tierd_entries_each(pte_t *ptep)
{
	struct tierd_entries found = {};
	unsigned int i;

	for (i = 0; i < 8; i++) {
		pte_t pte = tierd_ptep_get(ptep + i);

		if (!pte_present(pte))
			continue;
		found.present |= 1u << i;
		found.young |= (pte_young(pte) ? 1u : 0) << i;
	}
	return found;
}

#ifdef CONFIG_X86

static inline pteval_t tierd_entry(pte_t *ptep)
{
	return native_pte_val(tierd_ptep_get(ptep));
}

/* As pte_pfn(), which undoes for entries without permission what most do not have. */
static inline unsigned long tierd_pte_pfn(pte_t pte)
{
	if (likely(native_pte_val(pte) & _PAGE_PRESENT))
		return (native_pte_val(pte) & PTE_PFN_MASK) >> PAGE_SHIFT;
	return pte_pfn(pte);
}

/* From the last to the first, so that a bit is shifted by one place each. */
static inline u32 tierd_entry_young(u32 behind, pteval_t entry)
{
	return 2 * behind + ((u32)entry & _PAGE_ACCESSED);
}

static inline struct tierd_entries tierd_entries_get(pte_t *ptep)
{
	pteval_t e0 = tierd_entry(ptep), e1 = tierd_entry(ptep + 1);
	pteval_t e2 = tierd_entry(ptep + 2), e3 = tierd_entry(ptep + 3);
	pteval_t e4 = tierd_entry(ptep + 4), e5 = tierd_entry(ptep + 5);
	pteval_t e6 = tierd_entry(ptep + 6), e7 = tierd_entry(ptep + 7);
	u32 young;

	if (unlikely(!(e0 & e1 & e2 & e3 & e4 & e5 & e6 & e7 & _PAGE_PRESENT)))
		return tierd_entries_each(ptep);
	young = tierd_entry_young(e7 & _PAGE_ACCESSED, e6);
	young = tierd_entry_young(tierd_entry_young(young, e5), e4);
	young = tierd_entry_young(tierd_entry_young(young, e3), e2);
	young = tierd_entry_young(tierd_entry_young(young, e1), e0);
	return (struct tierd_entries){ .present = 0xff, .young = young >> _PAGE_BIT_ACCESSED };
}

#else

static inline unsigned long tierd_pte_pfn(pte_t pte)
{
	return pte_pfn(pte);
}

static inline struct tierd_entries tierd_entries_get(pte_t *ptep)
{
	return tierd_entries_each(ptep);
}

#endif

static inline void tierd_entries_clear_four(struct vm_area_struct *vma, unsigned long addr,
					    pte_t *ptep)
{
	tierd_ptep_clear_young(vma, addr, ptep);
	tierd_ptep_clear_young(vma, addr + PAGE_SIZE, ptep + 1);
	tierd_ptep_clear_young(vma, addr + 2 * PAGE_SIZE, ptep + 2);
	tierd_ptep_clear_young(vma, addr + 3 * PAGE_SIZE, ptep + 3);
}

/*
 * Clears the accessed bits of entries that have them. Others clear them under the table's lock
 * only, so that they are still set; hardware sets others, so that each is a step of its own.
 */
static inline void tierd_entries_clear_young(struct vm_area_struct *vma, unsigned long addr,
					     pte_t *ptep, u8 young)
{
	unsigned long rest;
	unsigned int i;

	if (young == 0xff) {
		tierd_entries_clear_four(vma, addr, ptep);
		tierd_entries_clear_four(vma, addr + 4 * PAGE_SIZE, ptep + 4);
		return;
	}
	for (rest = young; rest; rest &= rest - 1) {
		i = __ffs(rest);
		tierd_ptep_clear_young(vma, addr + i * PAGE_SIZE, ptep + i);
	}
}

#endif
