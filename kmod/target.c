// SPDX-License-Identifier: GPL-2.0-only
/*
 * Who is scanned. A target holds the pid and, by mmgrab(), the identity of the address
 * space; the memory itself is held only while a slice of a scan runs, so a process that
 * ends gives its memory back at once.
 */
#include "tierd.h"

#include <linux/mmu_notifier.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/slab.h>

DEFINE_MUTEX(tierd_targets_lock);
EXPORT_SYMBOL_GPL(tierd_targets_lock);
LIST_HEAD(tierd_targets);

/**
 * tierd_target_find() - the target with a number
 * @number: its number
 *
 * Called with tierd_targets_lock.
 *
 * Return: The target, NULL if there is none.
 */
struct tierd_target *tierd_target_find(u16 number)
{
	struct tierd_target *target;

	lockdep_assert_held(&tierd_targets_lock);
	list_for_each_entry(target, &tierd_targets, node)
		if (target->number == number)
			return target;
	return NULL;
}

/**
 * tierd_target_by_mm() - the target with an address space
 * @mm: the address space
 *
 * Called with tierd_targets_lock.
 *
 * Return: The target, NULL if there is none.
 */
struct tierd_target *tierd_target_by_mm(struct mm_struct *mm)
{
	struct tierd_target *target;

	lockdep_assert_held(&tierd_targets_lock);
	list_for_each_entry(target, &tierd_targets, node)
		if (READ_ONCE(target->mm) == mm)
			return target;
	return NULL;
}

/* When a target is to be scanned next. By the scanner's thread alone, which sets all of it. */
static u64 tierd_target_due_ns(const struct tierd_target *target, u64 period_ns)
{
	if (target->in_round || !target->round_start_ns)
		return target->next_ns;
	return max(target->next_ns, target->round_start_ns + period_ns);
}

/**
 * tierd_target_due() - the next target in turn whose time has come
 * @now_ns: now
 * @period_ns: least time between two scans
 * @begun: only targets of which a part is sampled count
 * @earliest_ns: when the next one is due
 *
 * Return: The target with a reference; NULL if there is none, and then the earliest time is
 * set.
 */
struct tierd_target *tierd_target_due(u64 now_ns, u64 period_ns, bool begun, u64 *earliest_ns)
{
	struct tierd_target *target, *due = NULL;
	u64 target_ns;

	*earliest_ns = U64_MAX;
	mutex_lock(&tierd_targets_lock);
	list_for_each_entry(target, &tierd_targets, node) {
		if (begun && !READ_ONCE(target->sampling.armed_ns))
			continue;
		target_ns = tierd_target_due_ns(target, period_ns);
		if (target_ns <= now_ns) {
			due = target;
			break;
		}
		*earliest_ns = min(*earliest_ns, target_ns);
	}
	if (due) {
		kref_get(&due->ref);
		list_move_tail(&due->node, &tierd_targets);
	}
	mutex_unlock(&tierd_targets_lock);
	return due;
}

static void tierd_target_free(struct kref *ref)
{
	struct tierd_target *target = container_of(ref, struct tierd_target, ref);

	tierd_history_clear(target);
	xa_destroy(&target->history);
	mmdrop(target->mm);
	put_pid(target->pid);
	kvfree(target->ranges);
	kfree(target);
}

/**
 * tierd_target_put() - drop a reference
 * @target: the target
 */
void tierd_target_put(struct tierd_target *target)
{
	kref_put(&target->ref, tierd_target_free);
}

/**
 * tierd_second_mmu() - whether a second MMU uses this memory
 * @mm: the address space
 *
 * A virtual machine's, or a device's. Its accesses set bits of tables of its own, which a module
 * cannot ask for (__mmu_notifier_clear_young() is not exported), so all of it would look cold. Once
 * true, it stays so until the process executes.
 *
 * Return: True if one does.
 */
bool tierd_second_mmu(struct mm_struct *mm)
{
	return mm_has_notifiers(mm);
}

/**
 * tierd_target_add() - register a process
 * @number: its number
 * @pid: the process
 * @ranges: what is scanned, NULL for all
 * @portid: the netlink socket
 *
 * Called with tierd_targets_lock. Takes over the ranges when it succeeds.
 *
 * Return: 0 or a negative errno.
 */
int tierd_target_add(u16 number, struct pid *pid, struct tierd_ranges *ranges, u32 portid)
{
	struct tierd_target *target;
	struct task_struct *task;
	struct mm_struct *mm;

	lockdep_assert_held(&tierd_targets_lock);
	if (tierd_target_find(number))
		return -EEXIST;
	if (tierd_stats.targets >= tierd_max_targets)
		return -ENOSPC;
	task = get_pid_task(pid, PIDTYPE_TGID);
	if (!task)
		return -ESRCH;
	mm = get_task_mm(task);
	put_task_struct(task);
	if (!mm)
		return -ESRCH; /* a kernel thread, or one that is ending */
	if (tierd_second_mmu(mm)) {
		mmput_async(mm);
		return -EOPNOTSUPP;
	}
	/* Two scans of one address space would take each other's accessed bits. */
	if (tierd_target_by_mm(mm)) {
		mmput_async(mm);
		return -EEXIST;
	}
	target = kzalloc(sizeof(*target), GFP_KERNEL);
	if (!target) {
		mmput_async(mm);
		return -ENOMEM;
	}
	mmgrab(mm);
	/* If the process has ended meanwhile, its memory is not taken down under our lock. */
	mmput_async(mm);
	target->mm = mm;
	target->pid = get_pid(pid);
	target->number = number;
	target->portid = portid;
	target->ranges = ranges;
	target->stats.ranges = ranges ? ranges->count : 0;
	mutex_init(&target->lock);
	kref_init(&target->ref);
	xa_init(&target->history);
	list_add_tail(&target->node, &tierd_targets);
	tierd_stats.targets++;
	return 0;
}

/**
 * tierd_target_remove() - take a target off the list
 * @target: the target
 *
 * Called with tierd_targets_lock. Drops the list's reference; the scanner may still hold one
 * for the rest of a slice.
 */
void tierd_target_remove(struct tierd_target *target)
{
	lockdep_assert_held(&tierd_targets_lock);
	if (target->dead)
		return;
	target->dead = true;
	list_del(&target->node);
	tierd_stats.targets--;
	tierd_target_put(target);
}

/**
 * tierd_targets_clear() - remove the targets that a netlink socket registered
 * @portid: the socket, 0 for all
 */
void tierd_targets_clear(u32 portid)
{
	struct tierd_target *target, *next;

	mutex_lock(&tierd_targets_lock);
	list_for_each_entry_safe(target, next, &tierd_targets, node)
		if (!portid || target->portid == portid)
			tierd_target_remove(target);
	mutex_unlock(&tierd_targets_lock);
}

/**
 * tierd_target_get_mm() - the memory of a target
 * @target: the target
 * @mm: where it goes, to be given back by mmput(), unless it is gone
 *
 * A leader that ended while other threads run has no memory of its own, so the known address space
 * is asked as well.
 *
 * Return: whether it is the memory of before.
 */
enum tierd_mm_state tierd_target_get_mm(struct tierd_target *target, struct mm_struct **mm)
{
	struct task_struct *task = get_pid_task(target->pid, PIDTYPE_TGID);
	struct mm_struct *now;

	lockdep_assert_held(&target->lock);
	if (!task)
		return TIERD_MM_GONE;
	now = get_task_mm(task);
	put_task_struct(task);
	if (!now) {
		if (!mmget_not_zero(target->mm))
			return TIERD_MM_GONE;
		now = target->mm;
	}
	*mm = now;
	if (now == target->mm)
		return TIERD_MM_SAME;
	mmgrab(now);
	mmdrop(target->mm);
	WRITE_ONCE(target->mm, now);
	return TIERD_MM_NEW;
}
