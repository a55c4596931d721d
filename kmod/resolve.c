// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whose is a page frame? A reverse lookup through the folio's anon_vma, as the kernel's own
 * reverse mapping does it (which is not exported). docs/reference/kmod.md says why this one.
 *
 * No reference to the folio's anon_vma is taken, for the function that drops one is not
 * exported; its lock, if it can be had at once, pins it as long as the folio is mapped.
 * An answer is given only for an entry that holds the frame under the page-table lock.
 */
#include "compat.h"
#include "tierd.h"

#include <linux/hugetlb.h>
#include <linux/interval_tree_generic.h>
#include <linux/ksm.h>
#include <linux/memory.h>
#include <linux/memory_hotplug.h>
#include <linux/pagemap.h>
#include <linux/rmap.h>
#include <linux/sched/mm.h>

#define TRIES 8

/* As mm/interval_tree.c has it: the order of an anon_vma's tree. */
static unsigned long tierd_resolve_avc_first(struct anon_vma_chain *avc)
{
	return avc->vma->vm_pgoff;
}

static unsigned long tierd_resolve_avc_last(struct anon_vma_chain *avc)
{
	return avc->vma->vm_pgoff + vma_pages(avc->vma) - 1;
}

INTERVAL_TREE_DEFINE(struct anon_vma_chain, rb, unsigned long, rb_subtree_last,
		     tierd_resolve_avc_first, tierd_resolve_avc_last, static __maybe_unused,
		     avc_tree)

/*
 * Locks the anon_vma of a folio that the caller holds a reference to. NULL: it is not
 * mapped, or not anonymous. -EBUSY: try again.
 */
static struct anon_vma *tierd_resolve_lock_anon_vma(struct folio *folio)
{
	struct anon_vma *anon_vma = NULL, *root;
	unsigned long mapping;

	rcu_read_lock();
	mapping = (unsigned long)READ_ONCE(folio->mapping);
	if ((mapping & TIERD_MAPPING_FLAGS) != TIERD_MAPPING_ANON || !folio_mapped(folio))
		goto out;
	anon_vma = (struct anon_vma *)(mapping - TIERD_MAPPING_ANON);
	root = READ_ONCE(anon_vma->root);
	if (!down_read_trylock(&root->rwsem)) {
		anon_vma = ERR_PTR(-EBUSY);
		goto out;
	}
	/* While it is mapped, its anon_vma cannot be freed under the lock we now have. */
	if ((unsigned long)READ_ONCE(folio->mapping) != mapping) {
		up_read(&root->rwsem);
		anon_vma = ERR_PTR(-EBUSY);
	} else if (!folio_mapped(folio)) {
		up_read(&root->rwsem);
		anon_vma = NULL;
	}
out:
	rcu_read_unlock();
	return anon_vma;
}

/* Whether `addr` of the address space maps exactly this frame, and if so, by a PMD. */
static bool tierd_resolve_maps_frame(struct mm_struct *mm, unsigned long addr, unsigned long pfn,
				     bool *by_pmd)
{
	pmd_t *pmdp = tierd_find_pmd(mm, addr, NULL);
	bool found = false;
	spinlock_t *ptl;
	pte_t *ptep;
	pmd_t pmd;

	*by_pmd = false;
	if (!pmdp)
		return false;
	if (tierd_pmd_huge(tierd_pmdp_get(pmdp))) {
		ptl = pmd_lock(mm, pmdp);
		pmd = tierd_pmdp_get(pmdp);
		if (tierd_pmd_huge(pmd)) {
			found = pmd_pfn(pmd) + ((addr & ~PMD_MASK) >> PAGE_SHIFT) == pfn;
			spin_unlock(ptl);
			*by_pmd = found;
			return found;
		}
		spin_unlock(ptl); /* split just now: it is a table */
	}
	ptep = tierd_lock_table(mm, pmdp, addr, &ptl);
	if (ptep) {
		pte_t pte = tierd_ptep_get(ptep);

		found = pte_present(pte) && pte_pfn(pte) == pfn;
		tierd_unlock_table(ptl);
	}
	return found;
}

/* The thread group that owns an address space, as the caller numbers it; 0 if unknown. */
static u32 tierd_resolve_pid_of(struct mm_struct *mm)
{
	u32 pid = 0;
#ifdef CONFIG_MEMCG
	struct task_struct *task;

	rcu_read_lock();
	task = rcu_dereference(mm->owner);
	if (task && READ_ONCE(task->mm) == mm)
		pid = task_tgid_vnr(task);
	rcu_read_unlock();
#endif
	return pid;
}

/* Fills in the first mapping found; the number of mappings, 2 for any more than one. */
static unsigned int tierd_resolve_find_mappings(struct anon_vma *anon_vma, struct folio *folio,
						unsigned long pfn, struct tierd_owner *owner,
						u8 *flags, bool with_pid)
{
	unsigned long offset = folio->index + (pfn - folio_pfn(folio)), addr;
	struct tierd_target *target;
	struct anon_vma_chain *avc;
	unsigned int found = 0;
	bool by_pmd;

	for (avc = avc_tree_iter_first(&anon_vma->rb_root, offset, offset); avc && found < 2;
	     avc = avc_tree_iter_next(avc, offset, offset)) {
		struct vm_area_struct *vma = avc->vma;

		addr = vma->vm_start + ((offset - vma->vm_pgoff) << PAGE_SHIFT);
		if (addr < vma->vm_start || addr >= vma->vm_end || !tierd_vma_wanted(vma))
			continue;
		if (!tierd_resolve_maps_frame(vma->vm_mm, addr, pfn, &by_pmd))
			continue;
		target = tierd_target_by_mm(vma->vm_mm);
		/* Of several mappings, one of a target says more. */
		if (!found++ || (owner->target == TIERD_NO_TARGET && target)) {
			owner->vpn = addr >> PAGE_SHIFT;
			owner->pid = with_pid ? tierd_resolve_pid_of(vma->vm_mm) : 0;
			owner->target = target ? target->number : TIERD_NO_TARGET;
			*flags = TIERD_PAGE_ANON | (by_pmd ? TIERD_PAGE_PMD : 0);
		}
	}
	return found;
}

static u8 tierd_resolve_look_up(struct folio *folio, unsigned long pfn, struct tierd_owner *owner,
				u8 *flags, bool with_pid)
{
	struct anon_vma *anon_vma;
	unsigned int found, try;

	owner->order = folio_order(folio);
	if (folio_test_hugetlb(folio) || folio_test_ksm(folio) || folio_test_slab(folio))
		return TIERD_OWNER_OTHER;
	if (!folio_test_anon(folio)) {
		if (READ_ONCE(folio->mapping))
			return TIERD_OWNER_FILE;
		return folio_mapped(folio) ? TIERD_OWNER_OTHER : TIERD_OWNER_GONE;
	}
	for (try = 0; try < TRIES; try++) {
		anon_vma = tierd_resolve_lock_anon_vma(folio);
		if (!anon_vma)
			return TIERD_OWNER_GONE;
		if (!IS_ERR(anon_vma))
			break;
		cond_resched();
	}
	if (IS_ERR(anon_vma))
		return TIERD_OWNER_BUSY;
	found = tierd_resolve_find_mappings(anon_vma, folio, pfn, owner, flags, with_pid);
	up_read(&anon_vma->root->rwsem);
	if (found > 1) {
		*flags |= TIERD_PAGE_SHARED;
		return TIERD_OWNER_SHARED;
	}
	return found ? TIERD_OWNER_MAPPED : TIERD_OWNER_GONE;
}

static void tierd_resolve_one(struct page *page, unsigned long pfn, struct tierd_owner *owner,
			      u8 *flags, bool with_pid)
{
	struct folio *folio = page_folio(page);

	/* Free pages have no references; a compound page may be taken apart until we have one. */
	if (!folio_try_get(folio))
		return;
	if (page_folio(page) == folio)
		owner->status = tierd_resolve_look_up(folio, pfn, owner, flags, with_pid);
	folio_put(folio);
}

/**
 * tierd_resolve_page() - whose a page is, for a profiler
 * @page: its struct page, NULL where there is none on line
 * @pfn: the page frame
 * @owner: whose it is
 * @flags: enum tierd_page_flags, as far as an address is told; 0 before
 *
 * Called with tierd_targets_lock. No pid is told.
 */
void tierd_resolve_page(struct page *page, unsigned long pfn, struct tierd_owner *owner, u8 *flags)
{
	*owner = (struct tierd_owner){ .target = TIERD_NO_TARGET, .status = TIERD_OWNER_GONE };
	if (page)
		tierd_resolve_one(page, pfn, owner, flags, false);
}
EXPORT_SYMBOL_GPL(tierd_resolve_page);

/*
 * Memory that goes off line may take its struct pages with it. Frames are looked up under
 * tierd_targets_lock, and those of memory that is off line are not: who began before is waited for.
 */
static int tierd_resolve_memory_changes(struct notifier_block *block, unsigned long action,
					void *data)
{
	if (action == MEM_OFFLINE) {
		mutex_lock(&tierd_targets_lock);
		mutex_unlock(&tierd_targets_lock);
	}
	return NOTIFY_OK;
}

static struct notifier_block tierd_resolve_memory_notifier = {
	.notifier_call = tierd_resolve_memory_changes
};

/**
 * tierd_resolve_init() - follow memory that goes off line
 *
 * Return: 0 or a negative errno.
 */
int tierd_resolve_init(void)
{
	return register_memory_notifier(&tierd_resolve_memory_notifier);
}

/**
 * tierd_resolve_exit() - undo tierd_resolve_init()
 */
void tierd_resolve_exit(void)
{
	unregister_memory_notifier(&tierd_resolve_memory_notifier);
}

/**
 * tierd_resolve_pfn() - whose a page frame is
 * @pfn: the page frame
 * @owner: whose it is
 *
 * Called with tierd_targets_lock.
 */
void tierd_resolve_pfn(u64 pfn, struct tierd_owner *owner)
{
	struct page *page;
	u8 flags = 0;

	*owner = (struct tierd_owner){ .target = TIERD_NO_TARGET, .status = TIERD_OWNER_GONE };
	if (pfn >> (BITS_PER_LONG - PAGE_SHIFT))
		return;
	page = pfn_to_online_page(pfn);
	if (page)
		tierd_resolve_one(page, pfn, owner, &flags, true);
}
