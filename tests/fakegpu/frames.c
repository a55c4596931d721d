/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of GPU memory: taking and giving them, and the driver's own eviction.
 *
 * The rule, from the "CUDA Driver API" reference (cuMemPrefetchAsync): a prefetch to a GPU
 * without room evicts managed blocks, of anybody, to the host; memory from cuMemAlloc is
 * never evicted. Victims are those that came longest ago: the driver does not see hits.
 */
#include "world.h"

#include <string.h>

static void lru_unlink(struct fg_gpu *gpu, int32_t frame)
{
	struct fg_frame *f = fg_frame_at(frame);

	if (f->prev != FG_NONE)
		fg_frame_at(f->prev)->next = f->next;
	else if (gpu->lru_head == frame)
		gpu->lru_head = f->next;
	if (f->next != FG_NONE)
		fg_frame_at(f->next)->prev = f->prev;
	else if (gpu->lru_tail == frame)
		gpu->lru_tail = f->prev;
	f->prev = f->next = FG_NONE;
}

static void lru_append(struct fg_gpu *gpu, int32_t frame)
{
	struct fg_frame *f = fg_frame_at(frame);

	f->prev = gpu->lru_tail;
	f->next = FG_NONE;
	if (gpu->lru_tail != FG_NONE)
		fg_frame_at(gpu->lru_tail)->next = frame;
	else
		gpu->lru_head = frame;
	gpu->lru_tail = frame;
}

void fg_frame_give(int g, int32_t frame)
{
	struct fg_gpu *gpu = &fg_w->gpu[g];
	struct fg_frame *f = fg_frame_at(frame);

	if (fg_block_at(f->block)->kind == FG_MANAGED)
		lru_unlink(gpu, frame);
	f->block = FG_NONE;
	f->prev = FG_NONE;
	f->next = gpu->free_head;
	gpu->free_head = frame;
	gpu->free_frames++;
}

void fg_leave(struct fg_block *block, int where)
{
	if (!(block->resident & 1u << where))
		return;
	block->resident &= ~(1u << where);
	if (where == FG_HOST) {
		memset(fg_host_bytes(block), FG_POISON, fg_w->payload);
	} else {
		fg_frame_give(where, block->frame[where]);
		block->frame[where] = FG_NONE;
	}
}

uint8_t *fg_bytes(struct fg_block *block, int where)
{
	return where == FG_HOST ? fg_host_bytes(block) : fg_frame_bytes(block->frame[where]);
}

int fg_nearest(const struct fg_block *block, int to)
{
	int best = FG_NONE;
	double widest = 0.0;

	for (int from = 0; from < FG_LOCS; from++) {
		if (!(block->resident & 1u << from))
			continue;
		if (from == to)
			return from;
		if (fg_bandwidth(from, to) > widest) {
			widest = fg_bandwidth(from, to);
			best = from;
		}
	}
	return best;
}

/* The managed block that came first and is not under way; if all are, the first is waited for. */
static struct fg_block *victim(struct fg_gpu *gpu, uint64_t *when)
{
	struct fg_block *moving = NULL;

	for (int32_t f = gpu->lru_head; f != FG_NONE; f = fg_frame_at(f)->next) {
		struct fg_block *block = fg_block_at(fg_frame_at(f)->block);

		if (block->op == FG_NONE)
			return block;
		if (!moving && fg_w->op[block->op].used)
			moving = block;
	}
	if (moving)
		fg_wait_block(moving, when);
	return moving;
}

/* The driver makes room: one managed block goes to the host. */
static bool evict_one(int g, int owner, uint64_t *when)
{
	struct fg_gpu *gpu = &fg_w->gpu[g];
	struct fg_block *block = victim(gpu, when);
	int32_t lanes[2];

	if (!block)
		return false;
	if (!(block->resident & 1u << g))
		return true; /* it was on its way out */
	if (block->resident & 1u << FG_HOST) {
		gpu->stats.evict_free++;
	} else {
		*when = fg_transfer(g, FG_HOST, FG_BLOCK_BYTES, *when, lanes);
		memcpy(fg_host_bytes(block), fg_bytes(block, g), fg_w->payload);
		block->resident |= 1u << FG_HOST;
		gpu->stats.evict_copies++;
	}
	if (fg_w->range[block->range].owner == owner)
		gpu->stats.evicted_self++;
	else
		gpu->stats.evicted_of_others++;
	fg_leave(block, g);
	if (block->ready_at < *when)
		block->ready_at = *when;
	fg_cpu_protect(block);
	return true;
}

int32_t fg_frame_take(int g, int32_t index, int owner, uint64_t *when)
{
	struct fg_gpu *gpu = &fg_w->gpu[g];
	struct fg_frame *f;
	int32_t frame;

	if (gpu->lost)
		return FG_NONE;
	if (gpu->free_head == FG_NONE)
		fg_reap();
	while (gpu->free_head == FG_NONE) {
		if (!evict_one(g, owner, when)) {
			gpu->stats.alloc_failures++;
			return FG_NONE;
		}
	}
	frame = gpu->free_head;
	f = fg_frame_at(frame);
	gpu->free_head = f->next;
	if (--gpu->free_frames < gpu->least_free)
		gpu->least_free = gpu->free_frames;
	if (fg_w->scrub == FG_SCRUB_OWNER && f->last_owner != fg_w->tenant[owner].serial)
		memset(fg_frame_bytes(frame), 0, fg_w->payload);
	f->last_owner = fg_w->tenant[owner].serial;
	f->block = index;
	f->prev = f->next = FG_NONE;
	if (fg_block_at(index)->kind == FG_MANAGED)
		lru_append(gpu, frame);
	return frame;
}
