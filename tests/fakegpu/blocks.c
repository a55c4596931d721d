/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of addresses and their blocks of 2 MiB: finding, making and dropping them.
 */
#include "world.h"

#include <errno.h>

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

struct fg_block *fg_find(uint64_t addr)
{
	struct fg_range *range = fg_find_range(addr, fg_self());

	if (!range)
		return NULL;
	return fg_block_at(range->first + (int32_t)((addr - range->va) / FG_BLOCK_BYTES));
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
	    (struct fg_range){va, bytes, first, blocks, owner, .kind = (uint8_t)kind};
	for (int32_t i = 0; i < blocks; i++) {
		struct fg_block *block = fg_block_at(first + i);

		*block = (struct fg_block){
		    .va = va + (uint64_t)i * FG_BLOCK_BYTES,
		    .range = index,
		    .op = FG_NONE,
		    .preferred = FG_NONE,
		    .last_prefetch = FG_NONE,
		    .kind = (uint8_t)kind,
		};
		for (int g = 0; g < FG_MAX_GPUS; g++)
			block->frame[g] = FG_NONE;
	}
	return index;
}

void fg_range_drop(struct fg_range *range)
{
	for (int32_t i = 0; i < range->blocks; i++) {
		struct fg_block *block = fg_block_at(range->first + i);
		uint64_t when = fg_w->now;

		fg_wait_block(block, &when);
		fg_leave(block, FG_HOST);
		for (int g = 0; g < fg_w->gpus; g++)
			if (block->frame[g] != FG_NONE)
				fg_frame_give(g, block->frame[g]);
		block->resident = 0;
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
	for (int i = 0; i < FG_MAX_CAPTURES; i++)
		if (fg_w->capture[i].used && fg_w->capture[i].owner == slot)
			fg_w->capture[i].used = false;
	for (int i = 0; i < FG_MAX_STREAMS; i++)
		if (fg_w->stream[i].used && fg_w->stream[i].owner == slot)
			fg_w->stream[i].used = false;
	for (int i = 0; i < FG_MAX_EVENTS; i++)
		if (fg_w->event[i].used && fg_w->event[i].owner == slot)
			fg_w->event[i].used = false;
}
