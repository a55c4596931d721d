// SPDX-License-Identifier: GPL-2.0-only
/*
 * Access histories: one byte a page, bit 7 for the last scan, kept in chunks of one page
 * table (656 bytes for 2 MiB). The memory of all chunks is bounded.
 */
#include "tierd.h"

#include <linux/mm.h>
#include <linux/slab.h>

#define HISTORY_LEAST (64ul << 20)

static struct kmem_cache *tierd_chunk_cache;
static atomic_long_t tierd_chunks;

/**
 * tierd_history_init() - prepare for histories
 *
 * Return: 0 or a negative errno.
 */
int tierd_history_init(void)
{
	tierd_chunk_cache =
		kmem_cache_create("tierd_chunk", sizeof(struct tierd_chunk), 0, 0, NULL);
	return tierd_chunk_cache ? 0 : -ENOMEM;
}

/**
 * tierd_history_exit() - undo tierd_history_init()
 */
void tierd_history_exit(void)
{
	kmem_cache_destroy(tierd_chunk_cache);
}

static void tierd_chunk_free(struct tierd_target *target, struct tierd_chunk *chunk)
{
	kmem_cache_free(tierd_chunk_cache, chunk);
	target->chunks--;
	target->stats.history_bytes = target->chunks * sizeof(*chunk);
	WRITE_ONCE(tierd_stats.history_bytes,
		   atomic_long_dec_return(&tierd_chunks) * sizeof(*chunk));
}

/*
 * What all histories may take: as told, or as much as all of the host's memory needs when it is
 * mapped, and a quarter more for tables that are not full.
 */
static unsigned long tierd_history_bytes_limit(void)
{
	unsigned long told = READ_ONCE(tierd_history_limit);
	unsigned long tables = totalram_pages() / TIERD_TABLE_PAGES;

	return told ?: max(HISTORY_LEAST, tables / 4 * 5 * sizeof(struct tierd_chunk));
}

/**
 * tierd_history_get() - the histories of the table at an address
 * @target: the target
 * @addr: an address that the table maps
 *
 * They are marked as met in this round, and made if there are none.
 *
 * Return: The chunk, NULL without memory.
 */
struct tierd_chunk *tierd_history_get(struct tierd_target *target, unsigned long addr)
{
	unsigned long index = addr >> PMD_SHIFT;
	struct tierd_chunk *chunk = xa_load(&target->history, index);
	u32 round = (u32)target->stats.rounds + 1;

	if (!chunk) {
		if ((atomic_long_read(&tierd_chunks) + 1) * sizeof(*chunk) >
		    tierd_history_bytes_limit())
			goto full;
		/*
		 * The process waits for the mmap lock that is held here, so reclaim is not waited
		 * for: the next scan tries again.
		 */
		chunk = kmem_cache_zalloc(tierd_chunk_cache, GFP_NOWAIT | __GFP_NOWARN);
		if (!chunk)
			goto full;
		if (xa_err(xa_store(&target->history, index, chunk, GFP_NOWAIT | __GFP_NOWARN))) {
			kmem_cache_free(tierd_chunk_cache, chunk);
			goto full;
		}
		chunk->first_scan = true;
		target->chunks++;
		target->stats.history_bytes = target->chunks * sizeof(*chunk);
		WRITE_ONCE(tierd_stats.history_bytes,
			   atomic_long_inc_return(&tierd_chunks) * sizeof(*chunk));
	}
	if (chunk->round != round) {
		if (chunk->round)
			chunk->first_scan = false;
		chunk->round = round;
		target->chunks_seen++;
	}
	return chunk;
full:
	pr_warn_once(
		"tierd: no memory for access histories (history_bytes): some pages are not looked at\n");
	tierd_stats.history_full++;
	return NULL;
}

/**
 * tierd_history_sweep() - forget the tables that were not met in a round
 * @target: the target
 *
 * At its end.
 */
void tierd_history_sweep(struct tierd_target *target)
{
	u32 round = (u32)target->stats.rounds + 1;
	struct tierd_chunk *chunk;
	unsigned long index;

	if (target->chunks_seen < target->chunks) {
		xa_for_each(&target->history, index, chunk) {
			if (chunk->round == round)
				continue;
			xa_erase(&target->history, index);
			tierd_chunk_free(target, chunk);
		}
	}
	target->chunks_seen = 0;
}

/**
 * tierd_history_clear() - forget all tables
 * @target: the target
 */
void tierd_history_clear(struct tierd_target *target)
{
	struct tierd_chunk *chunk;
	unsigned long index;

	xa_for_each(&target->history, index, chunk) {
		xa_erase(&target->history, index);
		tierd_chunk_free(target, chunk);
	}
	target->chunks_seen = 0;
}

/**
 * tierd_history_reset() - forget the histories, but not which tables were scanned before
 * @target: the target
 */
void tierd_history_reset(struct tierd_target *target)
{
	struct tierd_chunk *chunk;
	unsigned long index;

	xa_for_each(&target->history, index, chunk) {
		memset(chunk->history, 0, sizeof(chunk->history));
		bitmap_zero(chunk->hot, TIERD_TABLE_PAGES);
	}
}

/**
 * tierd_history_as_pmd() - a table was collapsed
 * @chunk: the table's histories
 *
 * The whole was touched whenever one of its pages was.
 */
void tierd_history_as_pmd(struct tierd_chunk *chunk)
{
	unsigned int i;

	if (chunk->pmd)
		return;
	for (i = 1; i < TIERD_TABLE_PAGES; i++)
		chunk->history[0] |= chunk->history[i];
	if (!bitmap_empty(chunk->hot, TIERD_TABLE_PAGES))
		__set_bit(0, chunk->hot);
	bitmap_zero(chunk->marked, TIERD_TABLE_PAGES);
	chunk->pmd = true;
}

/**
 * tierd_history_as_pages() - a huge page was split
 * @chunk: the table's histories
 *
 * What is known of the whole is all that is known of its parts.
 */
void tierd_history_as_pages(struct tierd_chunk *chunk)
{
	if (!chunk->pmd)
		return;
	memset(chunk->history, chunk->history[0], sizeof(chunk->history));
	if (test_bit(0, chunk->hot))
		bitmap_fill(chunk->hot, TIERD_TABLE_PAGES);
	else
		bitmap_zero(chunk->hot, TIERD_TABLE_PAGES);
	bitmap_zero(chunk->marked, TIERD_TABLE_PAGES);
	chunk->pmd = false;
}
