/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the mover: a batch is some folios of one process that one move_pages call
 * is asked for; mover.c decides what goes into it and when, batch.c carries it out.
 */
#ifndef TIERD_MOVER_H
#define TIERD_MOVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bucket.h"
#include "pagekey.h"
#include "tierd_native.h"

enum {
	BATCH_MAX = 8192,
	FULL_NODES = 1024,
};

/* One folio of a batch, and its state. */
struct batch {
	size_t n;
	/* The call failed and left open for which destination: ask for one at a time. */
	bool unclear;
	size_t item[BATCH_MAX];
	void *address[BATCH_MAX];
	int dest[BATCH_MAX];
	/* Node, or negative errno, before the call (as planned, or as looked up) and after. */
	int before[BATCH_MAX];
	int after[BATCH_MAX];
	int status[BATCH_MAX];
	uint8_t fate[BATCH_MAX];
	int error[BATCH_MAX];
	uint32_t moved_pages[BATCH_MAX];
	/* Scratch: the folios of a batch that the call is made for. */
	size_t asked[BATCH_MAX];
	size_t rest[BATCH_MAX];
	void *ask_address[BATCH_MAX];
	int ask_dest[BATCH_MAX];
};

struct tierd_mover {
	atomic_uint stop;
	/* Goes up at each stop, resume and change of rate, and wakes whoever waits. */
	atomic_uint changes;
	_Atomic uint64_t rate;
	_Atomic uint64_t burst;
	uint32_t busy_retries;
	double cpu_share;
	struct tierd_mover_tuning tuning;
	struct bucket bytes;
	double ns_per_page;
	/* The time until which to wait for the CPU time that was used. */
	uint64_t cpu_due_ns;
	/* Batches of this job have one destination each. */
	bool one_dest;
	/* Calls in a row that found the node full and moved nothing. */
	uint8_t full[FULL_NODES];
	struct tierd_move_call call[TIERD_MOVE_CALLS];
	size_t calls;
	uint64_t calls_dropped;
	struct batch batch;
};

/* mover.c: a target's process, NULL if there is none. */
const struct tierd_process *mover_process(const struct tierd_process *process, size_t n,
					  uint32_t target);
/* Delay later work until the CPU time that work since `start_ns` took is within the share. */
void mover_used_cpu(struct tierd_mover *mover, uint64_t start_ns, uint64_t cpu_ns);

/* batch.c: settle all that is open. */
void batch_settle_open(struct batch *batch, int err);
/* Make the call for a batch, and find the result of each folio. */
void batch_move(struct batch *batch, int pid, const uint8_t *order, uint64_t *call_ns);
/*
 * Find out where the folios of a batch are and settle those that need no move. If not
 * `all`, a plan that knows better is believed: one page in sixteen is asked for, and
 * the others only if one of those is elsewhere. (Asking costs a tenth of moving.)
 */
void batch_look(struct batch *batch, int pid, const uint8_t *order, bool all);

/*
 * Settle open pages that are part of a folio mapped as one 2 MiB page by now, and find out
 * where they are. Nothing is settled where the kernel cannot tell.
 */
void batch_settle_joined(struct batch *batch, int pid, const uint8_t *order);

/* job.c */
/*
 * Fill the batch with folios that are due, all of the process of the first one; the
 * bytes in it, 0 if nothing is due. Folios of other processes in between end it, so
 * that the plan's order holds.
 */
uint64_t job_gather(struct tierd_mover *mover, struct tierd_job *job);
/* Move the gathered batch, and store its results and cost. */
void job_carry_out(struct tierd_mover *mover, struct tierd_job *job);
void job_count_error(struct tierd_job *job, size_t i, int err);

/* Whether item i is still due in this pass. */
static inline bool job_is_due(const struct tierd_job *job, size_t i)
{
	return job->tries[i] == job->pass &&
	       (job->fate[i] == TIERD_NOT_TRIED || job->fate[i] == TIERD_BUSY);
}

/* The result of a folio that is not settled; internal to the native code. */
enum { FATE_OPEN = 0xff };

#endif
