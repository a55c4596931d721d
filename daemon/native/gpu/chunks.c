/* SPDX-License-Identifier: Apache-2.0 */
/* The chunk table: ranges by address, chunks by number, how many are where. */
#include "client.h"

#include <errno.h>
#include <string.h>

uint32_t tg_index(const struct tg_client *c, const struct tg_chunk *chunk)
{
	return (uint32_t)(chunk - c->chunk);
}

/* The first range that ends after `addr`. */
static uint32_t lower(const struct tg_client *c, uint64_t addr)
{
	uint32_t low = 0, high = c->ranges;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (c->range[middle].addr + c->range[middle].bytes <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct tg_range *tg_range_at(struct tg_client *c, uint64_t addr)
{
	uint32_t at = lower(c, addr);

	return at < c->ranges && c->range[at].addr <= addr ? &c->range[at] : NULL;
}

static bool free_run(const struct tg_client *c, uint32_t count, uint32_t *first)
{
	uint32_t run = 0;

	for (uint32_t i = 0; i < c->max_chunks; i++) {
		run = c->chunk[i].state == TG_FREE ? run + 1 : 0;
		if (run == count) {
			*first = i - count + 1;
			return true;
		}
	}
	return false;
}

int tg_range_add(struct tg_client *c, uint64_t addr, size_t bytes, bool owned)
{
	uint32_t count = (uint32_t)(bytes / TG_CHUNK_BYTES), at = lower(c, addr), first;

	if (!count || addr % TG_CHUNK_BYTES)
		return -EINVAL;
	if (at < c->ranges && c->range[at].addr < addr + bytes)
		return -EEXIST;
	if (c->ranges == TG_MAX_RANGES || !free_run(c, count, &first)) {
		c->stats.ranges_untracked++;
		return -ENOSPC;
	}
	pthread_rwlock_wrlock(&c->ranges_lock);
	memmove(&c->range[at + 1], &c->range[at], (c->ranges - at) * sizeof(c->range[0]));
	c->ranges++;
	c->range[at] = (struct tg_range){
	    .addr = addr,
	    .bytes = (uint64_t)count * TG_CHUNK_BYTES,
	    .first = first,
	    .count = count,
	    .owned = owned,
	};
	pthread_rwlock_unlock(&c->ranges_lock);
	for (uint32_t i = 0; i < count; i++)
		c->chunk[first + i] = (struct tg_chunk){
		    .addr = addr + (uint64_t)i * TG_CHUNK_BYTES,
		    .location = TG_NO_PLACE,
		    .state = TG_IDLE,
		};
	c->stats.chunks += count;
	c->stats.ranges++;
	tg_report_change(c, first, count, true);
	return 0;
}

void tg_range_remove(struct tg_client *c, struct tg_range *range)
{
	uint32_t at = (uint32_t)(range - c->range);

	for (uint32_t i = 0; i < range->count; i++) {
		struct tg_chunk *chunk = &c->chunk[range->first + i];

		tg_settle_chunk(c, chunk);
		tg_set_location(c, chunk, TG_NO_PLACE);
		chunk->state = TG_FREE;
	}
	c->stats.chunks -= range->count;
	c->stats.ranges--;
	tg_report_change(c, range->first, range->count, false);
	pthread_rwlock_wrlock(&c->ranges_lock);
	memmove(range, range + 1, (c->ranges - at - 1) * sizeof(*range));
	c->ranges--;
	pthread_rwlock_unlock(&c->ranges_lock);
}

void tg_set_location(struct tg_client *c, struct tg_chunk *chunk, int where)
{
	if (chunk->location != TG_NO_PLACE)
		c->here[tg_place(chunk->location)]--;
	if (where != TG_NO_PLACE)
		c->here[tg_place(where)]++;
	chunk->location = (int16_t)where;
}
