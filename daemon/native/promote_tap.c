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

enum {
	CALLS_MAX = 8192,
	CLOCKS_MAX = 1 << 17,
	FREES_MAX = 1 << 15,
	RECORDS_MAX = 1 << 17,
	JOBS_MAX = 2 * CALLS_MAX,
	TAP_MOVES_MAX = 1 << 16,
};

struct tap {
	struct tierd_tap_columns set[2];
	int filled;
	/* The call in hand, and what the columns held before it. */
	struct tierd_tap_call call;
	struct tierd_tap_columns before;
	bool in_call;
	/* No room for part of the call in hand. */
	bool full;
	uint64_t dropped;
	/* What is told again; `used`: counts of its columns that calls have used. */
	const struct tierd_tap_columns *given;
	struct tierd_tap_columns used;
	/* What the call in hand was told. */
	struct tierd_tap_call told;
	uint64_t last_ns;
	uint64_t last_free[TIERD_NODES];
};

static struct tierd_tap_columns *filled(struct tap *tap)
{
	return &tap->set[tap->filled];
}

static bool notes(const struct tap *tap)
{
	return tap != NULL && tap->in_call && tap->dropped == 0 && !tap->full;
}

static bool make_columns(struct tierd_tap_columns *columns)
{
	columns->call = malloc(CALLS_MAX * sizeof(*columns->call));
	columns->clock = malloc(CLOCKS_MAX * sizeof(*columns->clock));
	columns->free = malloc(FREES_MAX * sizeof(*columns->free));
	columns->record = malloc(RECORDS_MAX * sizeof(*columns->record));
	columns->job = malloc(JOBS_MAX * sizeof(*columns->job));
	columns->move = malloc(TAP_MOVES_MAX * sizeof(*columns->move));
	return columns->call != NULL && columns->clock != NULL && columns->free != NULL &&
	       columns->record != NULL && columns->job != NULL && columns->move != NULL;
}

static struct tap *tap_new(void)
{
	struct tap *tap = calloc(1, sizeof(*tap));

	if (tap == NULL)
		return NULL;
	if (!make_columns(&tap->set[0]) || !make_columns(&tap->set[1])) {
		tap_free(tap);
		return NULL;
	}
	return tap;
}

void tap_free(struct tap *tap)
{
	if (tap == NULL)
		return;
	for (int i = 0; i < 2; i++) {
		free(tap->set[i].call);
		free(tap->set[i].clock);
		free(tap->set[i].free);
		free(tap->set[i].record);
		free(tap->set[i].job);
		free(tap->set[i].move);
	}
	free(tap);
}

int tierd_promoter_tap(struct tierd_promoter *promoter)
{
	struct tap *tap = tap_new();

	if (tap == NULL)
		return -ENOMEM;
	pthread_mutex_lock(&promoter->lock);
	tap_free(promoter->tap);
	promoter->tap = tap;
	tap->set[0].call[0] = (struct tierd_tap_call){.kind = TIERD_TAP_NEW, .clocks = 1};
	tap->set[0].clock[0] = promoter->quota.filled_ns;
	tap->set[0].calls = tap->set[0].clocks = 1;
	pthread_mutex_unlock(&promoter->lock);
	return 0;
}

void tierd_promoter_untap(struct tierd_promoter *promoter)
{
	pthread_mutex_lock(&promoter->lock);
	tap_free(promoter->tap);
	promoter->tap = NULL;
	pthread_mutex_unlock(&promoter->lock);
}

uint64_t tierd_promoter_tapped(struct tierd_promoter *promoter, struct tierd_tap_columns *out)
{
	struct tap *tap;
	struct tierd_tap_columns *fresh;
	uint64_t dropped;

	memset(out, 0, sizeof(*out));
	pthread_mutex_lock(&promoter->lock);
	tap = promoter->tap;
	if (tap == NULL) {
		pthread_mutex_unlock(&promoter->lock);
		return 0;
	}
	*out = *filled(tap);
	dropped = tap->dropped;
	tap->filled = 1 - tap->filled;
	fresh = filled(tap);
	fresh->calls = fresh->clocks = fresh->frees = 0;
	fresh->records = fresh->jobs = fresh->moves = 0;
	pthread_mutex_unlock(&promoter->lock);
	return dropped;
}

int tierd_promoter_replay(struct tierd_promoter *promoter, const struct tierd_tap_columns *given)
{
	struct tap *tap = promoter->tap;

	if (tap == NULL) {
		tap = tap_new();
		if (tap == NULL)
			return -ENOMEM;
	}
	pthread_mutex_lock(&promoter->lock);
	promoter->tap = tap;
	tap->given = given;
	memset(&tap->used, 0, sizeof(tap->used));
	if (given->calls > 0 && given->call[0].kind == TIERD_TAP_NEW) {
		tap_begin(promoter, TIERD_TAP_NEW);
		promoter->quota.filled_ns = tap_now(promoter);
		promoter->quota.tokens = 0.0;
		tap_end(promoter, 0);
	}
	pthread_mutex_unlock(&promoter->lock);
	return 0;
}

void tap_begin(struct tierd_promoter *promoter, enum tierd_tap_kind kind)
{
	struct tap *tap = promoter->tap;

	if (tap == NULL)
		return;
	tap->in_call = true;
	tap->full = filled(tap)->calls == CALLS_MAX;
	tap->before = *filled(tap);
	tap->call = (struct tierd_tap_call){.kind = (uint8_t)kind};
	memset(&tap->told, 0, sizeof(tap->told));
	if (tap->given != NULL && tap->used.calls < tap->given->calls)
		tap->told = tap->given->call[tap->used.calls];
}

/* The next call is told what comes after all that this one was told, used or not. */
static void next_told(struct tap *tap)
{
	struct tierd_tap_columns *used = &tap->used;
	const struct tierd_tap_call *told;

	if (used->calls == tap->given->calls)
		return;
	told = &tap->given->call[used->calls++];
	used->clocks += tap->told.clocks;
	used->frees += tap->told.frees;
	used->records += told->records;
	for (; tap->told.jobs > 0; tap->told.jobs--)
		used->moves += tap->given->job[used->jobs++].moves;
}

void tap_end(struct tierd_promoter *promoter, uint64_t value)
{
	struct tap *tap = promoter->tap;

	if (tap == NULL)
		return;
	tap->call.value = value;
	if (tap->dropped > 0 || tap->full) {
		*filled(tap) = tap->before;
		tap->dropped++;
	} else {
		filled(tap)->call[filled(tap)->calls++] = tap->call;
	}
	if (tap->given != NULL)
		next_told(tap);
	tap->in_call = false;
}

static uint64_t told_now(struct tap *tap)
{
	if (tap->told.clocks > 0) {
		tap->told.clocks--;
		tap->last_ns = tap->given->clock[tap->used.clocks++];
	}
	return tap->last_ns;
}

uint64_t tap_now(struct tierd_promoter *promoter)
{
	struct tap *tap = promoter->tap;
	uint64_t now_ns;

	if (tap == NULL)
		return sys_monotonic_ns();
	now_ns = tap->given != NULL ? told_now(tap) : sys_monotonic_ns();
	if (!notes(tap))
		return now_ns;
	if (filled(tap)->clocks == CLOCKS_MAX) {
		tap->full = true;
		return now_ns;
	}
	filled(tap)->clock[filled(tap)->clocks++] = now_ns;
	tap->call.clocks++;
	return now_ns;
}

static uint64_t told_free(struct tap *tap, int node)
{
	while (tap->told.frees > 0) {
		const struct tierd_tap_free *said = &tap->given->free[tap->used.frees++];

		tap->told.frees--;
		if (said->node >= 0 && said->node < TIERD_NODES)
			tap->last_free[said->node] = (uint64_t)said->bytes;
		if (said->node == node)
			break;
	}
	return tap->last_free[node];
}

uint64_t tap_node_free(struct tierd_promoter *promoter, int node)
{
	struct tap *tap = promoter->tap;
	uint64_t bytes;

	if (tap != NULL && tap->given != NULL)
		bytes = told_free(tap, node);
	else
		bytes = sys_node_free(promoter->orders.free_fd[node]);
	if (!notes(tap))
		return bytes;
	if (filled(tap)->frees == FREES_MAX) {
		tap->full = true;
		return bytes;
	}
	filled(tap)->free[filled(tap)->frees++] =
	    (struct tierd_tap_free){.bytes = (int64_t)bytes, .node = node};
	tap->call.frees++;
	return bytes;
}

bool tap_stands(struct tierd_promoter *promoter, bool stands)
{
	struct tap *tap = promoter->tap;

	if (tap == NULL)
		return stands;
	if (tap->given != NULL)
		stands = tap->told.stood != 0;
	tap->call.stood = stands;
	return stands;
}

void tap_record(struct tierd_promoter *promoter, const struct tierd_hot_record *record)
{
	struct tap *tap = promoter->tap;

	if (!notes(tap))
		return;
	if (filled(tap)->records == RECORDS_MAX) {
		tap->full = true;
		return;
	}
	filled(tap)->record[filled(tap)->records++] = *record;
	tap->call.records++;
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
	/* A sum: in which order they were told does not matter. */
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
	if (tap->told.jobs == 0)
		return true;
	tap->told.jobs--;
	job = &tap->given->job[tap->used.jobs++];
	move = &tap->given->move[tap->used.moves];
	tap->used.moves += job->moves;
	for (size_t i = 0; i < moves->n && i < job->moves; i++) {
		/* Nobody knows what would have become of another move. */
		if ((int)job->direction != direction || move[i].page != moves->page[i])
			continue;
		moves->fate[i] = move[i].fate;
		moves->node[i] = move[i].node;
	}
	return true;
}

void tap_job(struct tierd_promoter *promoter, const struct moves *moves, int direction)
{
	struct tap *tap = promoter->tap;
	struct tierd_tap_move *out;

	if (!notes(tap))
		return;
	if (filled(tap)->jobs == JOBS_MAX || filled(tap)->moves + moves->n > TAP_MOVES_MAX) {
		tap->full = true;
		return;
	}
	filled(tap)->job[filled(tap)->jobs++] = (struct tierd_tap_job){
	    .moves = (uint32_t)moves->n,
	    .direction = (uint32_t)direction,
	};
	out = &filled(tap)->move[filled(tap)->moves];
	filled(tap)->moves += moves->n;
	for (size_t i = 0; i < moves->n; i++)
		out[i] = (struct tierd_tap_move){
		    .page = moves->page[i],
		    .heat = moves->of[i].hot.heat,
		    .bar = moves->of[i].bar,
		    .source = moves->source[i],
		    .dest = moves->dest[i],
		    .node = moves->node[i],
		    .order = moves->order[i],
		    .fate = moves->fate[i],
		};
	tap->call.jobs++;
}
