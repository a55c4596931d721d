/* SPDX-License-Identifier: Apache-2.0 */
/* One interval: executes plans with the mover, and stores the result of each page. */
#include <math.h>
#include <string.h>

#include "promote.h"
#include "sys.h"

/* An outcome of a candidate; it is counted if there is no space for it. */
static void tell(struct tierd_promoter *promoter, const struct candidate *of,
		 struct tierd_outcome outcome)
{
	if (promoter->outcomes == OUTCOMES_MAX) {
		promoter->stats.outcomes_dropped++;
		return;
	}
	outcome.page = of->page;
	outcome.heat = of->hot.heat;
	outcome.bar = of->bar;
	outcome.source = of->node;
	promoter->outcome[promoter->outcomes++] = outcome;
}

void hold_back(struct tierd_promoter *promoter, const struct candidate *candidate,
	       enum tierd_reason reason, uint64_t now_ns)
{
	promoter->stats.held[reason]++;
	tap_held(promoter, candidate, reason);
	tell(promoter, candidate,
	     (struct tierd_outcome){
		 .time_ns = now_ns,
		 .dest = -1,
		 .node = candidate->node,
		 .fate = TIERD_NOT_TRIED,
		 .direction = TIERD_PROMOTE,
		 .reason = (uint8_t)reason,
	     });
}

static bool interrupted(const struct tierd_promoter *promoter)
{
	return atomic_load(&promoter->stop) != 0 || atomic_load(&promoter->holds) != 0;
}

/* What was planned and not tried waits with the other candidates. */
static void put_back(struct tierd_promoter *promoter, struct candidate candidate)
{
	candidate.dest = -1;
	waiting_add(&promoter->waiting, &candidate);
}

static void note_moved(struct tierd_promoter *promoter, const struct moves *moves, size_t i)
{
	int64_t bytes = (int64_t)folio_bytes(moves->order[i]);
	int source = moves->source[i], dest = moves->dest[i];

	if (dest >= 0 && dest < TIERD_NODES)
		promoter->moved_in[dest] += bytes;
	if (source >= 0 && source < TIERD_NODES) {
		promoter->moved_in[source] -= bytes;
		promoter->left[source] += bytes;
	}
}

static uint64_t write_down(struct tierd_promoter *promoter, const struct moves *moves,
			   int direction)
{
	struct tierd_promoter_stats *stats = &promoter->stats;
	uint64_t now_ns = tap_now(promoter), pages = 0;

	for (size_t i = 0; i < moves->n; i++) {
		if (moves->fate[i] == TIERD_NOT_TRIED) {
			if (direction == TIERD_PROMOTE)
				put_back(promoter, moves->of[i]);
			continue;
		}
		if (moves->fate[i] == TIERD_MOVED) {
			pages += folio_bytes(moves->order[i]) / PAGE_BYTES;
			note_moved(promoter, moves, i);
			stats->bounced += recent_add(promoter, moves->page[i], direction, now_ns);
		}
		tell(promoter, &moves->of[i],
		     (struct tierd_outcome){
			 .time_ns = now_ns,
			 .dest = moves->dest[i],
			 .node = moves->node[i],
			 .order = moves->order[i],
			 .fate = moves->fate[i],
			 .direction = (uint8_t)direction,
			 .reason = direction == TIERD_PROMOTE ? TIERD_HOTTER : TIERD_MAKES_ROOM,
		     });
	}
	return pages;
}

/* Let the mover carry out `moves`; the number of 4 KiB pages that moved. */
static uint64_t carry_out(struct tierd_promoter *promoter, struct moves *moves, int direction,
			  uint64_t end_ns)
{
	struct tierd_promoter_stats *stats = &promoter->stats;
	struct tierd_job job = {
	    .page = moves->page,
	    .order = moves->order,
	    .source = moves->source,
	    .dest = moves->dest,
	    .n = moves->n,
	    .process = promoter->orders.process,
	    .processes = promoter->orders.processes,
	    .fate = moves->fate,
	    .node = moves->node,
	    .tries = moves->tries,
	};
	uint64_t pages;

	if (moves->n == 0)
		return 0;
	memset(moves->fate, TIERD_NOT_TRIED, moves->n);
	memset(moves->tries, 0, moves->n);
	memcpy(moves->node, moves->source, moves->n * sizeof(moves->node[0]));
	if (!tap_fates(promoter, moves, direction))
		while (!interrupted(promoter) && sys_monotonic_ns() < end_ns &&
		       tierd_mover_run(promoter->mover, &job, promoter->settings.slice_ns) == 1)
			;
	tap_job(promoter, moves, direction);
	pages = write_down(promoter, moves, direction);
	stats->moved_bytes += job.moved_bytes;
	stats->retries += job.retries;
	for (size_t i = 0; job.failed > 0 && i <= TIERD_ERRNO_MAX; i++)
		stats->errors[i] += job.errors[i];
	if (job.longest_call_ns > stats->longest_call_ns)
		stats->longest_call_ns = job.longest_call_ns;
	return pages;
}

/* Demotions that did not happen leave less room than was planned with: the coldest wait. */
static void drop_unplaced(struct tierd_promoter *promoter)
{
	const struct moves *down = &promoter->down;
	struct moves *up = &promoter->up;
	const size_t planned = up->n;
	int64_t missing[TIERD_NODES] = {0}, coming[TIERD_NODES] = {0};

	for (size_t i = 0; i < down->n; i++)
		if (down->fate[i] != TIERD_MOVED)
			missing[down->source[i]] += (int64_t)folio_bytes(down->order[i]);
	for (size_t i = 0; i < planned; i++)
		coming[up->dest[i]] += (int64_t)PAGE_BYTES;
	up->n = 0;
	for (size_t i = 0; i < planned; i++) {
		const struct candidate candidate = up->of[i];
		const int64_t left = promoter->room[candidate.dest];

		if (coming[candidate.dest] <
		    missing[candidate.dest] - (left > 0 ? left : 0) + (int64_t)PAGE_BYTES)
			put_back(promoter, candidate);
		else
			plan_move(up, &candidate, 0);
		coming[candidate.dest] -= (int64_t)PAGE_BYTES;
	}
}

/*
 * Bytes promoted in the second until now, and in all of the step in which it begins: what may
 * still come must not pass the quota in any second. Steps that are over are forgotten.
 */
uint64_t promoted_lately(struct tierd_promoter *promoter)
{
	uint64_t step = tap_now(promoter) / STEP_NS, sum = 0;

	if (step - promoter->last_step >= STEPS_KEPT)
		memset(promoter->step, 0, sizeof(promoter->step));
	else
		while (promoter->last_step < step)
			promoter->step[++promoter->last_step % STEPS_KEPT] = 0;
	promoter->last_step = step;
	for (size_t i = 0; i < STEPS_KEPT; i++)
		sum += promoter->step[i];
	return sum;
}

/* So much was promoted just now: it is taken off the quota, and the most of any second kept. */
void spend_quota(struct tierd_promoter *promoter, uint64_t bytes)
{
	uint64_t sum;

	if (bytes == 0)
		return;
	bucket_take(&promoter->quota, (double)bytes, tap_now(promoter));
	sum = promoted_lately(promoter) + bytes;
	/* Only the last second of it counts. */
	sum -= promoter->step[(promoter->last_step + 1) % STEPS_KEPT];
	promoter->step[promoter->last_step % STEPS_KEPT] += bytes;
	if (sum > promoter->stats.most_in_a_second)
		promoter->stats.most_in_a_second = sum;
}

/* Whether some wait, for whom there was quota and no place. */
static bool no_place(const struct tierd_promoter *promoter)
{
	return promoter->waiting.n > 0 && promoter->up.n == 0 && promoter->down.n == 0 &&
	       promoter->quota.tokens >= (double)PAGE_BYTES;
}

int64_t promote_work(struct tierd_promoter *promoter)
{
	struct tierd_promoter_stats *stats = &promoter->stats;
	uint64_t start = tap_now(promoter), cpu = tierd_thread_cpu_ns(), end, promoted, demoted;
	double taken;

	stats->intervals++;
	if (tap_stands(promoter, interrupted(promoter)))
		return 0;
	read_records(promoter, start);
	if (promoter->waiting.n == 0 || start < promoter->rest_until_ns) {
		promoter->demand *= 1.0 - promoter->settings.demand_weight;
		stats->cpu_ns += tierd_thread_cpu_ns() - cpu;
		return 0;
	}
	promoter->up.n = promoter->down.n = 0;
	read_room(promoter);
	pick(promoter, start);
	pick_ahead(promoter);
	promoter->rest_until_ns = no_place(promoter) ? start + promoter->settings.rest_ns : 0;
	/* From here on: on a slow CPU, picking alone may take that long. */
	end = sys_monotonic_ns() + promoter->settings.work_limit_ns;
	demoted = carry_out(promoter, &promoter->down, TIERD_DEMOTE, end);
	if (promoter->down.n > 0)
		drop_unplaced(promoter);
	promoted = carry_out(promoter, &promoter->up, TIERD_PROMOTE, end);
	taken = (double)(promoted * PAGE_BYTES);
	spend_quota(promoter, promoted * PAGE_BYTES);
	promoter->demand += (taken - promoter->demand) * promoter->settings.demand_weight;
	stats->promoted += promoted;
	stats->demoted += demoted;
	stats->cpu_ns += tierd_thread_cpu_ns() - cpu;
	if (sys_monotonic_ns() - start > stats->longest_ns)
		stats->longest_ns = sys_monotonic_ns() - start;
	return (int64_t)(promoted + demoted);
}
