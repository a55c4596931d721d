/* SPDX-License-Identifier: Apache-2.0 */
/* A client of libtierd-gpu: its life, its figures, and its daemon. */
#include "client.h"
#include "launches.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int make_tables(struct tg_client *c)
{
	c->chunk = calloc(c->max_chunks, sizeof(*c->chunk));
	c->use = calloc(TG_REPORTS, sizeof(*c->use));
	c->report = calloc(TG_REPORTS, sizeof(*c->report));
	c->change = calloc(TG_CHANGES, sizeof(*c->change));
	c->urgent.move = calloc(TG_QUEUE + TG_WINDOW, sizeof(*c->urgent.move));
	c->normal.move = calloc(TG_QUEUE + TG_WINDOW, sizeof(*c->normal.move));
	return c->chunk && c->use && c->report && c->change && c->urgent.move && c->normal.move
		   ? 0
		   : -ENOMEM;
}

static void free_tables(struct tg_client *c)
{
	free(c->chunk);
	free(c->use);
	free(c->report);
	free(c->change);
	free(c->urgent.move);
	free(c->normal.move);
	free(c->socket);
	free(c);
}

static int find_device(struct tg_client *c)
{
	int can = 0;

	if (c->driver.device_count(&c->devices) || c->options.device < 0)
		return -ENODEV;
	if (c->devices > TGW_MAX_GPUS)
		c->devices = TGW_MAX_GPUS;
	if (c->options.device >= c->devices)
		return -ENODEV;
	c->driver.device_attribute(&can, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
				   c->options.device);
	return can ? 0 : -EOPNOTSUPP;
}

int tg_open(const struct tg_options *options, struct tg_client **out)
{
	struct tg_client *c = calloc(1, sizeof(*c));
	int ret;

	if (!c)
		return -ENOMEM;
	c->options = *options;
	c->max_chunks = options->max_chunks ? options->max_chunks : TG_DEFAULT_CHUNKS;
	c->resync = c->max_chunks;
	c->options.inflight = options->inflight ? options->inflight : TG_DEFAULT_INFLIGHT;
	c->wake_fd = c->socket_fd = -1;
	for (int i = 0; i < TGW_MAX_GPUS; i++)
		c->ordinal_of[i] = c->number_of[i] = -1;
	if (options->name)
		strncpy(c->name, options->name, sizeof(c->name) - 1);
	c->socket = options->socket ? strdup(options->socket) : NULL;
	pthread_mutex_init(&c->lock, NULL);
	pthread_rwlock_init(&c->ranges_lock, NULL);
	pthread_cond_init(&c->called, NULL);
	tg_loans_open(c);
	ret = make_tables(c);
	if (!ret)
		ret = tg_driver_open(&c->driver, options->driver);
	if (!ret)
		ret = find_device(c);
	if (!ret)
		ret = tg_errno(c->driver.device_uuid(c->uuid, options->device));
	if (!ret && c->socket)
		ret = tg_link_start(c);
	if (ret) {
		tg_driver_close(&c->driver);
		free_tables(c);
		return ret;
	}
	*out = c;
	return 0;
}

void tg_close(struct tg_client *c)
{
	tg_link_stop(c);
	pthread_mutex_lock(&c->lock);
	c->attached = false;
	tg_cancel_all(c, true);
	while (c->ranges) {
		struct tg_range range = c->range[0];

		tg_range_remove(c, &c->range[0]);
		if (range.owned)
			c->driver.mem_free(range.addr);
	}
	tg_loans_close(c);
	tg_copy_close(c);
	pthread_mutex_unlock(&c->lock);
	tg_launches_close(c);
	tg_driver_close(&c->driver);
	pthread_rwlock_destroy(&c->ranges_lock);
	pthread_cond_destroy(&c->called);
	pthread_mutex_destroy(&c->lock);
	free_tables(c);
}

int tg_mem_info(struct tg_client *c, size_t *free_bytes, size_t *total)
{
	uint64_t borrowed;
	int ret;

	pthread_mutex_lock(&c->lock);
	borrowed = c->grant[tg_home(c)].borrowed_bytes;
	ret = tg_enter(c, tg_home(c));
	if (!ret) {
		ret = tg_errno(c->driver.mem_info(free_bytes, total));
		tg_leave(c);
	}
	pthread_mutex_unlock(&c->lock);
	if (!ret)
		*free_bytes = *free_bytes + borrowed < *total ? *free_bytes + borrowed : *total;
	return ret;
}

int tg_stats_get(struct tg_client *c, struct tg_stats *out)
{
	pthread_mutex_lock(&c->lock);
	*out = c->stats;
	out->parked = 0;
	for (int device = 0; device < c->devices; device++)
		if (device != tg_home(c))
			out->parked += c->here[device];
	pthread_mutex_unlock(&c->lock);
	return 0;
}

int tg_where(struct tg_client *c, uint64_t addr, int *location)
{
	struct tg_range *range;

	pthread_mutex_lock(&c->lock);
	range = tg_range_at(c, addr);
	if (range)
		*location = c->chunk[range->first + (addr - range->addr) / TG_CHUNK_BYTES].location;
	pthread_mutex_unlock(&c->lock);
	return range ? 0 : -ENOENT;
}

int tg_pump(struct tg_client *c)
{
	bool running = tg_launches_poll(c);
	int moving;

	pthread_mutex_lock(&c->lock);
	moving = tg_run_moves(c);
	tg_loan_overdue(c);
	pthread_mutex_unlock(&c->lock);
	return moving + running;
}

/* A daemon is there: greet it and tell it everything. */
int tg_attach(struct tg_client *c)
{
	pthread_mutex_lock(&c->lock);
	c->attached = true;
	c->greeted = false;
	c->uses = c->reports = c->changes = 0;
	c->resync = c->max_chunks;
	c->heard_ns = tg_now(c);
	c->stats.attached++;
	for (uint32_t i = 0; i < c->ranges; i++)
		tg_report_change(c, c->range[i].first, c->range[i].count, true);
	pthread_mutex_unlock(&c->lock);
	return 0;
}

/* The advice on a range is taken back: neighbours at once, for each call takes a while. */
static void let_range_go(struct tg_client *c, const struct tg_range *range)
{
	uint32_t end = range->first + range->count, run = 0;

	for (uint32_t i = range->first; i < end; i++) {
		struct tg_chunk *chunk = &c->chunk[i];

		run = chunk->in_place ? run + 1 : 0;
		if (run && (i + 1 == end || !chunk[1].in_place))
			tg_in_place(c, &chunk[1 - (int)run], run, false);
	}
}

/* The daemon is gone: no lease holds, and placement is the driver's again. */
int tg_detach(struct tg_client *c)
{
	pthread_mutex_lock(&c->lock);
	if (c->attached) {
		c->attached = false;
		c->stats.detached++;
		tg_cancel_all(c, false);
		memset(c->grant, 0, sizeof(c->grant));
		for (int i = 0; i < TGW_MAX_GPUS; i++) /* another daemon may number otherwise */
			c->ordinal_of[i] = c->number_of[i] = -1;
		tg_loan_detach(c);
		for (uint32_t i = 0; i < c->ranges; i++)
			let_range_go(c, &c->range[i]);
	}
	pthread_mutex_unlock(&c->lock);
	return 0;
}
