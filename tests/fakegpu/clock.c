/* SPDX-License-Identifier: Apache-2.0 */
/* The harness's handles: the clock, the counters, and how many allocations are to fail. */
#include "world.h"

#include <errno.h>

static _Thread_local uint64_t blocked_until;

void fg_block_until(uint64_t when)
{
	blocked_until = when;
	if (!fg_w->manual)
		fg_settle(when);
}

uint64_t fg_blocked_until(void)
{
	return blocked_until;
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
	out->free_bytes = (uint64_t)g->free_frames * FG_BLOCK_BYTES;
	out->least_free_bytes = (uint64_t)g->least_free * FG_BLOCK_BYTES;
	fg_unlock();
	return 0;
}

uint64_t fg_now(void)
{
	return fg_w ? __atomic_load_n(&fg_w->now, __ATOMIC_RELAXED) : 0;
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
