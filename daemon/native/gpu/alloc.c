/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that a client tracks: its own allocations, and what it registers. */
#include "client.h"

#include <errno.h>
#include <stdint.h>

/* Memory at home while there is some above one chunk, then on the host. */
static int back_range(struct tg_client *c, struct tg_range *range)
{
	for (uint32_t i = 0; i < range->count; i++) {
		struct tg_chunk *chunk = &c->chunk[range->first + i];
		uint64_t room = 0;
		int ret;

		tg_room(c, c->options.device, &room);
		ret = room > TG_CHUNK_BYTES ? tg_back(c, chunk, c->options.device) : -ENOMEM;
		if (ret)
			ret = tg_back(c, chunk, TG_HOST);
		if (ret)
			return ret;
		tg_report_state(c, tg_index(c, chunk), NULL, 0);
	}
	return 0;
}

static int alloc_locked(struct tg_client *c, size_t bytes, CUdeviceptr *at)
{
	bool mapped = c->options.backing == TG_MAPPED;
	struct tg_range *range;
	int ret = tg_enter(c, c->options.device);

	if (ret)
		return ret;
	ret = tg_errno(mapped ? c->driver.address_reserve(at, bytes, TG_CHUNK_BYTES, 0, 0)
			      : c->driver.mem_alloc_managed(at, bytes, CU_MEM_ATTACH_GLOBAL));
	if (ret)
		goto leave;
	ret = tg_range_add(c, *at, bytes, true);
	if (!ret && mapped) {
		range = tg_range_at(c, *at);
		ret = back_range(c, range);
		for (uint32_t i = 0; ret && i < range->count; i++)
			tg_unback(c, &c->chunk[range->first + i]);
		if (ret)
			tg_range_remove(c, range);
	}
	if (ret && mapped)
		c->driver.address_free(*at, bytes);
	else if (ret)
		c->driver.mem_free(*at);
leave:
	tg_leave(c);
	return ret;
}

int tg_alloc(struct tg_client *c, size_t bytes, uint64_t *addr)
{
	CUdeviceptr at = 0;
	int ret;

	if (!bytes || bytes > SIZE_MAX - TG_CHUNK_BYTES)
		return -EINVAL;
	bytes = (bytes + TG_CHUNK_BYTES - 1) / TG_CHUNK_BYTES * TG_CHUNK_BYTES;
	pthread_mutex_lock(&c->lock);
	ret = alloc_locked(c, bytes, &at);
	pthread_mutex_unlock(&c->lock);
	if (!ret)
		*addr = at;
	return ret;
}

static int forget(struct tg_client *c, uint64_t addr, bool owned)
{
	struct tg_range *range, was;
	int ret = 0;

	pthread_mutex_lock(&c->lock);
	range = tg_range_at(c, addr);
	if (!range || range->addr != addr || range->owned != owned) {
		pthread_mutex_unlock(&c->lock);
		return -ENOENT;
	}
	was = *range;
	for (uint32_t i = 0; i < was.count; i++)
		tg_settle_chunk(c, &c->chunk[was.first + i]);
	for (uint32_t i = 0; owned && i < was.count; i++)
		tg_unback(c, &c->chunk[was.first + i]);
	tg_range_remove(c, range);
	if (owned && !tg_enter(c, c->options.device)) {
		ret = tg_errno(c->options.backing == TG_MAPPED
				   ? c->driver.address_free(was.addr, was.bytes)
				   : c->driver.mem_free(was.addr));
		tg_leave(c);
	}
	pthread_mutex_unlock(&c->lock);
	return ret;
}

int tg_free(struct tg_client *c, uint64_t addr)
{
	return forget(c, addr, true);
}

int tg_unregister(struct tg_client *c, uint64_t addr)
{
	uint64_t first = (addr + TG_CHUNK_BYTES - 1) / TG_CHUNK_BYTES * TG_CHUNK_BYTES;

	return forget(c, first, false);
}

int tg_register(struct tg_client *c, uint64_t addr, size_t bytes)
{
	uint64_t first = (addr + TG_CHUNK_BYTES - 1) / TG_CHUNK_BYTES * TG_CHUNK_BYTES;
	uint64_t end = (addr + bytes) / TG_CHUNK_BYTES * TG_CHUNK_BYTES;
	int ret;

	if (c->options.backing == TG_MAPPED || end <= first)
		return -EINVAL;
	pthread_mutex_lock(&c->lock);
	ret = tg_range_add(c, first, end - first, false);
	pthread_mutex_unlock(&c->lock);
	return ret;
}
