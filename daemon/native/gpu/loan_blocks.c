/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks of loans: managed memory that prefers a neighbour and is used from home. */
#include "client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A block comes to the neighbour no more, and kernels bring it home. */
static void unplace(struct tg_client *c, struct tg_loan_block *block)
{
	tg_advise(&c->driver, block->addr, block->bytes, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION,
		  block->device);
	tg_advise(&c->driver, block->addr, block->bytes, CU_MEM_ADVISE_UNSET_ACCESSED_BY,
		  tg_home(c));
	block->unplaced = true;
	c->loans.at[block->device].unplaced += block->bytes;
}

void tg_loan_overdue(struct tg_client *c)
{
	uint64_t now = tg_now(c);

	for (int device = 0; device < c->devices; device++) {
		const struct tg_loan_account *loan = &c->loans.at[device];
		uint64_t keep = tg_loan_keep(loan, now);

		for (uint32_t i = 0; i < c->loans.blocks && loan->held - loan->unplaced > keep;
		     i++) {
			struct tg_loan_block *block = &c->loans.block[i];

			if (block->device == device && !block->unplaced)
				unplace(c, block);
		}
	}
}

static int make_stream(struct tg_client *c, int device)
{
	int ret = tg_reach(c, device);

	if (ret)
		return ret;
	ret = tg_enter(c, tg_home(c));
	if (ret)
		return ret;
	if (!c->loans.stream)
		ret = tg_errno(c->driver.stream_create(&c->loans.stream, CU_STREAM_NON_BLOCKING));
	tg_leave(c);
	return ret;
}

/* Counts `bytes` as held, and waits until the daemon was told. */
static int reserve(struct tg_client *c, struct tg_loan_account *loan, int device, size_t bytes,
		   bool *reserved)
{
	uint64_t said;
	int ret = tg_loan_served(c, device);

	if (!ret && loan->held + bytes > loan->granted)
		ret = -ENOSPC;
	if (!ret)
		ret = make_stream(c, device);
	if (ret)
		return ret;
	tg_loan_take(c, loan, bytes);
	*reserved = true;
	said = c->loans.said;
	while (c->threaded && c->attached && c->loans.sent < said)
		pthread_cond_wait(&c->loans.told, &c->lock);
	if (!c->attached)
		return -ENOTCONN;
	return loan->held > loan->granted ? -ENOSPC : 0; /* it may have fallen meanwhile */
}

static int place(struct tg_client *c, int device, size_t bytes, CUdeviceptr *at)
{
	const struct tg_driver *d = &c->driver;
	int ret = tg_errno(d->context_push(c->context[tg_home(c)]));

	if (ret)
		return ret;
	ret = tg_errno(d->mem_alloc_managed(at, bytes, CU_MEM_ATTACH_GLOBAL));
	if (!ret) {
		ret = tg_advise(d, *at, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device);
		if (!ret)
			ret = tg_advise(d, *at, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, tg_home(c));
		if (!ret)
			ret = tg_prefetch(d, *at, bytes, device, c->loans.stream);
		if (ret)
			d->mem_free(*at);
	}
	tg_leave(c);
	return ret;
}

/* Waits for the kernels that are under way. */
static int release(struct tg_client *c, uint64_t addr)
{
	int ret = tg_errno(c->driver.context_push(c->context[tg_home(c)]));

	if (!ret) {
		ret = tg_errno(c->driver.mem_free(addr));
		tg_leave(c);
	}
	return ret;
}

static int remember(struct tg_client *c, const struct tg_loan_block *block)
{
	if (c->loans.blocks == c->loans.room) {
		uint32_t room = c->loans.room ? 2 * c->loans.room : 64;
		void *more = realloc(c->loans.block, room * sizeof(*block));

		if (!more)
			return -ENOMEM;
		c->loans.block = more;
		c->loans.room = room;
	}
	c->loans.block[c->loans.blocks++] = *block;
	return 0;
}

int tg_loan_alloc(struct tg_client *c, int device, size_t bytes, uint64_t *addr)
{
	struct tg_loan_account *loan;
	bool reserved = false;
	CUdeviceptr at = 0;
	int ret;

	bytes = tg_whole_chunks(bytes);
	if (!bytes)
		return -EINVAL;
	pthread_mutex_lock(&c->lock);
	loan = tg_loan_account(c, device);
	ret = loan ? reserve(c, loan, device, bytes, &reserved) : -EINVAL;
	pthread_mutex_unlock(&c->lock);
	if (!reserved)
		return ret;
	if (!ret)
		ret = place(c, device, bytes, &at);
	pthread_mutex_lock(&c->lock);
	if (!ret) {
		ret = remember(c, &(struct tg_loan_block){at, bytes, .device = device});
		if (ret)
			release(c, at);
	}
	if (ret)
		tg_loan_give(c, loan, bytes);
	pthread_mutex_unlock(&c->lock);
	if (!ret)
		*addr = at;
	return ret;
}

int tg_loan_free(struct tg_client *c, uint64_t addr)
{
	struct tg_loan_account *loan;
	struct tg_loan_block was;
	uint32_t i = 0;
	int ret;

	pthread_mutex_lock(&c->lock);
	while (i < c->loans.blocks && c->loans.block[i].addr != addr)
		i++;
	if (i == c->loans.blocks) {
		pthread_mutex_unlock(&c->lock);
		return -ENOENT;
	}
	was = c->loans.block[i];
	memmove(&c->loans.block[i], &c->loans.block[i + 1], (--c->loans.blocks - i) * sizeof(was));
	pthread_mutex_unlock(&c->lock);
	ret = release(c, addr); /* messages must not wait for it */
	pthread_mutex_lock(&c->lock);
	loan = &c->loans.at[was.device];
	loan->unplaced -= was.unplaced ? was.bytes : 0;
	tg_loan_give(c, loan, was.bytes);
	pthread_mutex_unlock(&c->lock);
	return ret;
}

void tg_loan_free_all(struct tg_client *c)
{
	if (c->loans.stream && !tg_enter(c, tg_home(c))) {
		for (uint32_t i = 0; i < c->loans.blocks; i++)
			c->driver.mem_free(c->loans.block[i].addr);
		c->driver.stream_destroy(c->loans.stream);
		tg_leave(c);
	}
	free(c->loans.block);
}
