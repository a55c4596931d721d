/* SPDX-License-Identifier: Apache-2.0 */
/* What a program says of its use of memory: acquire, release, hints. */
#include "client.h"

#include <errno.h>

static void acquire_chunk(struct tg_client *c, struct tg_chunk *chunk, uint32_t bytes)
{
	if (chunk->state == TG_QUEUED)
		tg_settle_chunk(c, chunk);
	chunk->pins++;
	tg_report_use(c, tg_index(c, chunk), bytes);
	if (chunk->in_place)
		return;
	if (chunk->state == TG_MOVING) {
		chunk->touched = true;
	} else if (chunk->location != tg_home(c)) {
		/* The kernel's faults will bring it home. */
		tg_set_location(c, chunk, tg_home(c));
		tg_report_state(c, tg_index(c, chunk), NULL, 0);
	}
}

static void release_chunk(struct tg_client *c, struct tg_chunk *chunk, uint32_t bytes)
{
	(void)c;
	(void)bytes;
	if (chunk->pins)
		chunk->pins--;
}

static void used_chunk(struct tg_client *c, struct tg_chunk *chunk, uint32_t bytes)
{
	acquire_chunk(c, chunk, bytes);
	release_chunk(c, chunk, bytes);
}

static void want(struct tg_client *c, struct tg_chunk *chunk, int where)
{
	struct tgw_move move = {.chunk = tg_index(c, chunk), .dest = (int16_t)where};

	if (chunk->state == TG_IDLE && chunk->location != TG_NO_PLACE && chunk->location != where)
		tg_queue(c, &move);
}

static void will_need(struct tg_client *c, struct tg_chunk *chunk, uint32_t bytes)
{
	(void)bytes;
	want(c, chunk, tg_home(c));
}

static void dont_need(struct tg_client *c, struct tg_chunk *chunk, uint32_t bytes)
{
	(void)bytes;
	want(c, chunk, TG_HOST);
}

/* Calls `act` on every chunk that [addr, addr + bytes) touches, with the bytes it does. */
static int each_chunk(struct tg_client *c, uint64_t addr, size_t bytes,
		      void (*act)(struct tg_client *, struct tg_chunk *, uint32_t))
{
	uint64_t end = addr + bytes;
	int ret = 0;

	if (!bytes || end < addr)
		return -EINVAL;
	pthread_mutex_lock(&c->lock);
	while (addr < end) {
		struct tg_range *range = tg_range_at(c, addr);
		uint64_t next = (addr / TG_CHUNK_BYTES + 1) * TG_CHUNK_BYTES;

		if (!range) {
			ret = -ENOENT;
			break;
		}
		next = next < end ? next : end;
		act(c, &c->chunk[range->first + (addr - range->addr) / TG_CHUNK_BYTES],
		    (uint32_t)(next - addr));
		addr = next;
	}
	pthread_mutex_unlock(&c->lock);
	return ret;
}

int tg_acquire(struct tg_client *c, uint64_t addr, size_t bytes)
{
	return each_chunk(c, addr, bytes, acquire_chunk);
}

int tg_release(struct tg_client *c, uint64_t addr, size_t bytes)
{
	return each_chunk(c, addr, bytes, release_chunk);
}

void tg_used(struct tg_client *c, uint64_t addr, uint64_t bytes)
{
	each_chunk(c, addr, bytes, used_chunk);
}

int tg_hint(struct tg_client *c, uint64_t addr, size_t bytes, int hint)
{
	switch (hint) {
	case TG_WILLNEED:
		return each_chunk(c, addr, bytes, will_need);
	case TG_DONTNEED:
		return each_chunk(c, addr, bytes, dont_need);
	default:
		return -EINVAL;
	}
}
