/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU copy backend: starts, polls and finishes the move of a run of neighbouring
 * chunks through the driver, on streams of its own, one for each path.
 * A chunk moves by prefetch ("CUDA Driver API", cuMemPrefetchAsync).
 */
#include "client.h"

#include <errno.h>

int tg_enter(struct tg_client *c, int device)
{
	int ret;

	if (c->context_failed[device])
		return -ENODEV;
	if (!c->context[device]) {
		ret = tg_errno(c->driver.context_retain(&c->context[device], device));
		if (ret) {
			c->context_failed[device] = ret != -ENOMEM; /* the lender may shrink */
			c->context[device] = NULL;
			return ret;
		}
	}
	return tg_errno(c->driver.context_push(c->context[device]));
}

void tg_leave(struct tg_client *c)
{
	c->driver.context_pop(NULL);
}

static int stream_for(struct tg_client *c, int from, int to, CUstream *out)
{
	CUstream *slot = &c->stream[tg_place(from)][tg_place(to)];

	if (!*slot) {
		int ret = tg_errno(c->driver.stream_create(slot, CU_STREAM_NON_BLOCKING));

		if (ret)
			return ret;
	}
	*out = *slot;
	return 0;
}

int tg_reach(struct tg_client *c, int device)
{
	int ret = tg_enter(c, device);

	if (!ret)
		tg_leave(c);
	return ret;
}

/* A run of chunks that is about to move is used in place no more. */
static int end_in_place(struct tg_client *c, const struct tg_flight *f)
{
	for (uint32_t i = 0; i < f->count; i++)
		if (c->chunk[f->first + i].in_place)
			return tg_in_place(c, &c->chunk[f->first], f->count, false);
	return 0;
}

int tg_copy_prepare(struct tg_client *c, struct tg_flight *f)
{
	int ret = tg_enter(c, tg_home(c));

	if (ret)
		return ret;
	ret = stream_for(c, f->from, f->to, &f->stream);
	if (!ret && !f->event)
		ret = tg_errno(c->driver.event_create(&f->event, CU_EVENT_DISABLE_TIMING));
	if (!ret)
		ret = end_in_place(c, f);
	tg_leave(c);
	return ret;
}

/* Without the lock: a prefetch to the host ends in this call, others take a while as well. */
int tg_copy_call(struct tg_client *c, const struct tg_flight *f)
{
	int ret = tg_errno(c->driver.context_push(c->context[tg_home(c)]));

	if (ret)
		return ret;
	ret = tg_prefetch(&c->driver, c->chunk[f->first].addr, f->count * TG_CHUNK_BYTES, f->to,
			  f->stream);
	if (!ret)
		ret = tg_errno(c->driver.event_record(f->event, f->stream));
	tg_leave(c);
	return ret;
}

/* -EAGAIN while under way, 0 when done, else why it failed. */
int tg_copy_poll(struct tg_client *c, struct tg_flight *f)
{
	int ret = tg_enter(c, tg_home(c));

	if (ret)
		return ret;
	ret = tg_errno(c->driver.event_query(f->event));
	tg_leave(c);
	return ret;
}

int tg_copy_wait(struct tg_client *c, struct tg_flight *f)
{
	int ret = tg_enter(c, tg_home(c));

	if (ret)
		return ret;
	ret = tg_errno(c->driver.event_synchronize(f->event));
	tg_leave(c);
	return ret;
}

/* Neighbouring chunks of one range, all at the same place: used from home where they are. */
int tg_in_place(struct tg_client *c, struct tg_chunk *first, uint32_t count, bool on)
{
	const struct tg_driver *d = &c->driver;
	uint64_t bytes = count * TG_CHUNK_BYTES;
	int ret;

	ret = tg_advise(d, first->addr, bytes,
			on ? CU_MEM_ADVISE_SET_PREFERRED_LOCATION
			   : CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION,
			first->location);
	if (!ret)
		ret =
		    tg_advise(d, first->addr, bytes,
			      on ? CU_MEM_ADVISE_SET_ACCESSED_BY : CU_MEM_ADVISE_UNSET_ACCESSED_BY,
			      tg_home(c));
	for (uint32_t i = 0; !ret && i < count; i++)
		first[i].in_place = on;
	return ret;
}

void tg_copy_close(struct tg_client *c)
{
	if (tg_enter(c, tg_home(c)))
		return;
	for (int i = 0; i < TG_MAX_INFLIGHT; i++) {
		if (c->flight[i].event)
			c->driver.event_destroy(c->flight[i].event);
	}
	for (int from = 0; from < TG_PLACES; from++)
		for (int to = 0; to < TG_PLACES; to++)
			if (c->stream[from][to])
				c->driver.stream_destroy(c->stream[from][to]);
	tg_leave(c);
	for (int device = 0; device < c->devices; device++)
		if (c->context[device])
			c->driver.context_release(device);
}
