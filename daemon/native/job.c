/* SPDX-License-Identifier: Apache-2.0 */
/* What goes into a batch, and what is written down of it. */
#include <errno.h>
#include <string.h>

#include "mover.h"
#include "sys.h"

enum { FULL_CALLS = 2, LEAST_PAGES = 16 };

void job_count_error(struct tierd_job *job, size_t i, int err)
{
	uint64_t pages = folio_bytes(job->order[i]) / PAGE_BYTES;

	job->errors[err > TIERD_ERRNO_MAX ? TIERD_ERRNO_MAX : err] += pages;
	job->failed += pages;
}

/* Write down a folio's final fate, or that it is busy and will be tried again. */
static void record(struct tierd_mover *mover, struct tierd_job *job, size_t i, uint8_t fate,
		   int err, int node)
{
	job->fate[i] = fate;
	job->node[i] = (int16_t)node;
	job->tries[i] = (uint8_t)(job->pass + 1);
	if (fate == TIERD_BUSY && job->pass < mover->busy_retries)
		return;
	if (fate != TIERD_MOVED && fate != TIERD_ALREADY_THERE && fate != TIERD_JOINED)
		job_count_error(job, i, err);
}

uint64_t job_gather(struct tierd_mover *mover, struct tierd_job *job)
{
	struct batch *batch = &mover->batch;
	uint64_t limit =
	    (uint64_t)((double)mover->tuning.call_target_ns / mover->ns_per_page) * PAGE_BYTES;
	/* By their names, so that nothing written to a batch has them read anew. */
	const uint64_t *const page = job->page;
	const int16_t *const source = job->source, *const dest = job->dest;
	uint64_t bytes = 0;
	uint32_t target = 0;
	size_t n = 0;

	if (limit < LEAST_PAGES * PAGE_BYTES)
		limit = LEAST_PAGES * PAGE_BYTES;
	if (limit > (uint64_t)mover->bytes.burst / 2)
		limit = (uint64_t)mover->bytes.burst / 2;
	while (job->cursor < job->n && !job_is_due(job, job->cursor))
		job->cursor++;
	for (size_t i = job->cursor; i < job->n && n < BATCH_MAX; i++) {
		const uint64_t key = page[i], size = folio_bytes(job->order[i]);

		if (!job_is_due(job, i))
			continue;
		if (n == 0)
			target = key_target(key);
		else if (key_target(key) != target || bytes + size > limit ||
			 (mover->one_dest && dest[i] != batch->dest[0]))
			break;
		batch->item[n] = i;
		batch->address[n] = (void *)(uintptr_t)(key_vpn(key) << PAGE_SHIFT);
		batch->dest[n] = dest[i];
		batch->before[n++] = source[i];
		bytes += size;
	}
	batch->n = n;
	memcpy(batch->after, batch->before, n * sizeof(batch->after[0]));
	memset(batch->moved_pages, 0, n * sizeof(batch->moved_pages[0]));
	memset(batch->error, 0, n * sizeof(batch->error[0]));
	memset(batch->fate, FATE_OPEN, n);
	return bytes;
}

static bool is_full(const struct tierd_mover *mover, int node)
{
	return node >= 0 && node < FULL_NODES && mover->full[node] >= FULL_CALLS;
}

/* A node without room in two calls is taken to be full until something leaves it. */
static void skip_full_nodes(struct tierd_mover *mover)
{
	struct batch *batch = &mover->batch;

	for (size_t i = 0; i < batch->n; i++) {
		if (batch->fate[i] != FATE_OPEN)
			continue;
		if (is_full(mover, batch->dest[i])) {
			batch->fate[i] = TIERD_NO_ROOM;
			batch->error[i] = ENOMEM;
		} else if (is_full(mover, batch->before[i])) {
			/* This one makes room there for those behind it. */
			mover->full[batch->before[i]] = 0;
		}
	}
}

static void learn_full_nodes(struct tierd_mover *mover)
{
	struct batch *batch = &mover->batch;
	bool arrived = false;
	int short_of = -1;

	for (size_t i = 0; i < batch->n; i++) {
		if (batch->moved_pages[i] > 0) {
			arrived = true;
			if (batch->before[i] >= 0 && batch->before[i] < FULL_NODES)
				mover->full[batch->before[i]] = 0;
		} else if (batch->fate[i] == TIERD_NO_ROOM && short_of < 0) {
			short_of = batch->dest[i];
		}
	}
	if (short_of >= 0 && short_of < FULL_NODES && !arrived &&
	    mover->full[short_of] < FULL_CALLS)
		mover->full[short_of]++;
}

static uint64_t write_down(struct tierd_mover *mover, struct tierd_job *job)
{
	struct batch *batch = &mover->batch;
	uint64_t pages = 0;

	for (size_t i = 0; i < batch->n; i++) {
		size_t item = batch->item[i];
		int node = batch->after[i] >= 0 ? batch->after[i] : -1;

		pages += batch->moved_pages[i];
		if (batch->fate[i] == FATE_OPEN)
			continue;
		if (batch->fate[i] == TIERD_MOVED || batch->fate[i] == TIERD_ALREADY_THERE)
			node = batch->dest[i];
		/* A second try may find that the first one moved it after all. */
		if (batch->fate[i] == TIERD_ALREADY_THERE && job->pass > 0) {
			batch->fate[i] = TIERD_MOVED;
			pages += folio_bytes(job->order[item]) / PAGE_BYTES;
		}
		record(mover, job, item, batch->fate[i], batch->error[i], node);
	}
	job->moved_bytes += pages * PAGE_BYTES;
	return pages;
}

/* Slower is believed sooner than faster, but one late call is not the rule. */
static void learn_speed(struct tierd_mover *mover, double ns_per_page)
{
	if (ns_per_page > 2.0 * mover->ns_per_page)
		ns_per_page = 2.0 * mover->ns_per_page;
	if (ns_per_page < mover->ns_per_page)
		ns_per_page = 0.75 * mover->ns_per_page + 0.25 * ns_per_page;
	mover->ns_per_page = ns_per_page;
}

static void keep_call(struct tierd_mover *mover, uint64_t ns, uint64_t pages)
{
	if (mover->calls < TIERD_MOVE_CALLS)
		mover->call[mover->calls++] = (struct tierd_move_call){.ns = ns, .pages = pages};
	else
		mover->calls_dropped++;
}

void job_carry_out(struct tierd_mover *mover, struct tierd_job *job)
{
	struct batch *batch = &mover->batch;
	const struct tierd_process *process =
	    mover_process(job->process, job->processes, key_target(job->page[batch->item[0]]));
	uint64_t cpu_start = tierd_thread_cpu_ns(), start = sys_monotonic_ns(), call_ns = 0, cpu,
		 pages;
	size_t open = 0;

	if (process == NULL || process->pidfd < 0 || sys_exited(process->pidfd))
		batch_settle_open(batch, ESRCH);
	else
		batch_look(batch, process->pid, job->order, job->pass > 0);
	skip_full_nodes(mover);
	if (process != NULL)
		batch_settle_joined(batch, process->pid, job->order);
	for (size_t i = 0; i < batch->n; i++) {
		if (batch->fate[i] == FATE_OPEN)
			open += folio_bytes(job->order[batch->item[i]]) / PAGE_BYTES;
	}
	job->retries += job->pass > 0 ? open : 0;
	if (open > 0) {
		batch_move(batch, process->pid, job->order, &call_ns);
		job->calls++;
		mover->one_dest = mover->one_dest || batch->unclear;
		learn_full_nodes(mover);
	}
	/* A process that ended in the middle fails in many ways; its pages are gone. */
	if (process != NULL && process->pidfd >= 0 && sys_exited(process->pidfd)) {
		for (size_t i = 0; i < batch->n; i++) {
			if (batch->fate[i] == TIERD_FAILED)
				batch->fate[i] = FATE_OPEN;
		}
		batch_settle_open(batch, ESRCH);
	}
	pages = write_down(mover, job);
	bucket_take(&mover->bytes, (double)(pages * PAGE_BYTES), sys_monotonic_ns());
	if (call_ns > 0) {
		learn_speed(mover, (double)call_ns / (double)open);
		keep_call(mover, call_ns, open);
		if (call_ns > job->longest_call_ns)
			job->longest_call_ns = call_ns;
	}
	cpu = tierd_thread_cpu_ns() - cpu_start;
	job->cpu_ns += cpu;
	mover_used_cpu(mover, start, cpu);
}
