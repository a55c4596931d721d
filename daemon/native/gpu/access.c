/* SPDX-License-Identifier: Apache-2.0 */
/* What a program says of its use of memory: acquire, release, hints. */
#include "client.h"

#include <errno.h>

/* Of the copies that a use left behind, the one at home stays. */
void tg_gather(struct tg_client *c, struct tg_chunk *chunk)
{
	chunk->astray = false;
	if (chunk->read_mostly)
		tg_keep_only(c, chunk, c->options.device);
}

static void acquire_chunk(struct tg_client *c, struct tg_chunk *chunk, uint32_t bytes, bool write)
{
	if (chunk->state == TG_QUEUED)
		tg_settle_chunk(c, chunk);
	chunk->pins++;
	tg_report_use(c, tg_index(c, chunk), bytes, write);
	if (chunk->in_place)
		return;
	if (chunk->state == TG_MOVING) {
		chunk->touched = true;
		return;
	}
	if (chunk->location == c->options.device) {
		if (!write || !chunk->read_mostly)
			return;
		tg_keep_only(c, chunk, chunk->location); /* cheaper than a fault on the write */
		tg_report_state(c, tg_index(c, chunk), NULL, 0);
		return;
	}
	/*
	 * The kernel's faults will bring it home. What else has a copy keeps it until the
	 * release: until the kernel has its own, one of them may be the only one.
	 */
	chunk->astray = chunk->read_mostly && (write || chunk->location != TG_HOST);
	chunk->host_copy = chunk->read_mostly && !chunk->astray;
	tg_set_location(c, chunk, c->options.device);
	tg_report_state(c, tg_index(c, chunk), NULL, 0);
}

/* Calls `act` on every chunk that [addr, addr + bytes) touches, with the bytes it does. */
static int each_chunk(struct tg_client *c, uint64_t addr, size_t bytes,
		      void (*act)(struct tg_client *, struct tg_chunk *, uint32_t, bool),
		      bool write)
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
		    (uint32_t)(next - addr), write);
		addr = next;
	}
	pthread_mutex_unlock(&c->lock);
	return ret;
}

int tg_acquire(struct tg_client *c, uint64_t addr, size_t bytes, int access)
{
	return each_chunk(c, addr, bytes, acquire_chunk, access == TG_WRITE);
}

static void release_chunk(struct tg_client *c, struct tg_chunk *chunk, uint32_t bytes, bool write)
{
	(void)bytes;
	(void)write;
	if (chunk->pins)
		chunk->pins--;
	if (!chunk->pins && chunk->astray && chunk->state != TG_MOVING)
		tg_gather(c, chunk);
}

int tg_release(struct tg_client *c, uint64_t addr, size_t bytes)
{
	return each_chunk(c, addr, bytes, release_chunk, false);
}

static void used_chunk(struct tg_client *c, struct tg_chunk *chunk, uint32_t bytes, bool write)
{
	acquire_chunk(c, chunk, bytes, write);
	release_chunk(c, chunk, bytes, write);
}

/* Whether it wrote is not known, so it did. */
void tg_used(struct tg_client *c, uint64_t addr, uint64_t bytes)
{
	each_chunk(c, addr, bytes, used_chunk, true);
}

static void want(struct tg_client *c, struct tg_chunk *chunk, int where)
{
	struct tgw_move move = {
	    .chunk = tg_index(c, chunk),
	    .dest = (int16_t)where,
	    .op = TGW_OP_MOVE,
	};

	if (chunk->state == TG_IDLE && chunk->location != TG_NO_PLACE && chunk->location != where)
		tg_queue(c, &move);
}

static void will_need(struct tg_client *c, struct tg_chunk *chunk, uint32_t bytes, bool write)
{
	(void)bytes;
	(void)write;
	want(c, chunk, c->options.device);
}

static void dont_need(struct tg_client *c, struct tg_chunk *chunk, uint32_t bytes, bool write)
{
	(void)bytes;
	(void)write;
	want(c, chunk, TG_HOST);
}

static void read_mostly(struct tg_client *c, struct tg_chunk *chunk, uint32_t bytes, bool write)
{
	(void)bytes;
	(void)write;
	if (chunk->state == TG_IDLE && !chunk->in_place &&
	    !tg_advise(&c->driver, chunk->addr, TG_CHUNK_BYTES, CU_MEM_ADVISE_SET_READ_MOSTLY,
		       c->options.device))
		chunk->read_mostly = true;
}

int tg_hint(struct tg_client *c, uint64_t addr, size_t bytes, int hint)
{
	switch (hint) {
	case TG_WILLNEED:
		return each_chunk(c, addr, bytes, will_need, false);
	case TG_DONTNEED:
		return each_chunk(c, addr, bytes, dont_need, false);
	case TG_READMOSTLY:
		return each_chunk(c, addr, bytes, read_mostly, false);
	default:
		return -EINVAL;
	}
}
