// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exposures. With one, each part of an address space is gone over twice: its accessed bits are
 * cleared (it is armed), and looked at so much later. What was accessed at any other time does
 * not count, so that pages in use can be told apart by how much. A part that was begun is brought
 * to its end whatever the budget has left: what that lacks is waited for before the next one.
 */
#include "compat.h"
#include "tierd.h"

#include <linux/math64.h>

/* Arming a part takes no more than this share of its exposure, which is alike for all pages then.
 */
#define ARMING_SHARE 4
/* ... nor more than this: the budget has to wait for it, and for the look. */
#define ARMING_NS (10 * NSEC_PER_MSEC)
#define EXPOSURE_TIMES 4

/* Quite another exposure: what was seen with the last one is of another measure. */
void tierd_expose(struct tierd_target *target, u32 exposure_us)
{
	u32 before = target->exposure.us;

	if (!before != !exposure_us || before > EXPOSURE_TIMES * (u64)exposure_us ||
	    exposure_us > EXPOSURE_TIMES * (u64)before) {
		tierd_history_clear(target);
		/* The first look is after arming, and tells what others do. */
		target->age = exposure_us ? 1 : 0;
	}
	target->exposure = (struct tierd_exposure){.us = exposure_us};
}

/* Arms a part, or looks at one that is armed. */
void tierd_part_begin(struct tierd_walk *walk, u64 start_ns)
{
	struct tierd_exposure *exposure = &walk->target->exposure;

	walk->stop = ULONG_MAX;
	if (!exposure->us)
		return;
	walk->arm = !exposure->armed;
	if (walk->arm) {
		if (!exposure->armed_ns)
			exposure->armed_ns = start_ns;
		return;
	}
	walk->stop = exposure->to;
	if (!exposure->look_ns)
		exposure->look_ns = start_ns;
}

/* After a slice; `done`: it came to the part's end. True when that was the round's as well. */
bool tierd_part_end(struct tierd_walk *walk, u64 start_ns, bool done)
{
	struct tierd_exposure *exposure = &walk->target->exposure;
	u64 exposure_ns = exposure->us * (u64)NSEC_PER_USEC;

	if (!walk->arm) {
		if (!done)
			return false;
		/* From the middle of arming to the middle of the look: others may run in both. */
		exposure->sum_ns += (exposure->look_ns - exposure->armed_ns + walk->now_ns -
				     exposure->armed_to_ns) /
				    2;
		exposure->parts++;
		exposure->armed_ns = exposure->look_ns = 0;
		if (exposure->to == ULONG_MAX)
			return true;
		exposure->from = walk->target->cursor = exposure->to;
		exposure->armed = false;
		exposure->arming_ns = 0;
		return false;
	}
	exposure->arming_ns += walk->now_ns - start_ns;
	if (!done && exposure->arming_ns * ARMING_SHARE < exposure_ns &&
	    exposure->arming_ns < ARMING_NS)
		return false;
	/* Translations that CPUs still know would not set the bits again. */
	tierd_flush_tlb();
	exposure->armed = true;
	exposure->armed_to_ns = walk->now_ns;
	exposure->to = done ? ULONG_MAX : walk->target->cursor;
	walk->target->cursor = exposure->from;
	walk->target->next_ns = exposure->armed_ns + exposure_ns;
	return false;
}
