/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All that differs between kernel releases, and the few things that are not exported
 * and can be said with inline helpers.
 */
#ifndef TIERD_COMPAT_H
#define TIERD_COMPAT_H

#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/version.h>
#include <net/genetlink.h>

#ifndef CONFIG_64BIT
#error "tierd needs a 64-bit kernel"
#endif
#ifndef CONFIG_MMU
#error "tierd needs an MMU"
#endif
#ifndef CONFIG_ARCH_HAS_PTE_SPECIAL
#error "tierd tells pages of memory from others by the special bit of their entries"
#endif
#ifdef __BIG_ENDIAN
#error "tierd handles access histories eight at a time, in little-endian order"
#endif

static inline pte_t tierd_ptep_get(pte_t *ptep)
{
	return ptep_get(ptep);
}

static inline pmd_t tierd_pmdp_get(pmd_t *pmdp)
{
	return READ_ONCE(*pmdp);
}

/* pmd_devmap() went away together with the special PTEs it stood for (6.17). */
static inline bool tierd_pmd_devmap(pmd_t pmd)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0)
	return pmd_devmap(pmd);
#else
	return false;
#endif
}

static inline bool tierd_pte_devmap(pte_t pte)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0)
	return pte_devmap(pte);
#else
	return false;
#endif
}

/* One that maps a page of memory; in the areas we walk all others are marked as special. */
static inline bool tierd_plain_pte(pte_t pte)
{
	return pte_present(pte) && !pte_special(pte) && !tierd_pte_devmap(pte);
}

static inline bool tierd_pmd_huge(pmd_t pmd)
{
#ifdef CONFIG_TRANSPARENT_HUGEPAGE
	return pmd_present(pmd) && pmd_trans_huge(pmd) && !tierd_pmd_devmap(pmd);
#else
	return false;
#endif
}

/* A PMD that points to a page table (one that is being split or migrated does not). */
static inline bool tierd_pmd_table(pmd_t pmd)
{
	return pmd_present(pmd) && !pmd_trans_huge(pmd) && !tierd_pmd_devmap(pmd) && !pmd_bad(pmd);
}

/*
 * ptep_test_and_clear_young() is a function that x86 does not export; elsewhere it is
 * inline. Called with the page-table lock held, for an entry that has the bit: hardware may set
 * other bits at any time, so reading and writing are one step.
 */
static inline void tierd_ptep_clear_young(struct vm_area_struct *vma, unsigned long addr,
					  pte_t *ptep)
{
#ifdef CONFIG_X86
	clear_bit(_PAGE_BIT_ACCESSED, (unsigned long *)&ptep->pte);
#else
	ptep_test_and_clear_young(vma, addr, ptep);
#endif
}

static inline bool tierd_pmdp_clear_young(struct vm_area_struct *vma, unsigned long addr,
					  pmd_t *pmdp)
{
#if defined(CONFIG_X86)
	return test_and_clear_bit(_PAGE_BIT_ACCESSED, (unsigned long *)pmdp);
#elif defined(CONFIG_TRANSPARENT_HUGEPAGE)
	return pmdp_test_and_clear_young(vma, addr, pmdp);
#else
	return false;
#endif
}

/* The names changed in 6.17; the values did not. */
#ifdef FOLIO_MAPPING_FLAGS
#define TIERD_MAPPING_FLAGS FOLIO_MAPPING_FLAGS
#define TIERD_MAPPING_ANON FOLIO_MAPPING_ANON
#else
#define TIERD_MAPPING_FLAGS PAGE_MAPPING_FLAGS
#define TIERD_MAPPING_ANON PAGE_MAPPING_ANON
#endif

/*
 * Clearing a dirty bit without a flush could lose a write: a CPU that has the dirty
 * translation cached would not set it again. Only x86 lets a module flush: until 6.18 by
 * __flush_tlb_all(), which forgets all translations of the CPU it runs on. Later kernels export
 * that to KVM alone, and INVPCID, which is inline, does the same where the CPU has it. Under Xen's
 * paravirtualisation a kernel must not execute it.
 *
 * Tests define TIERD_FLUSH_BY_INVPCID to see on an older kernel what a later one does.
 */
#ifdef CONFIG_X86
#include <asm/cpufeature.h>
#include <asm/tlbflush.h>
#include <linux/smp.h>

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 19, 0) && !defined(TIERD_FLUSH_BY_INVPCID)
#define TIERD_FLUSH_BY_INVPCID
#endif

#ifdef TIERD_FLUSH_BY_INVPCID
#include <asm/invpcid.h>

static inline bool tierd_can_flush(void)
{
	return boot_cpu_has(X86_FEATURE_INVPCID) && !boot_cpu_has(X86_FEATURE_XENPV);
}

static inline void tierd_flush_this_cpu(void *unused)
{
	invpcid_flush_all();
}
#else
static inline bool tierd_can_flush(void)
{
	return true;
}

static inline void tierd_flush_this_cpu(void *unused)
{
	__flush_tlb_all();
}
#endif

static inline void tierd_flush_tlb(void)
{
	on_each_cpu(tierd_flush_this_cpu, NULL, 1);
}

/* Entries of shadow stacks are told by being read-only and dirty: theirs have to stay so. */
static inline bool tierd_shadow_stack(const struct vm_area_struct *vma)
{
#ifdef VM_SHADOW_STACK
	return vma->vm_flags & VM_SHADOW_STACK;
#else
	return false;
#endif
}

/*
 * Of entries without permission to write, too: NUMA balancing takes it for a while, and kernels
 * that know shadow stacks keep the bit elsewhere meanwhile.
 */
static inline bool tierd_clear_dirty(const struct vm_area_struct *vma, unsigned long *entry)
{
	unsigned long was = READ_ONCE(*entry);
	bool dirty = false;

	if (tierd_shadow_stack(vma))
		return false;
	if (was & _PAGE_DIRTY)
		dirty = test_and_clear_bit(_PAGE_BIT_DIRTY, entry);
#ifdef _PAGE_BIT_SAVED_DIRTY
	if (was & _PAGE_SAVED_DIRTY)
		dirty |= test_and_clear_bit(_PAGE_BIT_SAVED_DIRTY, entry);
#endif
	return dirty;
}
#else
static inline bool tierd_can_flush(void)
{
	return false;
}

static inline void tierd_flush_tlb(void)
{
}

static inline bool tierd_clear_dirty(const struct vm_area_struct *vma, unsigned long *entry)
{
	return false;
}
#endif

/* Mapped more than once, as far as can be told without a walk. */
static inline bool tierd_folio_shared(struct folio *folio, struct page *page)
{
	if (!folio_test_large(folio))
		return atomic_read(&page->_mapcount) > 0;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 15, 0)
	return folio_maybe_mapped_shared(folio);
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 9, 0)
	return folio_likely_mapped_shared(folio);
#else
	return page_mapcount(page) > 1;
#endif
}

/*
 * Until 7.0 sparse followed which locks a function returns with, and it has no word for one that
 * may return without: to sparse, tierd_lock_table() holds nothing, and tierd_unlock_table() undoes
 * that.
 */
#if defined(__CHECKER__) && defined(__cond_lock)
#define tierd_sparse_hand_over(lock) __release(lock)
#define tierd_sparse_take_over(lock) __acquire(lock)
#else
#define tierd_sparse_hand_over(lock)                                                               \
	do {                                                                                       \
	} while (0)
#define tierd_sparse_take_over(lock)                                                               \
	do {                                                                                       \
	} while (0)
#endif

#endif
