/* SPDX-License-Identifier: Apache-2.0 */
#include "replay.h"

#include "cuabi.h"

#define LAUNCH_NS 700u	 /* what reading a launch costs (measured) */
#define PAUSE_NS 200000u /* link.c waits so long between two turns */

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr addr);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuCtxPushCurrent_v2(CUcontext context);
CUresult cuCtxPopCurrent_v2(CUcontext *context);

static void enter(const struct rp_tenant *t)
{
	CUcontext context;

	cuDevicePrimaryCtxRetain(&context, t->gpu);
	cuCtxPushCurrent_v2(context);
}

static void allocate(struct rp_tenant *t, const struct rp_event *event)
{
	uint64_t took;

	enter(t);
	if (t->memory[event->index])
		cuMemFree_v2(t->memory[event->index]);
	t->memory[event->index] = 0;
	if (cuMemAlloc_v2(&t->memory[event->index], event->value))
		t->refused++;
	cuCtxPopCurrent_v2(NULL);
	took = fg_take_spent();
	t->alloc_ns += took;
	t->worst_alloc_ns = took > t->worst_alloc_ns ? took : t->worst_alloc_ns;
	t->time += took;
}

static void release(struct rp_tenant *t, const struct rp_event *event)
{
	enter(t);
	if (t->memory[event->index])
		cuMemFree_v2(t->memory[event->index]);
	t->memory[event->index] = 0;
	cuCtxPopCurrent_v2(NULL);
}

static void access(struct rp_tenant *t, const struct rp_event *event)
{
	uint64_t addr = t->base + (uint64_t)event->index * FG_BLOCK_BYTES, end;
	uint32_t bytes = (uint32_t)event->pages * 4096;
	int status;

	if (t->client && !t->launched && tg_acquire(t->client, addr, bytes))
		t->errors++;
	t->time += fg_take_spent(); /* what the driver's calls cost the program's thread */
	end = fg_kernel(t->gpu, addr, bytes, event->write, event->index, event->value, t->time,
			NULL, &status);
	if (t->client && !t->launched)
		tg_release(t->client, addr, bytes);
	t->time = (status ? t->time : end) + fg_take_spent();
	t->errors += status != 0;
}

/*
 * What the preload sees of a kernel. The launch was before the accesses, and an event
 * behind it passes now; nothing is told in between, so that it may as well be made now.
 */
static void kernel(struct rp_tenant *t, const struct rp_event *event)
{
	uint64_t addresses[] = {t->base + event->index * FG_BLOCK_BYTES,
				t->base + event->value * FG_BLOCK_BYTES};

	if (!t->client || !t->launched)
		return;
	enter(t);
	t->errors += tg_launched(t->client, addresses, 2, NULL) != 0;
	cuCtxPopCurrent_v2(NULL);
	t->time += LAUNCH_NS + fg_take_spent();
}

static void step(struct rp_tenant *t)
{
	const struct rp_event *event = &t->trace[t->position++];

	fg_tenant_use(t->slot);
	fg_take_spent();
	switch (event->kind) {
	case RP_ALLOC:
		allocate(t, event);
		break;
	case RP_FREE:
		release(t, event);
		break;
	case RP_ACCESS:
		access(t, event);
		break;
	case RP_KERNEL:
		kernel(t, event);
		break;
	default:
		t->time = fg_compute(t->gpu, event->value, t->time);
	}
	if (t->position < t->count)
		return;
	t->done_at = t->time;
	if (t->loop) {
		t->laps++;
		t->position = t->first;
	}
}

static void pump_all(struct rp_tenant *tenants, int count)
{
	fg_take_spent();
	for (int i = 0; i < count; i++)
		if (tenants[i].client && tenants[i].pumped <= fg_now()) {
			fg_tenant_use(tenants[i].slot);
			tg_pump(tenants[i].client);
			tenants[i].pumped = fg_now() + PAUSE_NS;
			fg_take_spent();
		}
}

int rp_run(struct rp_tenant *tenants, int count, uint64_t until, uint64_t pump_ns)
{
	uint64_t next_pump = fg_now() + pump_ns;
	int left;

	for (;;) {
		struct rp_tenant *next = NULL;

		left = 0;
		for (int i = 0; i < count; i++) {
			struct rp_tenant *t = &tenants[i];

			if (t->position >= t->count)
				continue;
			left += !t->loop;
			if (!next || t->time < next->time)
				next = t;
		}
		if (!next || next->time >= until || !left)
			break;
		while (next_pump < next->time) {
			fg_set_now(next_pump);
			pump_all(tenants, count);
			next_pump += pump_ns;
		}
		fg_set_now(next->time);
		step(next);
	}
	if (left) {
		fg_set_now(until);
		pump_all(tenants, count);
	}
	return left;
}
