/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mover's policy: when a call may be made, and what is tried again. A plan is walked in passes:
 * once in its order, then again for what was busy, with a longer wait before each.
 */
#include "mover.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sys.h"

const struct tierd_process *mover_process(const struct tierd_process *process, size_t n,
					  uint32_t target)
{
	for (size_t i = 0; i < n; i++) {
		if (process[i].target == target)
			return &process[i];
	}
	return NULL;
}

void mover_used_cpu(struct tierd_mover *mover, uint64_t start_ns, uint64_t cpu_ns)
{
	uint64_t from = mover->cpu_due_ns > start_ns ? mover->cpu_due_ns : start_ns;

	if (mover->cpu_share < 1.0)
		mover->cpu_due_ns = from + (uint64_t)((double)cpu_ns / mover->cpu_share);
}

/* For between two runs only: a run reads both without looking for changes. */
int tierd_mover_set_limits(struct tierd_mover *mover, uint32_t busy_retries, double cpu_share)
{
	if (busy_retries > 100 || !(cpu_share > 0.0) || cpu_share > 1.0)
		return -EINVAL;
	mover->busy_retries = busy_retries;
	mover->cpu_share = cpu_share;
	return 0;
}

int tierd_mover_new(uint64_t rate, uint64_t burst, uint32_t busy_retries, double cpu_share,
		    const struct tierd_mover_tuning *tuning, struct tierd_mover **out)
{
	struct tierd_mover *mover;

	if (rate == 0 || burst < HUGE_BYTES || !(tuning->first_ns_per_page > 0.0))
		return -EINVAL;
	mover = calloc(1, sizeof(*mover));
	if (mover == NULL)
		return -ENOMEM;
	if (tierd_mover_set_limits(mover, busy_retries, cpu_share) != 0) {
		free(mover);
		return -EINVAL;
	}
	mover->rate = rate;
	mover->burst = burst;
	mover->tuning = *tuning;
	mover->ns_per_page = tuning->first_ns_per_page;
	mover->bytes.filled_ns = sys_monotonic_ns();
	bucket_set(&mover->bytes, (double)rate, (double)burst, mover->bytes.filled_ns);
	mover->bytes.tokens = (double)burst;
	*out = mover;
	return 0;
}

size_t tierd_mover_take_calls(struct tierd_mover *mover, struct tierd_move_call *call,
			      uint64_t *dropped)
{
	const size_t n = mover->calls;

	memcpy(call, mover->call, n * sizeof(*call));
	mover->calls = 0;
	*dropped = mover->calls_dropped;
	return n;
}

void tierd_mover_free(struct tierd_mover *mover)
{
	free(mover);
}

static void changed(struct tierd_mover *mover)
{
	atomic_fetch_add(&mover->changes, 1);
	sys_wake(&mover->changes);
}

void tierd_mover_stop(struct tierd_mover *mover, int stop)
{
	atomic_store(&mover->stop, stop != 0);
	changed(mover);
}

void tierd_mover_set_rate(struct tierd_mover *mover, uint64_t rate, uint64_t burst)
{
	atomic_store(&mover->rate, rate);
	atomic_store(&mover->burst, burst);
	changed(mover);
}

/* Nanoseconds until the gathered batch may be carried out. */
static uint64_t wait_needed(struct tierd_mover *mover, const struct tierd_job *job, uint64_t bytes,
			    uint64_t now)
{
	uint64_t credit_ns = mover->tuning.cpu_credit_ns, wait;

	bucket_fill(&mover->bytes, now);
	wait = bucket_wait_ns(&mover->bytes, (double)bytes);
	if (mover->cpu_due_ns > now + credit_ns && mover->cpu_due_ns - now - credit_ns > wait)
		wait = mover->cpu_due_ns - now - credit_ns;
	if (job->pass_due_ns > now && job->pass_due_ns - now > wait)
		wait = job->pass_due_ns - now;
	return wait;
}

static uint64_t backoff_ns(const struct tierd_mover_tuning *tuning, uint32_t pass)
{
	uint64_t most = tuning->max_backoff_ns, wait = tuning->backoff_ns;

	for (uint32_t i = 1; i < pass && wait < most; i++)
		wait *= tuning->backoff_factor;
	return wait < most ? wait : most;
}

/* After the last folio of a pass: begin the next, if something is left for it. */
static bool next_pass(struct tierd_mover *mover, struct tierd_job *job)
{
	if (job->pass >= mover->busy_retries)
		return false;
	job->pass++;
	job->cursor = 0;
	job->pass_due_ns = sys_monotonic_ns() + backoff_ns(&mover->tuning, job->pass);
	for (size_t i = 0; i < job->n; i++) {
		if (job_is_due(job, i))
			return true;
	}
	return false;
}

/* Count what was still to be tried again when a stop came. */
static void give_up_busy(struct tierd_mover *mover, struct tierd_job *job)
{
	for (size_t i = 0; i < job->n; i++) {
		if (job->fate[i] == TIERD_BUSY && job->tries[i] <= mover->busy_retries)
			job_count_error(job, i, EBUSY);
	}
}

/*
 * Work on a job for about `slice_ns`. Returns 1 if there is more to do, 0 when all is
 * done, and 0 as well after a stop.
 */
int tierd_mover_run(struct tierd_mover *mover, struct tierd_job *job, uint64_t slice_ns)
{
	const uint64_t end = sys_monotonic_ns() + slice_ns;

	/* Whether a node has room, or may be moved to, is asked anew for each job. */
	if (job->pass == 0 && job->cursor == 0) {
		memset(mover->full, 0, sizeof(mover->full));
		mover->one_dest = false;
	}
	for (;;) {
		unsigned int changes = atomic_load(&mover->changes);
		uint64_t bytes, now, wait;

		if (atomic_load(&mover->stop) != 0) {
			give_up_busy(mover, job);
			return 0;
		}
		now = sys_monotonic_ns();
		bucket_set(&mover->bytes, (double)atomic_load(&mover->rate),
			   (double)atomic_load(&mover->burst), now);
		bytes = job_gather(mover, job);
		if (bytes == 0) {
			if (!next_pass(mover, job))
				return 0;
			continue;
		}
		if (now >= end)
			return 1;
		wait = wait_needed(mover, job, bytes, now);
		if (wait > 0) {
			sys_wait(&mover->changes, changes, wait < end - now ? wait : end - now);
			continue;
		}
		job_carry_out(mover, job);
	}
}
