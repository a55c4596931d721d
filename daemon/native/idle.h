/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the scanner by idle page tracking. A unit is what has one flag and one history: a 4 KiB
 * page, or 2 MiB that the process maps as a whole. idle_frames.c finds units and their page
 * frames, idle.c makes the step, idle_bitmap.c reads and writes the kernel's flags, idle_shared.c
 * joins what the targets that map a frame see, and idle_history.c says what it makes of pages.
 */
#ifndef TIERD_IDLE_INLINE_H
#define TIERD_IDLE_INLINE_H

#include <stdbool.h>

#include "pagekey.h"
#include "tierd_idle.h"

enum {
	UNIT_HUGE = 1 << 0,	/* mapped as a whole */
	UNIT_SHARED = 1 << 1,	/* mapped more than once */
	UNIT_TAIL = 1 << 2,	/* part of a larger folio, whose first frame has the flag */
	UNIT_ACCESSED = 1 << 3, /* since it was marked */
	UNIT_UNTRACKED = 1 << 4 /* the kernel keeps no flag of it */
};

struct unit {
	uint64_t vpn;
	uint64_t pfn;
	uint8_t state;
};

/* Positions in the list of units are the lower bits of a sorting key, frames the upper ones. */
enum {
	UNIT_BITS = 13,
	WORD_FRAMES = 64,
	/* sysfs moves at most a page of data a call. */
	CALL_WORDS = 512,
	WINDOW = HUGE_PAGES,
	PAGEMAP_ENTRIES = 4096,
	/* Entries of holes that a step reads on kernels that do not tell of holes. */
	STEP_ENTRIES = 1 << 18,
	PAGEMAP_REGIONS = 64
};

_Static_assert(TIERD_IDLE_UNITS == 1 << UNIT_BITS, "a key has room for each unit");

/* All that a walk over a pagemap needs and finds: a thread that waits in one shares nothing. */
struct tierd_idle_reader {
	struct tierd_idle_calls calls;
	/* The kernel has no PAGEMAP_SCAN (before Linux 6.7). */
	bool plain_pagemap;
	/* What the walk found: where it began, where to go on, whether all was walked, units. */
	uint64_t start, next;
	bool done;
	size_t units;
	uint64_t entries_read;
	struct unit unit[TIERD_IDLE_UNITS];
	uint64_t entry[PAGEMAP_ENTRIES];
	struct tierd_region region[PAGEMAP_REGIONS];
};

struct tierd_idle {
	struct tierd_idle_calls calls;
	int bitmap;
	int flags;
	/* Whoever made it, and histories. */
	size_t users;
	struct tierd_idle_stats stats;
	uint64_t history_limit;
	/* idle_shared.c: a word for each frame. */
	uint32_t *frame;
	uint64_t frames;
	uint32_t step;
	struct tierd_span *span;
	int16_t *node;
	size_t spans, span_used;
	size_t units;
	struct unit unit[TIERD_IDLE_UNITS];
	uint64_t sorted[TIERD_IDLE_UNITS], scratch[TIERD_IDLE_UNITS];
	uint64_t word[CALL_WORDS];
	uint64_t flag[CALL_WORDS];
	/* Flags of the frames from `window_start` on, WINDOW of them; UINT64_MAX: none. */
	uint64_t window[WINDOW], window_start;
};

/* The unit that a sorting key stands for. */
static inline struct unit *unit_of(struct tierd_idle *idle, uint64_t key)
{
	return &idle->unit[key & (TIERD_IDLE_UNITS - 1)];
}

static inline uint64_t unit_pages(const struct unit *unit)
{
	return unit->state & UNIT_HUGE ? HUGE_PAGES : 1;
}

/* idle_calls.c: those of the kernel. */
extern const struct tierd_idle_calls idle_calls;

/* idle_bitmap.c: of the sorted units; results are UNIT_ACCESSED and UNIT_UNTRACKED. */
int idle_check(struct tierd_idle *idle, const struct tierd_idle_step *step);
/* Mark the folios that units are later parts of, if a bit of `states` is set. */
int idle_mark_folios(struct tierd_idle *idle, uint8_t states);
/* Mark units as idle of which a bit of `states` is set; 0: all. */
int idle_mark(struct tierd_idle *idle, uint8_t states);
/* Words of the bitmap from `first` on, at most CALL_WORDS, into idle->word; 0 behind its end. */
int idle_read_words(struct tierd_idle *idle, uint64_t first, size_t count);

/* idle_shared.c */
int idle_shared_new(struct tierd_idle *idle, uint64_t frames);
void idle_shared_free(struct tierd_idle *idle);
/* A step begins; idle->step tells it from others. */
void idle_shared_step(struct tierd_idle *idle);
/* Before shared units are marked: remember those that were accessed since another target did so. */
int idle_shared_before_mark(struct tierd_idle *idle);
/* Shared units were marked of which a bit of `states` is set; 0: all. */
void idle_shared_marked(struct tierd_idle *idle, uint8_t states);
/* Whether one was accessed since the step `since`, by any of its mappings. */
bool idle_shared_accessed(struct tierd_idle *idle, const struct unit *unit, uint32_t since);

/*
 * idle_history.c: what the units, which ascend by page number, say of the pages of the ranges in
 * [step->start, step->next): histories age, and records of hot pages are made.
 */
void idle_visit(struct tierd_idle *idle, struct tierd_idle_histories *histories,
		struct tierd_idle_step *step, struct tierd_hot_record *record);

#endif
