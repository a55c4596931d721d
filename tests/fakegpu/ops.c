/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Managed residency: moves of blocks on the virtual clock, their copies, and what breaks.
 *
 * The rules, from the "CUDA Driver API" reference and the "CUDA C Programming Guide":
 *  - a block whose preferred location holds it is mapped rather than moved for the GPUs
 *    in accessed-by (cuMemAdvise)
 */
#include "world.h"

#include <string.h>

static void op_free(struct fg_op *op)
{
	op->used = false;
	fg_w->ops_used--;
	fg_block_at(op->block)->op = FG_NONE;
}

static void commit(struct fg_op *op)
{
	struct fg_block *block = fg_block_at(op->block);

	block->ready_at = op->done_at;
	if (!op->copy) {
		memcpy(fg_bytes(block, op->to), fg_bytes(block, op->from), fg_w->payload);
		block->resident |= 1u << op->to;
	}
	if (!op->copy)
		for (int where = 0; where < FG_LOCS; where++)
			if (where != op->to)
				fg_leave(block, where);
	op_free(op);
	fg_cpu_protect(block);
}

static struct fg_op *next_op(void)
{
	struct fg_op *first = NULL;

	for (int i = 0, seen = 0; seen < fg_w->ops_used; i++) {
		struct fg_op *op = &fg_w->op[i];

		if (!op->used)
			continue;
		seen++;
		if (!first || op->done_at < first->done_at)
			first = op;
	}
	return first;
}

/* The clock goes on to `upto`; moves that end by then have ended. */
void fg_settle(uint64_t upto)
{
	while (fg_w->next_done <= upto) {
		struct fg_op *op = next_op();

		if (op && op->done_at <= upto) {
			commit(op);
			op = next_op();
		}
		fg_w->next_done = op ? op->done_at : UINT64_MAX;
	}
	if (upto > fg_w->now)
		__atomic_store_n(&fg_w->now, upto, __ATOMIC_RELAXED);
}

void fg_wait_block(struct fg_block *block, uint64_t *when)
{
	if (block->op != FG_NONE)
		commit(&fg_w->op[block->op]);
	if (block->ready_at > *when)
		*when = block->ready_at;
}

/*
 * Host memory for a block is found when it comes to the host first, and stays with it
 * (measured: 512 MiB prefetched to the host take 157 ms the first time, 36 ms later).
 */
#define POPULATE_NS 474000u

uint64_t fg_populate(struct fg_block *block)
{
	bool first = !block->host_pages && block->kind == FG_MANAGED;

	block->host_pages = true;
	return first ? POPULATE_NS : 0;
}

static void populate(struct fg_block *block, int where, uint64_t *when)
{
	if (where == FG_HOST) {
		memset(fg_host_bytes(block), 0, fg_w->payload); /* as the kernel gives pages */
		*when += fg_populate(block);
	}
	block->resident = 1u << where;
}

static int op_slot(void)
{
	for (int i = 0; i < FG_MAX_OPS; i++)
		if (!fg_w->op[i].used)
			return i;
	return FG_NONE;
}

/*
 * Starts moving a block, of which `bytes` are carried; *when is when it may start and becomes
 * when it ends. The block is at `to` from that time on. 0 or a CUresult.
 */
int fg_migrate(struct fg_block *block, int to, uint64_t bytes, uint64_t *when, int stream)
{
	int owner = fg_w->range[block->range].owner, slot, from;
	struct fg_op *op;

	fg_wait_block(block, when);
	if (block->lost)
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	if (block->resident & 1u << to)
		return 0;
	if (to != FG_HOST && fg_w->gpu[to].lost)
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	if (to != FG_HOST) {
		int32_t frame;

		/* A block must not be chosen to make room for itself. */
		slot = op_slot();
		if (slot == FG_NONE)
			return CUDA_ERROR_OUT_OF_MEMORY;
		block->op = slot;
		frame = fg_frame_take(to, fg_block_index(block), owner, when);
		block->op = FG_NONE;
		if (frame == FG_NONE)
			return CUDA_ERROR_OUT_OF_MEMORY;
		block->frame[to] = frame;
		fg_w->gpu[to].stats.moved_in++;
	}
	from = fg_where(block);
	if (from == FG_NONE) {
		populate(block, to, when);
		fg_cpu_protect(block);
		return 0;
	}
	if (from != FG_HOST)
		fg_w->gpu[from].stats.moved_out++;
	slot = op_slot();
	op = &fg_w->op[slot];
	*op = (struct fg_op){
	    .used = true,
	    .block = fg_block_index(block),
	    .from = from,
	    .to = to,
	    .stream = stream,
	};
	*when = fg_transfer(from, to, bytes, *when, op->lane);
	if (to == FG_HOST)
		*when += fg_populate(block);
	op->done_at = *when;
	block->op = slot;
	fg_w->ops_used++;
	if (op->done_at < fg_w->next_done)
		fg_w->next_done = op->done_at;
	fg_cpu_protect(block);
	return 0;
}

/* A copy of bytes into a block of device memory: it may still fail until it ends. */
void fg_copy_op(struct fg_block *dest, int from, int to, uint64_t bytes, uint64_t *when, int stream)
{
	int32_t lanes[2];
	int slot = op_slot();

	*when = fg_transfer(from, to, bytes, *when, lanes);
	if (slot == FG_NONE)
		return;
	fg_w->op[slot] = (struct fg_op){
	    .used = true,
	    .block = fg_block_index(dest),
	    .from = from,
	    .to = to,
	    .stream = stream,
	    .lane = {lanes[0], lanes[1]},
	    .copy = true,
	    .done_at = *when,
	};
	dest->op = slot;
	fg_w->ops_used++;
	if (*when < fg_w->next_done)
		fg_w->next_done = *when;
}

/* What was under way on a lane that breaks: half of it arrived, and it stays where it was. */
void fg_fail_lane(int32_t lane, int error)
{
	for (int i = 0; i < FG_MAX_OPS; i++) {
		struct fg_op *op = &fg_w->op[i];
		struct fg_block *block = fg_block_at(op->block);

		if (!op->used || (op->lane[0] != lane && op->lane[1] != lane))
			continue;
		if (op->copy) {
			memset(fg_bytes(block, op->to) + fg_w->payload / 2, FG_POISON,
			       fg_w->payload / 2);
		} else if (op->to != FG_HOST) {
			memcpy(fg_bytes(block, op->to), fg_bytes(block, op->from),
			       fg_w->payload / 2);
			fg_leave_behind(block, op->to);
			fg_w->gpu[op->to].stats.failed_ops++;
		}
		if (op->stream != FG_NONE)
			fg_w->stream[op->stream].error = error;
		block->ready_at = fg_w->now;
		op_free(op);
		fg_cpu_protect(block);
	}
}

void fg_lose_blocks(int gpu)
{
	int32_t end = fg_w->gpu[gpu].first_frame + fg_w->gpu[gpu].frames;

	for (int i = 0; i < FG_MAX_LANES; i++) {
		int32_t lanes[2];
		bool own = false;

		for (int other = 0; other < FG_LOCS && !own; other++) {
			if (other == gpu || (other != FG_HOST && other >= fg_w->gpus))
				continue;
			fg_lanes(gpu, other, lanes);
			own |= lanes[0] == i || lanes[1] == i;
			fg_lanes(other, gpu, lanes);
			own |= lanes[0] == i || lanes[1] == i;
		}
		if (own)
			fg_fail_lane(i, CUDA_ERROR_DEVICE_UNAVAILABLE);
	}
	for (int32_t frame = fg_w->gpu[gpu].first_frame; frame < end; frame++) {
		int32_t index = fg_frame_at(frame)->block;
		struct fg_block *block;

		if (index == FG_NONE)
			continue;
		block = fg_block_at(index);
		memset(fg_frame_bytes(frame), FG_POISON, fg_w->payload);
		if (fg_frame_at(frame)->on == FG_ON_UNUSED)
			continue; /* the block is somewhere else */
		fg_leave(block, gpu);
		if (!block->resident)
			block->lost = true;
		fg_cpu_protect(block);
	}
}
