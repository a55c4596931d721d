// SPDX-License-Identifier: GPL-2.0-only
/*
 * The scanner: one thread that goes over all targets in turn, in slices of about a
 * millisecond, each going on where the last one of its target stopped.
 *
 * While its CPU budget (budget.c) is short the thread sleeps, so a round takes as long as
 * the budget makes it take, and the period follows.
 */
#include "bits.h"
#include "compat.h"
#include "tierd.h"
#include "trace.h"

#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#define SLICE_NS (1 * NSEC_PER_MSEC)
#define BUSY_NS (1 * NSEC_PER_MSEC)
#define CLOCK_STEPS 16 /* tables between two looks at the clock */
#define IDLE_NS (10 * NSEC_PER_SEC)

static struct task_struct *tierd_scanner; /* under scanner_lock */
static struct tierd_record *tierd_scanner_records;
static DEFINE_SPINLOCK(tierd_scanner_lock);
static bool tierd_scan_kicked;

/**
 * tierd_scan_kick() - cut the scanner's idle sleep short
 *
 * There is something new to do.
 */
void tierd_scan_kick(void)
{
	WRITE_ONCE(tierd_scan_kicked, true);
	spin_lock(&tierd_scanner_lock);
	if (tierd_scanner)
		wake_up_process(tierd_scanner);
	spin_unlock(&tierd_scanner_lock);
}

static void tierd_scan_sleep(u64 ns)
{
	ktime_t timeout = ns_to_ktime(min_t(u64, ns, IDLE_NS));

	set_current_state(TASK_INTERRUPTIBLE);
	if (kthread_should_stop() || READ_ONCE(tierd_scan_kicked))
		__set_current_state(TASK_RUNNING);
	else
		schedule_hrtimeout_range(&timeout, 50 * NSEC_PER_USEC, HRTIMER_MODE_REL);
	WRITE_ONCE(tierd_scan_kicked, false);
}

static void tierd_scan_publish(struct tierd_walk *walk)
{
	if (!walk->found)
		return;
	tierd_ring_publish(walk->records, walk->found);
	walk->found = 0;
}

/* The first range that ends behind `addr`; true if there is one. */
static bool tierd_scan_range_after(const struct tierd_ranges *ranges, unsigned long addr,
				   struct tierd_range *range)
{
	unsigned int low = 0, high;

	if (!ranges) {
		range->start = 0;
		range->end = TASK_SIZE_MAX;
		return addr < TASK_SIZE_MAX;
	}
	for (high = ranges->count; low < high;) {
		unsigned int middle = low + (high - low) / 2;

		if (ranges->range[middle].end > addr)
			high = middle;
		else
			low = middle + 1;
	}
	if (low == ranges->count)
		return false;
	*range = ranges->range[low];
	return true;
}

/* Some clocks take longer to read than a table. */
static bool tierd_scan_slice_over(struct tierd_walk *walk, u64 start_ns)
{
	if (++walk->steps % CLOCK_STEPS)
		return need_resched();
	walk->now_ns = ktime_get_ns();
	return walk->now_ns - start_ns > SLICE_NS || need_resched() ||
	       mmap_lock_is_contended(walk->mm) || kthread_should_stop();
}

/* Walks from the cursor on; true when the end of the address space, or `stop`, was reached. */
static bool tierd_scan_walk_on(struct tierd_walk *walk, u64 start_ns)
{
	struct tierd_target *target = walk->target;
	unsigned long addr = target->cursor, end, next;
	struct vm_area_struct *vma;
	struct tierd_range range;
	bool over = false;
	pmd_t *pmdp;

	while (!over) {
		if (!tierd_scan_range_after(target->ranges, addr, &range))
			return true;
		addr = max_t(unsigned long, addr, range.start);
		if (addr >= walk->stop)
			return true;
		vma = find_vma(walk->mm, addr);
		if (!vma)
			return true;
		addr = max(addr, vma->vm_start);
		end = min3(vma->vm_end, (unsigned long)range.end, walk->stop);
		if (!tierd_vma_wanted(vma)) {
			addr = vma->vm_end;
			over = tierd_scan_slice_over(walk, start_ns);
		}
		for (; addr < end && !over; addr = next) {
			pmdp = tierd_find_pmd(walk->mm, addr, &next);
			if (pmdp) {
				next = min((addr & PMD_MASK) + PMD_SIZE, end);
				tierd_walk_pmd(walk, vma, pmdp, addr, next);
			}
			if (walk->found > TIERD_WALK_RECORDS - TIERD_TABLE_PAGES)
				tierd_scan_publish(walk);
			over = tierd_scan_slice_over(walk, start_ns);
		}
		target->cursor = addr;
	}
	return false;
}

static void tierd_scan_round_end(struct tierd_walk *walk)
{
	tierd_round_end(walk);
	tierd_scan_publish(walk);
	tierd_ring_wake();
	trace_tierd_round(walk->target);
}

/* Starts the history of a target afresh: it runs another program now. */
static void tierd_scan_forget(struct tierd_target *target)
{
	tierd_history_clear(target);
	target->in_round = false;
	target->age = 0;
	target->sampling = (struct tierd_sampling){};
	tierd_stats.targets_exec++;
}

static enum tierd_mm_state tierd_scan_slice(struct tierd_target *target,
					    const struct tierd_settings *settings,
					    struct tierd_record *records)
{
	struct tierd_walk walk = {
		.target = target,
		.settings = settings,
		.records = records,
		.now_ns = ktime_get_ns(),
		.key = (u64)target->number << TIERD_KEY_SHIFT,
		.mark = READ_ONCE(tierd_mark_young),
		.turnover = &target->turnover,
		.hot_least = tierd_history_least(settings->hot_scans),
		.cold_least = tierd_history_least(settings->cold_scans + 1),
	};
	u64 start = walk.now_ns;
	enum tierd_mm_state state;
	bool done;

	state = tierd_target_get_mm(target, &walk.mm);
	if (state == TIERD_MM_GONE)
		return state;
	if (tierd_second_mmu(walk.mm)) {
		state = TIERD_MM_SECOND_MMU;
		goto put;
	}
	if (state == TIERD_MM_NEW)
		tierd_scan_forget(target);
	/* Never wait for it: the holder may sleep for long, and other targets are due. */
	if (!mmap_read_trylock(walk.mm)) {
		tierd_stats.lock_busy++;
		target->next_ns = start + BUSY_NS;
		goto put;
	}
	if (!target->in_round)
		tierd_round_start(target, settings, start);
	walk.age = target->age;
	walk.spans = tierd_node_spans(walk.span);
	tierd_part_begin(&walk, start);
	done = tierd_scan_walk_on(&walk, start);
	mmap_read_unlock(walk.mm);
	walk.now_ns = ktime_get_ns();
	if (target->sampling.us)
		done = tierd_part_end(&walk, start, done);
	target->round_cpu_ns += walk.now_ns - start;
	target->round_pages += walk.pages;
	target->round_accessed += walk.accessed;
	tierd_stats.slices++;
	tierd_stats.tables += walk.tables;
	tierd_stats.pages += walk.pages;
	tierd_stats.accessed += walk.accessed;
	tierd_stats.marked += walk.marked;
	tierd_scan_publish(&walk);
	if (done)
		tierd_scan_round_end(&walk);
put:
	/* If the process has ended meanwhile, somebody else shall take its memory down. */
	mmput_async(walk.mm);
	return state;
}

static void tierd_scan_target(struct tierd_target *target, const struct tierd_settings *settings,
			      struct tierd_record *records)
{
	enum tierd_event event = TIERD_EVENT_EXEC;
	enum tierd_mm_state state;

	mutex_lock(&target->lock);
	state = tierd_scan_slice(target, settings, records);
	mutex_unlock(&target->lock);
	if (state == TIERD_MM_SAME)
		return;
	if (state != TIERD_MM_NEW) {
		event = state == TIERD_MM_GONE ? TIERD_EVENT_GONE : TIERD_EVENT_SECOND_MMU;
		mutex_lock(&tierd_targets_lock);
		if (!target->dead && state == TIERD_MM_GONE)
			tierd_stats.targets_gone++;
		else if (!target->dead)
			tierd_stats.targets_second_mmu++;
		tierd_target_remove(target);
		mutex_unlock(&tierd_targets_lock);
	}
	tierd_netlink_event(event, target);
}

static int tierd_scan_thread(void *data)
{
	struct tierd_bucket bucket = { .seen_ns = ktime_get_ns() };
	struct tierd_record *records = data;
	struct tierd_settings settings;
	struct tierd_target *target;
	u64 wait, earliest, now;

	while (!kthread_should_stop()) {
		tierd_settings_get(&settings);
		wait = tierd_bucket_wait(&bucket, settings.budget_ppm);
		now = ktime_get_ns();
		/*
		 * What was armed is looked at in time, and paid for later: its pages would be
		 * sampled for as long as the budget made them wait.
		 */
		target = tierd_target_due(now, settings.period_us * (u64)NSEC_PER_USEC, wait,
					  &earliest);
		if (!target) {
			earliest = earliest > now ? earliest - now : 0;
			tierd_scan_sleep(wait ? min(wait, earliest) : earliest);
			continue;
		}
		tierd_scan_target(target, &settings, records);
		tierd_target_put(target);
		cond_resched();
	}
	return 0;
}

/**
 * tierd_scan_start() - start the scanner
 *
 * Return: 0 or a negative errno.
 */
int tierd_scan_start(void)
{
	struct tierd_record *records;
	struct task_struct *task;

	records = kvcalloc(TIERD_WALK_RECORDS, sizeof(*records), GFP_KERNEL);
	if (!records)
		return -ENOMEM;
	task = kthread_create(tierd_scan_thread, records, "tierd-scan");
	if (IS_ERR(task)) {
		kvfree(records);
		return PTR_ERR(task);
	}
	get_task_struct(task);
	tierd_scanner_records = records;
	spin_lock(&tierd_scanner_lock);
	tierd_scanner = task;
	spin_unlock(&tierd_scanner_lock);
	wake_up_process(task);
	return 0;
}

/**
 * tierd_scan_stop() - stop the scanner
 */
void tierd_scan_stop(void)
{
	struct task_struct *task = tierd_scanner;

	spin_lock(&tierd_scanner_lock);
	tierd_scanner = NULL;
	spin_unlock(&tierd_scanner_lock);
	kthread_stop(task);
	put_task_struct(task);
	/* Here, for a thread that is stopped before it first ran never runs at all. */
	kvfree(tierd_scanner_records);
}
