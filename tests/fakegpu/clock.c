/* SPDX-License-Identifier: Apache-2.0 */
/* The harness's handles: the clock, the counters, and how many allocations are to fail. */
#include "world.h"

#include <errno.h>
#include <sched.h>

static _Thread_local uint64_t spent; /* by this thread's calls, on a manual clock */

void fg_block_until(uint64_t when)
{
	if (!fg_w->manual)
		fg_settle(when);
}

uint64_t fg_present(void)
{
	return fg_w->now + (fg_w->manual ? spent : 0);
}

void fg_spend(uint64_t ns)
{
	if (fg_w->manual)
		spent += ns;
	else
		fg_settle(fg_w->now + ns);
}

void fg_spend_until(uint64_t when)
{
	if (when > fg_present())
		fg_spend(when - fg_present());
}

uint64_t fg_take_spent(void)
{
	uint64_t ns = spent;

	spent = 0;
	return ns;
}

int fg_gpu_count(void)
{
	int count;

	if (fg_lock())
		return -ENODEV;
	count = fg_w->gpus;
	fg_unlock();
	return count;
}

int fg_stats(int gpu, struct fg_gpu_stats *out)
{
	struct fg_gpu *g;

	if (fg_lock())
		return -ENODEV;
	fg_reap();
	g = &fg_w->gpu[gpu];
	*out = g->stats;
	out->lost = g->lost;
	out->total_bytes = (uint64_t)g->frames * FG_BLOCK_BYTES;
	out->free_bytes = (uint64_t)g->list[FG_ON_FREE].count * FG_BLOCK_BYTES;
	out->spare_bytes = (uint64_t)g->list[FG_ON_SPARE].count * FG_BLOCK_BYTES;
	out->unused_bytes = (uint64_t)g->list[FG_ON_UNUSED].count * FG_BLOCK_BYTES;
	out->least_room_bytes = (uint64_t)g->least_room * FG_BLOCK_BYTES;
	for (int slot = 0; slot < FG_MAX_TENANTS; slot++)
		if (fg_w->tenant[slot].used)
			out->plain_bytes +=
			    (uint64_t)fg_w->tenant[slot].plain[gpu] * FG_BLOCK_BYTES;
	fg_unlock();
	return 0;
}

uint64_t fg_now(void)
{
	if (!fg_w)
		return 0;
	return __atomic_load_n(&fg_w->now, __ATOMIC_RELAXED) + (fg_w->manual ? spent : 0);
}

void fg_set_manual(int manual)
{
	if (fg_lock())
		return;
	fg_w->manual = manual;
	fg_unlock();
}

void fg_set_now(uint64_t now)
{
	if (fg_lock())
		return;
	fg_settle(now);
	fg_unlock();
}

void fg_fail_allocations(int count)
{
	if (fg_lock())
		return;
	fg_w->fail_allocations = count;
	fg_unlock();
}

void fg_hold_prefetches(int held)
{
	if (fg_lock())
		return;
	fg_w->hold_prefetches = held;
	fg_unlock();
}

int fg_prefetches_held(void)
{
	return fg_w ? __atomic_load_n(&fg_w->prefetches_held, __ATOMIC_RELAXED) : 0;
}

void fg_wait_while_held(void)
{
	if (!fg_w || !__atomic_load_n(&fg_w->hold_prefetches, __ATOMIC_RELAXED))
		return;
	__atomic_add_fetch(&fg_w->prefetches_held, 1, __ATOMIC_RELAXED);
	while (__atomic_load_n(&fg_w->hold_prefetches, __ATOMIC_RELAXED))
		sched_yield();
	__atomic_sub_fetch(&fg_w->prefetches_held, 1, __ATOMIC_RELAXED);
}
