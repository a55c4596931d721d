/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays traces of several tenants on the stand-in driver, through the client library
 * where a tenant has one, one access at a time in the order of virtual time.
 */
#ifndef TIERD_REPLAY_H
#define TIERD_REPLAY_H

#include "fakegpu.h"
#include "tierd_gpu.h"

enum rp_kind {
	RP_ACCESS = 0,	/* index: chunk; value: compute nanoseconds */
	RP_ALLOC = 1,	/* index: slot; value: bytes of the driver's own memory */
	RP_FREE = 2,	/* index: slot */
	RP_COMPUTE = 3, /* value: nanoseconds */
	RP_KERNEL = 4,	/* a kernel that had the addresses of chunks `index` and `value` ends */
};

struct rp_event {
	uint32_t index;
	uint16_t pages; /* of 4 KiB, touched by an access */
	uint8_t kind, write;
	uint64_t value;
};

#define RP_SLOTS 1024

struct rp_tenant {
	int slot, gpu; /* of the stand-in */
	int loop;      /* start again at the end of the trace */
	struct tg_client *client;
	int launched;  /* launches are reported to the client, not accesses */
	uint64_t base; /* address of chunk 0 */
	const struct rp_event *trace;
	uint64_t count, position, first; /* a loop goes back to `first` */
	uint64_t time, done_at, laps, lap_start, worst_alloc_ns, alloc_ns;
	uint64_t refused; /* allocations */
	uint64_t pumped;  /* when the client's thread has come back from its calls */
	uint64_t errors;
	unsigned long long memory[RP_SLOTS];
};

/*
 * Runs until `until`, or until every tenant that does not loop is done; the clients'
 * moves go on every `pump_ns`. Returns how many are not done.
 */
FG_API int rp_run(struct rp_tenant *tenants, int count, uint64_t until, uint64_t pump_ns);

#endif
