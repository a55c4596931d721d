/* SPDX-License-Identifier: Apache-2.0 */
/* What Python sees of the promoter, and of what becomes of pages. As in tierd_native.h, plain
 * declarations only. */
#ifndef TIERD_PROMOTER_H
#define TIERD_PROMOTER_H

#include "tierd_rule.h"

/* ---- promoter: hot pages of profiling cards to moves, at an interval of its own ---- */

/* Cards of the module, node numbers, and nodes that are tried as destination of a move. */
enum { TIERD_CARDS = 64, TIERD_NODES = 256, TIERD_WAYS = 4 };

/* struct tierd_record of kmod/uapi/tierd.h, with a card's names (a test compares). */
struct tierd_hot_record {
	uint64_t page;
	uint64_t pfn;
	uint64_t time_ns;
	uint8_t kind;
	uint8_t flags;
	uint8_t order;
	uint8_t card;
	int16_t node;
	uint16_t count;
};

/* Why a decision came out as it did: tierd.core.migration.Reason, number for number. */
enum tierd_reason {
	TIERD_HOTTER = 0,
	TIERD_MAKES_ROOM = 1,
	TIERD_NOT_MOVABLE = 2,
	TIERD_MOVED_LATELY = 3,
	TIERD_NOT_HOTTER = 4,
	TIERD_NO_PLACE = 5,
	TIERD_OVER_QUOTA = 6,
	TIERD_PART_OF_HUGE = 7,
	TIERD_OVERFLOW = 8,
	TIERD_NOT_WORTH = 9,
	TIERD_REASONS = 10
};

enum { TIERD_DEMOTE = 0, TIERD_PROMOTE = 1 };

/* What became of a page. `bar`: the heat it had to pass, not a number where none was. */
struct tierd_outcome {
	uint64_t page;
	uint64_t time_ns;
	float heat;
	float bar;
	int16_t source;
	int16_t dest;
	int16_t node;
	uint8_t order;
	uint8_t fate;
	uint8_t direction;
	uint8_t reason;
	uint8_t pad[6];
};

/* A page that may leave a fast node, with its heat as the heat table has it. */
struct tierd_victim {
	uint64_t page;
	float heat;
	int16_t node;
	uint8_t order;
	uint8_t pad;
};

struct tierd_promoter_settings {
	uint64_t interval_ns;
	uint64_t quota_bytes_per_s; /* promoted, in any second */
	uint64_t residency_ns;	    /* a moved page stays */
	uint64_t bounce_ns;	    /* promoted again this soon after a demotion: a bounce */
	uint64_t patience_ns;	    /* how long a page that found no room or quota waits */
	float margin;
	float confidence;
	float heat_s;	     /* heat of a page with one access a second, for ever */
	float rate_cap;	     /* accesses a second beyond which heat does not grow */
	float visits;	     /* accesses that a request to slow memory stands for */
	float copy_requests; /* that a page's own copy into slow memory makes */
	float least_rate;    /* requests a second that are worth a page's move and its victim's */
	float return_rate;   /* ... that are worth them at once, after a demotion; 0: none are */
	uint32_t expected;   /* victims' heat is what is to be expected, not what was seen */
	/* Constants of tierd.core.tuning; what each means is said there. */
	uint64_t work_limit_ns;
	uint64_t slice_ns;
	uint64_t rest_ns;
	uint64_t free_read_ns;
	uint64_t min_epoch_age_ns;
	uint64_t copy_settles_ns;
	double burst_fraction;
	double min_burst_bytes;
	double demand_weight;
};

/* What Python says once a tick; all is copied. Spans ascend by start and are apart. */
struct tierd_orders {
	const struct tierd_span *span;
	size_t spans;
	const struct tierd_process *process;
	size_t processes;
	const struct tierd_victim *victim; /* coldest first */
	size_t victims;
	/* Start of each card's epoch and of the one before, CLOCK_MONOTONIC; accesses a count. */
	uint64_t epoch_ns[64];
	uint64_t epoch_before_ns[64];
	float scale[64];
	/* By node: where its pages are promoted and demoted to, best first, ended by -1. */
	int16_t up[256][4];
	int16_t down[256][4];
	/* Bytes that stay free on it, and its meminfo, open for reading, or -1. */
	uint64_t low[256];
	int32_t free_fd[256];
	/* Bytes free on it that CPUs hold on to, which MemFree leaves out. */
	uint64_t held[256];
};

struct tierd_promoter_stats {
	uint64_t intervals;
	uint64_t records;
	uint64_t stale;		      /* reported before its page was moved; promoted already */
	uint64_t copied;	      /* reported for what their own demotion wrote */
	uint64_t not_slow;	      /* on a node that nothing is promoted from */
	uint64_t promoted;	      /* pages */
	uint64_t demoted;	      /* pages */
	uint64_t bounced;	      /* pages promoted within bounce_ns of their demotion */
	uint64_t bounce_held;	      /* ... that would have been, but for the least residency */
	uint64_t returned;	      /* taken in again before the least residency was over */
	uint64_t held[TIERD_REASONS]; /* decisions not to move, by reason */
	uint64_t outcomes_dropped;
	uint64_t recent_forgotten; /* moves whose time was overwritten too early */
	uint64_t pending;	   /* candidates that wait now */
	uint64_t victims;	   /* of the last orders, those that are left */
	uint64_t cpu_ns;
	uint64_t longest_ns; /* the longest interval's work */
	uint64_t longest_call_ns;
	uint64_t ring_dropped;
	uint64_t ring_closing;
	uint64_t moved_bytes;
	uint64_t retries;
	uint64_t most_in_a_second; /* bytes promoted in any second of 10 ms steps, at most */
	uint64_t errors[256];	   /* 4 KiB pages that failed, by errno */
};

struct tierd_promoter;

/*
 * Works with `mover`, which must outlive it and be used by nobody else but between
 * tierd_promoter_hold and tierd_promoter_release. These functions may be called from any
 * thread.
 */
int tierd_promoter_new(struct tierd_mover *mover, const struct tierd_promoter_settings *settings,
		       struct tierd_promoter **out);
void tierd_promoter_free(struct tierd_promoter *promoter);
/* The mapped ring to read, NULL for none. */
int tierd_promoter_set_ring(struct tierd_promoter *promoter, void *memory, size_t bytes);
int tierd_promoter_set(struct tierd_promoter *promoter,
		       const struct tierd_promoter_settings *settings);
int tierd_promoter_steer(struct tierd_promoter *promoter, const struct tierd_orders *orders);
/* A thread that works at each interval; stop waits for it (100 ms at most). */
int tierd_promoter_start(struct tierd_promoter *promoter);
void tierd_promoter_stop(struct tierd_promoter *promoter);
/* One interval's work, now; the number of pages moved. */
int64_t tierd_promoter_step(struct tierd_promoter *promoter);
/* Between these nothing is moved; hold waits for the work in hand. */
void tierd_promoter_hold(struct tierd_promoter *promoter);
void tierd_promoter_release(struct tierd_promoter *promoter);
/* Outcomes that were not taken yet, oldest first; their number. */
int64_t tierd_promoter_take(struct tierd_promoter *promoter, struct tierd_outcome *out,
			    size_t room);
/* Bytes that may be promoted at once, now: what the last second has left of the quota. */
uint64_t tierd_promoter_quota_left(struct tierd_promoter *promoter);
/* Moves that somebody else made just now: for quota, residency and bounces. */
void tierd_promoter_note(struct tierd_promoter *promoter, const uint64_t *page,
			 const uint8_t *order, const uint8_t *fate, const uint8_t *direction,
			 size_t n, uint64_t time_ns);
void tierd_promoter_get_stats(struct tierd_promoter *promoter, struct tierd_promoter_stats *stats);

/*
 * ---- a tap: what a promoter was told, and what it chose ----
 *
 * Calls in the order in which they took effect. Each used so many items of the other columns, next
 * to those of the call before it.
 */

enum tierd_tap_kind {
	TIERD_TAP_NEW = 1,
	TIERD_TAP_SET = 2,
	TIERD_TAP_STEER = 3,
	TIERD_TAP_NOTE = 4,
	TIERD_TAP_STEP = 5,
	TIERD_TAP_QUOTA = 6
};

/*
 * `value`: what it returned. `held`, `held_sum`: candidates that were held back, and the sum of
 * hashes of each with its reason. `stood`: it was told to move nothing.
 */
struct tierd_tap_call {
	uint64_t value;
	uint64_t held_sum;
	uint32_t held;
	uint32_t clocks;
	uint32_t frees;
	uint32_t records;
	uint32_t jobs;
	uint8_t kind;
	uint8_t stood;
	uint8_t pad[2];
};

/* What the kernel said is free on a node. */
struct tierd_tap_free {
	int64_t bytes;
	int32_t node;
	uint32_t pad;
};

/* So many moves of one direction that the mover was given. */
struct tierd_tap_job {
	uint32_t moves;
	uint32_t direction;
};

/* A move, in the order of its job, and what became of it. */
struct tierd_tap_move {
	uint64_t page;
	float heat;
	float bar;
	int16_t source;
	int16_t dest;
	int16_t node;
	uint8_t order;
	uint8_t fate;
};

/* The parts of a log, each a column of the structs above. */
enum tierd_tap_part {
	TIERD_TAP_CALLS = 0,
	TIERD_TAP_CLOCKS = 1, /* uint64_t, CLOCK_MONOTONIC */
	TIERD_TAP_FREES = 2,
	TIERD_TAP_RECORDS = 3,
	TIERD_TAP_JOBS = 4,
	TIERD_TAP_MOVES = 5
};

/* A log is an array of these, one for each part. */
struct tierd_tap_column {
	void *item;
	size_t n;
};

/*
 * Note from now on what the promoter is told and chooses, right after tierd_promoter_new; or
 * nothing any more, and what was noted is gone.
 */
int tierd_promoter_tap(struct tierd_promoter *promoter, int on);
/*
 * What was noted since the last call; it stays as it is until the next one. Returns 0, or how many
 * calls were not noted since the first for which there was no room: none is from there on.
 */
uint64_t tierd_promoter_tapped(struct tierd_promoter *promoter, struct tierd_tap_column *out);
/*
 * Calls from now on are told what these were told, by the clock, the kernel and the mover, and
 * nothing is moved; the columns must outlive them. Sums of the calls' counts are no more than the
 * columns have. A promoter that was new before its first call is as new as the recorded one.
 */
int tierd_promoter_replay(struct tierd_promoter *promoter, const struct tierd_tap_column *given);

#endif
