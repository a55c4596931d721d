// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sampling intervals. With one, each part of an address space is gone over twice: its accessed bits
 * are cleared (it is armed), and read so much later (the look). What was accessed at any other time
 * does not count, so that pages in use can be told apart by how much. A part that was begun is
 * brought to its end whatever the budget has left: what that lacks is waited for before the next
 * one.
 */
#include "compat.h"
#include "tierd.h"

#include <linux/math64.h>

/*
 * Arming a part takes no more than this share of its sampling interval, which is alike for all its
 * pages then.
 */
#define ARMING_SHARE 4
/* ... nor more than this: the budget has to wait for it, and for the look. */
#define ARMING_NS (10 * NSEC_PER_MSEC)
#define INTERVAL_TIMES 4

/**
 * tierd_set_sampling_interval() - give a target another sampling interval
 * @target: the target
 * @sampling_interval_us: the new one
 *
 * Called with the target's lock. If it is quite another one, what was seen is of another
 * measure.
 */
void tierd_set_sampling_interval(struct tierd_target *target, u32 sampling_interval_us)
{
	u32 before = target->sampling.us;

	if (!before != !sampling_interval_us ||
	    before > INTERVAL_TIMES * (u64)sampling_interval_us ||
	    sampling_interval_us > INTERVAL_TIMES * (u64)before) {
		tierd_history_reset(target);
		/* The first look is after arming, and tells what others do. */
		target->age = sampling_interval_us ? 1 : 0;
	}
	target->sampling = (struct tierd_sampling){ .us = sampling_interval_us };
}

/**
 * tierd_part_begin() - clear the accessed bits of a part, or look at one where they are cleared
 * @walk: the pass
 * @start_ns: when the slice began
 *
 * Called with the target's lock.
 */
void tierd_part_begin(struct tierd_walk *walk, u64 start_ns)
{
	struct tierd_sampling *sampling = &walk->target->sampling;

	walk->stop = ULONG_MAX;
	if (!sampling->us)
		return;
	walk->arm = !sampling->armed;
	if (walk->arm) {
		if (!sampling->armed_ns)
			sampling->armed_ns = start_ns;
		return;
	}
	walk->stop = sampling->to;
	if (!sampling->look_ns)
		sampling->look_ns = start_ns;
}

/**
 * tierd_part_end() - settle a part after a slice
 * @walk: the pass
 * @start_ns: when the slice began
 * @done: whether it came to the part's end
 *
 * Called with the target's lock.
 *
 * Return: True when its end was the round's as well.
 */
bool tierd_part_end(struct tierd_walk *walk, u64 start_ns, bool done)
{
	struct tierd_sampling *sampling = &walk->target->sampling;
	u64 sampling_interval_ns = sampling->us * (u64)NSEC_PER_USEC;

	if (!walk->arm) {
		if (!done)
			return false;
		/* From the middle of arming to the middle of the look: others may run in both. */
		sampling->sum_ns += (sampling->look_ns - sampling->armed_ns + walk->now_ns -
				     sampling->armed_to_ns) /
				    2;
		sampling->parts++;
		sampling->armed_ns = sampling->look_ns = 0;
		if (sampling->to == ULONG_MAX)
			return true;
		sampling->from = walk->target->cursor = sampling->to;
		sampling->armed = false;
		sampling->arming_ns = 0;
		return false;
	}
	sampling->arming_ns += walk->now_ns - start_ns;
	if (!done && sampling->arming_ns * ARMING_SHARE < sampling_interval_ns &&
	    sampling->arming_ns < ARMING_NS)
		return false;
	/* Translations that CPUs still know would not set the bits again. */
	tierd_flush_tlb();
	sampling->armed = true;
	sampling->armed_to_ns = walk->now_ns;
	sampling->to = done ? ULONG_MAX : walk->target->cursor;
	walk->target->cursor = sampling->from;
	walk->target->next_ns = sampling->armed_ns + sampling_interval_ns;
	return false;
}
