/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Managed residency in blocks of 2 MiB, and the driver's own eviction.
 *
 * The rules, from the "CUDA Driver API" reference and the "CUDA C Programming Guide":
 *  - a prefetch to a GPU without room evicts managed blocks, of anybody, to the host;
 *    memory from cuMemAlloc is never evicted (cuMemPrefetchAsync)
 *  - with read-mostly set, reads and prefetches add copies, a write leaves only the one
 *    where it happened; unsetting keeps one copy, at the preferred location if one is
 *    there (cuMemAdvise)
 *  - a block whose preferred location holds it is mapped rather than moved for the GPUs
 *    in accessed-by (cuMemAdvise)
 * Victims are those that came longest ago: the driver does not see hits.
 */
#include "world.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define POISON 0xd5

struct fg_range *fg_find_range(uint64_t addr, int owner)
{
	static _Thread_local int last;

	for (int i = -1; i < FG_MAX_RANGES; i++) {
		struct fg_range *range = &fg_w->range[i < 0 ? last : i];

		if (range->kind == FG_FREE || range->owner != owner || addr < range->va ||
		    addr >= range->va + (uint64_t)range->blocks * FG_BLOCK_BYTES)
			continue;
		last = (int)(range - fg_w->range);
		return range;
	}
	return NULL;
}

struct fg_block *fg_slot(uint64_t addr)
{
	struct fg_range *range = fg_find_range(addr, fg_self());

	if (!range)
		return NULL;
	return fg_block_at(range->first + (int32_t)((addr - range->va) / FG_BLOCK_BYTES));
}

struct fg_block *fg_find(uint64_t addr)
{
	struct fg_block *block = fg_slot(addr);

	if (!block || block->kind == FG_RESERVED)
		return NULL;
	return block->kind == FG_MAPPED ? fg_block_at(block->target) : block;
}

static int32_t free_run(int32_t blocks)
{
	int32_t run = 0;

	for (int32_t i = 0; i < (int32_t)fg_w->max_blocks; i++) {
		run = fg_block_at(i)->kind == FG_FREE ? run + 1 : 0;
		if (run == blocks)
			return i - blocks + 1;
	}
	return FG_NONE;
}

int fg_range_new(uint64_t va, uint64_t bytes, int owner, enum fg_kind kind)
{
	int32_t blocks = (int32_t)((bytes + FG_BLOCK_BYTES - 1) / FG_BLOCK_BYTES);
	int32_t first = free_run(blocks);
	int index = 0;

	while (index < FG_MAX_RANGES && fg_w->range[index].kind != FG_FREE)
		index++;
	if (first == FG_NONE || index == FG_MAX_RANGES)
		return -ENOSPC;
	fg_w->range[index] =
	    (struct fg_range){va, bytes, first, blocks, owner, .refs = 1, .kind = (uint8_t)kind};
	for (int32_t i = 0; i < blocks; i++) {
		struct fg_block *block = fg_block_at(first + i);

		*block = (struct fg_block){
		    .va = va + (uint64_t)i * FG_BLOCK_BYTES,
		    .range = index,
		    .op = FG_NONE,
		    .target = FG_NONE,
		    .preferred = FG_NONE,
		    .last_prefetch = FG_NONE,
		    .kind = (uint8_t)kind,
		};
		for (int g = 0; g < FG_MAX_GPUS; g++)
			block->frame[g] = FG_NONE;
	}
	return index;
}

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
		memset(fg_host_bytes(block), POISON, fg_w->payload);
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

/* The driver makes room: the managed block that came first goes to the host. */
static bool evict_one(int g, int owner, uint64_t *when)
{
	struct fg_gpu *gpu = &fg_w->gpu[g];
	struct fg_block *block = NULL;
	int32_t lanes[2], frame;

	for (frame = gpu->lru_head; frame != FG_NONE; frame = fg_frame_at(frame)->next) {
		block = fg_block_at(fg_frame_at(frame)->block);
		if (block->op == FG_NONE)
			break;
	}
	if (frame == FG_NONE)
		return false;
	if (block->resident & 1u << FG_HOST) {
		gpu->stats.evict_free++;
	} else {
		*when = fg_transfer(g, FG_HOST, FG_BLOCK_BYTES, *when, lanes);
		memcpy(fg_host_bytes(block), fg_frame_bytes(frame), fg_w->payload);
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
	if (!op->duplicate && !op->copy)
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

static void populate(struct fg_block *block, int where)
{
	if (where == FG_HOST)
		memset(fg_host_bytes(block), 0, fg_w->payload); /* as the kernel gives pages */
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
 * Starts moving (or, read-mostly, copying) a block; *when is when it may start and
 * becomes when it ends. The block is at `to` from that time on. 0 or a CUresult.
 */
int fg_migrate(struct fg_block *block, int to, uint64_t *when, int stream)
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
	from = fg_nearest(block, to);
	if (from == FG_NONE) {
		populate(block, to);
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
	    .duplicate = block->read_mostly,
	};
	*when = op->done_at = fg_transfer(from, to, FG_BLOCK_BYTES, *when, op->lane);
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

/* A write at `where`, which holds the block: the other copies go. */
int fg_make_writable(struct fg_block *block, int where)
{
	int dropped = 0;

	for (int other = 0; other < FG_LOCS; other++)
		if (other != where && block->resident & 1u << other) {
			fg_leave(block, other);
			dropped++;
		}
	fg_cpu_protect(block);
	return dropped;
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
			memset(fg_bytes(block, op->to) + fg_w->payload / 2, POISON,
			       fg_w->payload / 2);
		} else if (op->to != FG_HOST) {
			memcpy(fg_bytes(block, op->to), fg_bytes(block, op->from),
			       fg_w->payload / 2);
			fg_frame_give(op->to, block->frame[op->to]);
			block->frame[op->to] = FG_NONE;
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
		memset(fg_frame_bytes(frame), POISON, fg_w->payload);
		fg_leave(block, gpu);
		if (!block->resident)
			block->lost = true;
		fg_cpu_protect(block);
	}
}

void fg_range_drop(struct fg_range *range)
{
	for (int32_t i = 0; i < range->blocks; i++) {
		struct fg_block *block = fg_block_at(range->first + i);
		uint64_t when = fg_w->now;

		fg_wait_block(block, &when);
		for (int where = 0; where < FG_LOCS; where++)
			fg_leave(block, where);
		block->kind = FG_FREE;
	}
	range->kind = FG_FREE;
}

void fg_reap_tenant(int slot)
{
	for (int i = 0; i < FG_MAX_RANGES; i++) {
		struct fg_range *range = &fg_w->range[i];

		if (range->kind != FG_FREE && range->owner == slot)
			fg_range_drop(range);
	}
	for (int i = 0; i < FG_MAX_STREAMS; i++)
		if (fg_w->stream[i].used && fg_w->stream[i].owner == slot)
			fg_w->stream[i].used = false;
	for (int i = 0; i < FG_MAX_EVENTS; i++)
		if (fg_w->event[i].used && fg_w->event[i].owner == slot)
			fg_w->event[i].used = false;
}
