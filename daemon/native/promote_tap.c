/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tap between the promoter and its environment. It records the values of the clock, the kernel
 * and the mover, and the promoter's choices. In a replay it returns the recorded values. Two sets
 * of columns take turns: one is filled while the caller reads the other.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "promote.h"
#include "sys.h"

enum { COLUMNS = TIERD_TAP_MOVES + 1 };

/* The columns' items; memory that is not used is never touched. */
struct set {
	struct tierd_tap_call call[1 << 13];
	uint64_t clock[1 << 17];
	struct tierd_tap_free free[1 << 15];
	struct tierd_hot_record record[1 << 17];
	struct tierd_tap_job job[1 << 14];
	struct tierd_tap_move move[1 << 16];
	size_t n[COLUMNS];
};

#define COLUMN_OF(of)                                                                              \
	{offsetof(struct set, of), sizeof(((struct set *)0)->of[0]),                               \
	 sizeof(((struct set *)0)->of) / sizeof(((struct set *)0)->of[0])}

static const struct {
	size_t at;
	size_t size;
	size_t most;
} COLUMN[COLUMNS] = {
    [TIERD_TAP_CALLS] = COLUMN_OF(call), [TIERD_TAP_CLOCKS] = COLUMN_OF(clock),
    [TIERD_TAP_FREES] = COLUMN_OF(free), [TIERD_TAP_RECORDS] = COLUMN_OF(record),
    [TIERD_TAP_JOBS] = COLUMN_OF(job),	 [TIERD_TAP_MOVES] = COLUMN_OF(move),
};

struct tap {
	struct set set[2];
	/* Which of them is filled. */
	unsigned int turn;
	/* The call in hand, and how many items it has of each column. */
	struct tierd_tap_call call;
	uint32_t noted[COLUMNS];
	/* An item of the call in hand found no space. */
	bool full;
	uint64_t dropped;
	/* The recorded columns of a replay, and how many items of each were used. */
	const struct tierd_tap_column *given;
	size_t used[COLUMNS];
	/* What is left of the recorded call that answers the call in hand. */
	uint32_t left[COLUMNS];
	bool stood;
	uint64_t last_ns;
	uint64_t last_free[TIERD_NODES];
};

/* Add an item to a column, unless part of the call is left out. */
static void note(struct tap *tap, enum tierd_tap_part part, const void *item)
{
	struct set *set = &tap->set[tap->turn];
	size_t *n = &set->n[part];

	tap->full = tap->full || tap->dropped > 0 || *n == COLUMN[part].most;
	if (tap->full)
		return;
	memcpy((char *)set + COLUMN[part].at + (*n)++ * COLUMN[part].size, item, COLUMN[part].size);
	tap->noted[part]++;
}

/* The recorded call's next item of a column; NULL if there is none. */
static const void *next(struct tap *tap, enum tierd_tap_part part)
{
	if (tap->left[part] == 0)
		return NULL;
	tap->left[part]--;
	return (char *)tap->given[part].item + tap->used[part]++ * COLUMN[part].size;
}

void enter(struct tierd_promoter *promoter, enum tierd_tap_kind kind)
{
	const struct tierd_tap_call *told;
	struct tap *tap;

	pthread_mutex_lock(&promoter->lock);
	tap = promoter->tap;
	if (tap == NULL)
		return;
	tap->full = false;
	tap->call = (struct tierd_tap_call){.kind = (uint8_t)kind};
	memset(tap->noted, 0, sizeof(tap->noted));
	if (tap->given == NULL)
		return;
	tap->left[TIERD_TAP_CALLS] = tap->used[TIERD_TAP_CALLS] < tap->given[TIERD_TAP_CALLS].n;
	told = next(tap, TIERD_TAP_CALLS);
	tap->left[TIERD_TAP_CLOCKS] = told == NULL ? 0 : told->clocks;
	tap->left[TIERD_TAP_FREES] = told == NULL ? 0 : told->frees;
	tap->left[TIERD_TAP_JOBS] = told == NULL ? 0 : told->jobs;
	tap->stood = told != NULL && told->stood != 0;
}

static void end_call(struct tap *tap, uint64_t value)
{
	const struct tierd_tap_job *job;

	tap->call.value = value;
	tap->call.clocks = tap->noted[TIERD_TAP_CLOCKS];
	tap->call.frees = tap->noted[TIERD_TAP_FREES];
	tap->call.records = tap->noted[TIERD_TAP_RECORDS];
	tap->call.jobs = tap->noted[TIERD_TAP_JOBS];
	note(tap, TIERD_TAP_CALLS, &tap->call);
	if (tap->full) {
		for (int i = 0; i < COLUMNS; i++)
			tap->set[tap->turn].n[i] -= tap->noted[i];
		tap->dropped++;
	}
	/* The next call is told what comes after all that this one was told, used or not. */
	tap->used[TIERD_TAP_CLOCKS] += tap->left[TIERD_TAP_CLOCKS];
	tap->used[TIERD_TAP_FREES] += tap->left[TIERD_TAP_FREES];
	while ((job = next(tap, TIERD_TAP_JOBS)) != NULL)
		tap->used[TIERD_TAP_MOVES] += job->moves;
}

void leave(struct tierd_promoter *promoter, uint64_t value)
{
	if (promoter->tap != NULL)
		end_call(promoter->tap, value);
	pthread_mutex_unlock(&promoter->lock);
}

int tierd_promoter_tap(struct tierd_promoter *promoter, int on)
{
	struct tap *tap = on ? calloc(1, sizeof(*tap)) : NULL;

	if (on && tap == NULL)
		return -ENOMEM;
	pthread_mutex_lock(&promoter->lock);
	free(promoter->tap);
	promoter->tap = tap;
	pthread_mutex_unlock(&promoter->lock);
	if (on) {
		enter(promoter, TIERD_TAP_NEW);
		note(tap, TIERD_TAP_CLOCKS, &promoter->quota.filled_ns);
		leave(promoter, 0);
	}
	return 0;
}

uint64_t tierd_promoter_tapped(struct tierd_promoter *promoter, struct tierd_tap_column *out)
{
	struct tap *tap;
	uint64_t dropped = 0;

	memset(out, 0, COLUMNS * sizeof(*out));
	pthread_mutex_lock(&promoter->lock);
	tap = promoter->tap;
	if (tap != NULL) {
		struct set *set = &tap->set[tap->turn];

		for (int i = 0; i < COLUMNS; i++)
			out[i] = (struct tierd_tap_column){(char *)set + COLUMN[i].at, set->n[i]};
		dropped = tap->dropped;
		tap->turn ^= 1;
		memset(tap->set[tap->turn].n, 0, sizeof(set->n));
	}
	pthread_mutex_unlock(&promoter->lock);
	return dropped;
}

int tierd_promoter_replay(struct tierd_promoter *promoter, const struct tierd_tap_column *given)
{
	const struct tierd_tap_call *first = given[TIERD_TAP_CALLS].item;

	if (promoter->tap == NULL) {
		promoter->tap = calloc(1, sizeof(*promoter->tap));
		if (promoter->tap == NULL)
			return -ENOMEM;
	}
	promoter->tap->given = given;
	memset(promoter->tap->used, 0, sizeof(promoter->tap->used));
	if (given[TIERD_TAP_CALLS].n > 0 && first->kind == TIERD_TAP_NEW) {
		enter(promoter, TIERD_TAP_NEW);
		promoter->quota.filled_ns = tap_now(promoter);
		promoter->quota.tokens = 0.0;
		leave(promoter, 0);
	}
	return 0;
}

uint64_t tap_now(struct tierd_promoter *promoter)
{
	struct tap *tap = promoter->tap;
	const uint64_t *told;

	if (tap == NULL)
		return sys_monotonic_ns();
	told = next(tap, TIERD_TAP_CLOCKS);
	if (told != NULL)
		tap->last_ns = *told;
	else if (tap->given == NULL)
		tap->last_ns = sys_monotonic_ns();
	note(tap, TIERD_TAP_CLOCKS, &tap->last_ns);
	return tap->last_ns;
}

uint64_t tap_node_free(struct tierd_promoter *promoter, int node)
{
	struct tap *tap = promoter->tap;
	struct tierd_tap_free free = {.node = node};
	const struct tierd_tap_free *told;

	if (tap == NULL)
		return sys_node_free(promoter->orders.free_fd[node]);
	if (tap->given == NULL)
		tap->last_free[node] = sys_node_free(promoter->orders.free_fd[node]);
	while ((told = next(tap, TIERD_TAP_FREES)) != NULL) {
		if (told->node >= 0 && told->node < TIERD_NODES)
			tap->last_free[told->node] = (uint64_t)told->bytes;
		if (told->node == node)
			break;
	}
	free.bytes = (int64_t)tap->last_free[node];
	note(tap, TIERD_TAP_FREES, &free);
	return tap->last_free[node];
}

bool tap_stands(struct tierd_promoter *promoter, bool stands)
{
	struct tap *tap = promoter->tap;

	if (tap == NULL)
		return stands;
	tap->call.stood = tap->given != NULL ? tap->stood : stands;
	return tap->call.stood;
}

void tap_record(struct tierd_promoter *promoter, const struct tierd_hot_record *record)
{
	if (promoter->tap != NULL)
		note(promoter->tap, TIERD_TAP_RECORDS, record);
}

static uint64_t mixed(uint64_t value)
{
	value ^= value >> 32;
	value *= UINT64_C(0x9E3779B97F4A7C15);
	value ^= value >> 29;
	value *= UINT64_C(0xBF58476D1CE4E5B9);
	return value ^ (value >> 32);
}

void tap_held(struct tierd_promoter *promoter, const struct candidate *candidate,
	      enum tierd_reason reason)
{
	struct tap *tap = promoter->tap;
	uint32_t heat, bar;

	if (tap == NULL)
		return;
	memcpy(&heat, &candidate->hot.heat, sizeof(heat));
	memcpy(&bar, &candidate->bar, sizeof(bar));
	/* The sum does not depend on the order in which candidates were rejected. */
	tap->call.held++;
	tap->call.held_sum +=
	    mixed(candidate->page ^ mixed(((uint64_t)heat << 32 | bar) + (uint64_t)reason));
}

bool tap_fates(struct tierd_promoter *promoter, struct moves *moves, int direction)
{
	struct tap *tap = promoter->tap;
	const struct tierd_tap_job *job;
	const struct tierd_tap_move *move;

	if (tap == NULL || tap->given == NULL)
		return false;
	job = next(tap, TIERD_TAP_JOBS);
	tap->left[TIERD_TAP_MOVES] = job == NULL ? 0 : job->moves;
	for (size_t i = 0; (move = next(tap, TIERD_TAP_MOVES)) != NULL; i++) {
		/* Nobody knows what would have become of another move. */
		if (i < moves->n && (int)job->direction == direction &&
		    move->page == moves->page[i]) {
			moves->fate[i] = move->fate;
			moves->node[i] = move->node;
		}
	}
	return true;
}

void tap_job(struct tierd_promoter *promoter, const struct moves *moves, int direction)
{
	const struct tierd_tap_job job = {(uint32_t)moves->n, (uint32_t)direction};
	struct tap *tap = promoter->tap;

	if (tap == NULL)
		return;
	note(tap, TIERD_TAP_JOBS, &job);
	for (size_t i = 0; i < moves->n; i++) {
		const struct tierd_tap_move move = {
		    .page = moves->page[i],
		    .heat = moves->of[i].hot.heat,
		    .bar = moves->of[i].bar,
		    .source = moves->source[i],
		    .dest = moves->dest[i],
		    .node = moves->node[i],
		    .order = moves->order[i],
		    .fate = moves->fate[i],
		};

		note(tap, TIERD_TAP_MOVES, &move);
	}
}
