/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of GPU memory: taking and giving them, and the driver's own eviction.
 *
 * From the "CUDA Driver API" reference (cuMemPrefetchAsync): a prefetch to a GPU without
 * space evicts managed blocks, of anybody, to the host; memory from cuMemAlloc is never
 * evicted. The rest is how nvidia-uvm does it (open-gpu-kernel-modules, kernel-open/
 * nvidia-uvm), and was measured on an H100 with driver 580:
 *
 *  - a block that leaves a GPU keeps its memory there, marked unused (uvm_va_block.c,
 *    block_clear_resident_processor), and has it again when it comes back; the memory is
 *    free when the range is freed. Until then cuMemGetInfo and NVML count it as used
 *  - managed memory is taken from the GPU in batches of 64 root chunks of 2 MiB
 *    (uvm_pmm_gpu.c, alloc_root_chunk); what is not needed yet counts as used
 *  - without free memory, what goes first is what was taken ahead, then the unused, then
 *    blocks that came longest ago: the driver does not see hits (pick_root_chunk_to_evict)
 */
#include "world.h"

#include <string.h>

static void list_remove(int g, int32_t frame)
{
	struct fg_frame *f = fg_frame_at(frame);
	struct fg_list *list = &fg_w->gpu[g].list[f->on];

	if (f->prev != FG_NONE)
		fg_frame_at(f->prev)->next = f->next;
	else
		list->head = f->next;
	if (f->next != FG_NONE)
		fg_frame_at(f->next)->prev = f->prev;
	else
		list->tail = f->prev;
	f->prev = f->next = FG_NONE;
	f->on = FG_ON_NONE;
	list->count--;
}

void fg_list_append(int g, int32_t frame, enum fg_list_name name)
{
	struct fg_frame *f = fg_frame_at(frame);
	struct fg_list *list = &fg_w->gpu[g].list[name];

	f->on = (uint8_t)name;
	f->prev = list->tail;
	f->next = FG_NONE;
	if (list->tail != FG_NONE)
		fg_frame_at(list->tail)->next = frame;
	else
		list->head = frame;
	list->tail = frame;
	list->count++;
}

static int32_t list_take(int g, enum fg_list_name name)
{
	int32_t frame = fg_w->gpu[g].list[name].head;

	if (frame != FG_NONE)
		list_remove(g, frame);
	return frame;
}

int fg_room(int g)
{
	const struct fg_list *list = fg_w->gpu[g].list;

	return list[FG_ON_FREE].count + list[FG_ON_SPARE].count + list[FG_ON_UNUSED].count;
}

/* The frame is nobody's; a block that had left it behind has nothing there any more. */
void fg_frame_give(int g, int32_t frame)
{
	struct fg_frame *f = fg_frame_at(frame);

	if (f->on != FG_ON_NONE)
		list_remove(g, frame);
	else
		fg_w->tenant[fg_w->range[fg_block_at(f->block)->range].owner].plain[g]--;
	fg_block_at(f->block)->frame[g] = FG_NONE;
	f->block = FG_NONE;
	fg_list_append(g, frame, FG_ON_FREE);
}

void fg_leave_behind(struct fg_block *block, int g)
{
	memset(fg_frame_bytes(block->frame[g]), FG_POISON, fg_w->payload);
	list_remove(g, block->frame[g]);
	fg_list_append(g, block->frame[g], FG_ON_UNUSED);
}

void fg_leave(struct fg_block *block, int where)
{
	if (!(block->resident & 1u << where))
		return;
	block->resident &= ~(1u << where);
	if (where == FG_HOST)
		memset(fg_host_bytes(block), FG_POISON, fg_w->payload);
	else if (block->kind == FG_MANAGED)
		fg_leave_behind(block, where);
	else
		fg_frame_give(where, block->frame[where]);
}

uint8_t *fg_bytes(struct fg_block *block, int where)
{
	return where == FG_HOST ? fg_host_bytes(block) : fg_frame_bytes(block->frame[where]);
}

int fg_where(const struct fg_block *block)
{
	return block->resident ? __builtin_ctz(block->resident) : FG_NONE;
}

/* The managed block that came first and is not under way; if all are, the first is waited for. */
static struct fg_block *victim(struct fg_gpu *gpu, uint64_t *when)
{
	struct fg_block *moving = NULL;

	for (int32_t f = gpu->list[FG_ON_USED].head; f != FG_NONE; f = fg_frame_at(f)->next) {
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

/* The driver makes space: one managed block goes to the host, and its frame is nobody's. */
static bool evict_one(int g, int owner, uint64_t *when)
{
	struct fg_gpu *gpu = &fg_w->gpu[g];
	struct fg_block *block = victim(gpu, when);
	int32_t lanes[2];

	if (!block)
		return false;
	if (!(block->resident & 1u << g))
		return true; /* it was on its way out */
	*when = fg_transfer(g, FG_HOST, FG_BLOCK_BYTES, *when, lanes) + fg_populate(block);
	memcpy(fg_host_bytes(block), fg_bytes(block, g), fg_w->payload);
	block->resident |= 1u << FG_HOST;
	gpu->stats.evict_copies++;
	if (fg_w->range[block->range].owner == owner)
		gpu->stats.evicted_self++;
	else
		gpu->stats.evicted_of_others++;
	fg_leave(block, g);
	fg_frame_give(g, block->frame[g]);
	if (block->ready_at < *when)
		block->ready_at = *when;
	fg_cpu_protect(block);
	return true;
}

/* A frame for managed memory: taken ahead, or with more that are taken ahead now. */
static int32_t take_managed(int g)
{
	int32_t frame = list_take(g, FG_ON_SPARE);

	if (frame != FG_NONE)
		return frame;
	frame = list_take(g, FG_ON_FREE);
	for (uint32_t i = 1; frame != FG_NONE && i < fg_w->batch; i++) {
		int32_t more = list_take(g, FG_ON_FREE);

		if (more == FG_NONE)
			break;
		fg_list_append(g, more, FG_ON_SPARE);
	}
	return frame;
}

static int32_t take_any(int g, bool managed)
{
	int32_t frame = managed ? take_managed(g) : list_take(g, FG_ON_FREE);

	if (frame == FG_NONE)
		frame = list_take(g, FG_ON_SPARE);
	if (frame == FG_NONE && fg_w->gpu[g].list[FG_ON_UNUSED].head != FG_NONE) {
		fg_frame_give(g, fg_w->gpu[g].list[FG_ON_UNUSED].head);
		frame = list_take(g, FG_ON_FREE);
	}
	return frame;
}

/* The frame that the block left behind on the GPU is its own again. */
static bool take_again(int g, const struct fg_block *block)
{
	int32_t frame = block->frame[g];

	if (frame == FG_NONE || fg_frame_at(frame)->on != FG_ON_UNUSED)
		return false;
	list_remove(g, frame);
	return true;
}

int32_t fg_frame_take(int g, int32_t index, int owner, uint64_t *when)
{
	struct fg_gpu *gpu = &fg_w->gpu[g];
	struct fg_block *block = fg_block_at(index);
	bool managed = block->kind == FG_MANAGED;
	struct fg_frame *f;
	int32_t frame;

	if (gpu->lost)
		return FG_NONE;
	if (managed && take_again(g, block)) {
		frame = block->frame[g];
	} else {
		if (!gpu->list[FG_ON_FREE].count)
			fg_reap();
		while ((frame = take_any(g, managed)) == FG_NONE)
			if (!evict_one(g, owner, when)) {
				gpu->stats.alloc_failures++;
				return FG_NONE;
			}
	}
	f = fg_frame_at(frame);
	if (fg_room(g) < gpu->least_room)
		gpu->least_room = fg_room(g);
	if (fg_w->scrub == FG_SCRUB_OWNER && f->last_owner != fg_w->tenant[owner].serial)
		memset(fg_frame_bytes(frame), 0, fg_w->payload);
	f->last_owner = fg_w->tenant[owner].serial;
	f->block = index;
	if (managed)
		fg_list_append(g, frame, FG_ON_USED);
	else
		fg_w->tenant[owner].plain[g]++;
	return frame;
}
