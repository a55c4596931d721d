/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that a client tracks: its own allocations, and what it registers. */
#include "client.h"

#include <errno.h>
#include <stdint.h>

static int alloc_locked(struct tg_client *c, size_t bytes, CUdeviceptr *at)
{
	int ret = tg_enter(c, tg_home(c));

	if (ret)
		return ret;
	ret = tg_errno(c->driver.mem_alloc_managed(at, bytes, CU_MEM_ATTACH_GLOBAL));
	if (!ret) {
		ret = tg_range_add(c, *at, bytes, true);
		if (ret)
			c->driver.mem_free(*at);
	}
	tg_leave(c);
	return ret;
}

int tg_alloc(struct tg_client *c, size_t bytes, uint64_t *addr)
{
	CUdeviceptr at = 0;
	int ret;

	bytes = tg_whole_chunks(bytes);
	if (!bytes)
		return -EINVAL;
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
		if (tg_settle_chunk(c, &c->chunk[was.first + i]))
			i = UINT32_MAX; /* others may have moved meanwhile: from the first again */
	range = tg_range_at(c, addr);
	if (range)
		tg_range_remove(c, range);
	if (owned && !tg_enter(c, tg_home(c))) {
		ret = tg_errno(c->driver.mem_free(was.addr));
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
	return forget(c, tg_whole_chunks(addr), false);
}

int tg_register(struct tg_client *c, uint64_t addr, size_t bytes)
{
	uint64_t first = tg_whole_chunks(addr);
	uint64_t end = (addr + bytes) / TG_CHUNK_BYTES * TG_CHUNK_BYTES;
	int ret;

	if (end <= first)
		return -EINVAL;
	pthread_mutex_lock(&c->lock);
	ret = tg_range_add(c, first, end - first, false);
	pthread_mutex_unlock(&c->lock);
	return ret;
}
