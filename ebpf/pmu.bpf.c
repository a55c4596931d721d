// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sampled loads and stores: runs on each sample of a PMU event that reports data
 * addresses (Intel PEBS, AMD IBS), or of any other perf event that has them.
 *
 * Attached to one event per CPU by perf_event_open(2); the process is filtered here.
 * `addr` of struct bpf_perf_event_data is the sampled data address (uapi header).
 */
#include "table.h"

PROGRAM("perf_event") int on_load(struct bpf_perf_event_data *ctx)
{
	return take_sample(ctx->addr, 0);
}

PROGRAM("perf_event") int on_store(struct bpf_perf_event_data *ctx)
{
	return take_sample(ctx->addr, 1);
}
