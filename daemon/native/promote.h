/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the promoter: hot records become candidates (promote_read.c, which knows what moved
 * recently). Candidates become moves (promote_pick.c) or wait (promote_wait.c). The mover executes
 * moves (promote_move.c). promote.c has the thread, its interval and its orders.
 */
#ifndef TIERD_PROMOTE_H
#define TIERD_PROMOTE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bucket.h"
#include "pagekey.h"
#include "tierd_promoter.h"

enum {
	/* Records read in an interval, and candidates that wait in it; a power of two. */
	CANDIDATES_MAX = 32768,
	/* So many candidates stay when there were too many. */
	WAITING_MAX = CANDIDATES_MAX / 2,
	WAITING_SLOTS = 2 * CANDIDATES_MAX,
	MOVES_MAX = 8192,
	OUTCOMES_MAX = 1 << 17,
	RECENT_SETS = 1 << 15,
	RECENT_WAYS = 4,
	/* Steps of a second, for the bytes promoted in any second, and the step it begins in. */
	SECOND_STEPS = 100,
	STEPS_KEPT = SECOND_STEPS + 1,
	STEP_NS = 10000000,
};

/* A promotable page. `bar`: the rule's threshold against its demotion candidate. */
struct candidate {
	uint64_t page;
	uint64_t seen_ns;
	struct tierd_estimate hot;
	float bar;
	int16_t node;
	int16_t dest;
};

/* A candidate in the heap, with its heat as the key. */
struct waiter {
	float heat;
	uint16_t index;
};

/*
 * Candidates by heat and by page. `heap` has the indices of all of the pool: those of the n
 * that wait, and behind them the free ones. `at`: each candidate's place in it. A slot is an
 * index and one more; 0 is free.
 */
struct waiting {
	size_t n;
	struct candidate pool[CANDIDATES_MAX];
	struct waiter heap[CANDIDATES_MAX];
	uint16_t at[CANDIDATES_MAX];
	uint16_t slot[WAITING_SLOTS];
	uint32_t of_node[TIERD_NODES];
};

struct recent {
	uint64_t page;
	uint64_t time_ns; /* the lowest bit says the direction */
};

struct ring {
	unsigned char *memory;
	uint32_t capacity;
	uint64_t head;
};

/* Moves of one direction on their way through the mover; `of`: what each was planned for. */
struct moves {
	size_t n;
	struct candidate of[MOVES_MAX];
	uint64_t page[MOVES_MAX];
	int16_t source[MOVES_MAX];
	int16_t dest[MOVES_MAX];
	int16_t node[MOVES_MAX];
	uint8_t order[MOVES_MAX];
	uint8_t fate[MOVES_MAX];
	uint8_t tries[MOVES_MAX];
};

struct tap;

struct tierd_promoter {
	struct tierd_mover *mover;
	/* NULL but for recordings and replays. */
	struct tap *tap;
	pthread_mutex_t lock;
	pthread_t thread;
	bool running;
	atomic_uint wake;
	atomic_uint stop;
	atomic_uint holds;

	struct tierd_promoter_settings settings;
	struct tierd_rule rule;
	struct tierd_orders orders;
	uint64_t ordered_ns;
	uint64_t rest_until_ns;
	size_t next_victim;
	/* The span of the last record's page, in which the next one often is. */
	size_t last_span;
	struct ring ring;
	struct bucket quota;
	/* Bytes promoted in a recent interval; as much is made free ahead. */
	double demand;
	float coldest_promoted;
	int64_t room[TIERD_NODES];
	/* By node, since the orders came: free bytes then, net bytes moved in, bytes moved out. */
	int64_t free_then[TIERD_NODES];
	int64_t moved_in[TIERD_NODES];
	int64_t left[TIERD_NODES];
	/* By node: time of the last MemFree, and what it said before anything had moved in. */
	uint64_t asked_ns[TIERD_NODES];
	int64_t free_said[TIERD_NODES];
	uint64_t step[STEPS_KEPT];
	uint64_t last_step;

	struct waiting waiting;
	/* Those that could not be placed in this interval, and those given up. */
	struct candidate aside[CANDIDATES_MAX];
	/* Time of the orders by which candidates that waited too long were rejected. */
	uint64_t swept_ns;
	struct moves up;
	struct moves down;
	struct recent recent[RECENT_SETS * RECENT_WAYS];

	struct tierd_outcome *outcome;
	size_t outcomes;
	struct tierd_promoter_stats stats;
};

/* promote_read.c */
void read_records(struct tierd_promoter *promoter, uint64_t now_ns);
/* Whether the move is ping-pong: a promotion soon after the page's demotion. */
bool recent_add(struct tierd_promoter *promoter, uint64_t page, int direction, uint64_t now_ns);
/* promote_wait.c */
void waiting_clear(struct waiting *waiting);
/* Of two entries of a page the hotter stays. There is space for it. */
void waiting_add(struct waiting *waiting, const struct candidate *candidate);
/* The hottest; there must be one. */
struct candidate waiting_pop(struct waiting *waiting);
bool waiting_remove(struct waiting *waiting, uint64_t page);
/* Remove candidates seen no later than that; returns their number. */
size_t waiting_since(struct waiting *waiting, uint64_t seen_ns, struct candidate *out);
/* promote_pick.c */
void read_room(struct tierd_promoter *promoter);
void pick(struct tierd_promoter *promoter, uint64_t now_ns);
void pick_ahead(struct tierd_promoter *promoter);
void note_free(struct tierd_promoter *promoter);
/* promote_move.c */
int64_t promote_work(struct tierd_promoter *promoter);
void hold_back(struct tierd_promoter *promoter, const struct candidate *candidate,
	       enum tierd_reason reason, uint64_t now_ns);
uint64_t promoted_lately(struct tierd_promoter *promoter);
void spend_quota(struct tierd_promoter *promoter, uint64_t bytes);
/*
 * promote_tap.c: all inputs of the promoter but records, orders and settings, and all its
 * choices, pass through these functions. A call enters, which takes the lock, and leaves.
 */
void enter(struct tierd_promoter *promoter, enum tierd_tap_kind kind);
void leave(struct tierd_promoter *promoter, uint64_t value);
uint64_t tap_now(struct tierd_promoter *promoter);
uint64_t tap_node_free(struct tierd_promoter *promoter, int node);
/* Whether to move nothing now. */
bool tap_stands(struct tierd_promoter *promoter, bool stands);
void tap_record(struct tierd_promoter *promoter, const struct tierd_hot_record *record);
void tap_held(struct tierd_promoter *promoter, const struct candidate *candidate,
	      enum tierd_reason reason);
/* Recorded results in place of the mover's; false outside a replay. */
bool tap_fates(struct tierd_promoter *promoter, struct moves *moves, int direction);
/* The results of a whole job. */
void tap_job(struct tierd_promoter *promoter, const struct moves *moves, int direction);

/* Plan one more move; the caller has checked that there is space for it. */
static inline void plan_move(struct moves *moves, const struct candidate *of, uint8_t order)
{
	size_t i = moves->n++;

	moves->of[i] = *of;
	moves->page[i] = of->page;
	moves->source[i] = of->node;
	moves->dest[i] = of->dest;
	moves->order[i] = order;
}

#endif
