/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scans of accessed bits by the kernel's idle page tracking
 * (Documentation/admin-guide/mm/idle_page_tracking.rst). sources/idlepage says when which part of
 * which process is scanned; this code reads and writes the kernel's files and keeps the histories.
 *
 * As in tierd_native.h, plain declarations only. One thread at a time uses a struct tierd_idle and
 * the histories that are scanned with it. Another one may use a reader, which shares nothing with
 * them: to read a pagemap takes the map lock of its process, for which it may wait for ever.
 */
#ifndef TIERD_IDLE_H
#define TIERD_IDLE_H

#include "tierd_promoter.h"

/* A step handles at most so many units: 4 KiB pages, and 2 MiB that are mapped as a whole. */
enum { TIERD_IDLE_UNITS = 8192 };

/* What a step does with the pages that it finds. */
enum tierd_idle_mode {
	/* Mark them as idle: a sampling interval begins. */
	TIERD_IDLE_MARK = 0,
	/* Check whether they are idle still: a sampling interval ends. */
	TIERD_IDLE_CHECK = 1,
	/* Check them and mark those again that were accessed: one interval ends, the next begins.
	 */
	TIERD_IDLE_BOTH = 2
};

/* Since tierd_idle_new. Pages are counted in 4 KiB. */
struct tierd_idle_stats {
	uint64_t pages;		/* present pages that were checked */
	uint64_t accessed;	/* ... and found accessed */
	uint64_t untracked;	/* ... of which the kernel keeps no flag: not on an LRU list */
	uint64_t tails;		/* ... whose flag is that of their folio's first page */
	uint64_t shared;	/* ... that are mapped more than once */
	uint64_t unshared;	/* ... whose other mappings are unknown: frames above the bound */
	uint64_t reads;		/* calls that read the bitmap or page flags */
	uint64_t writes;	/* calls that wrote to the bitmap */
	uint64_t read_words;	/* words of the bitmap that were read: 64 page frames each */
	uint64_t history_bytes; /* memory of histories now */
	uint64_t history_full;	/* times that 2 MiB of a process were passed over for want of it */
};

/* The system calls that are made: pread(2), pwrite(2), and tierd_pagemap_scan for the category. */
struct tierd_idle_calls {
	int64_t (*read)(int fd, void *to, size_t bytes, int64_t offset);
	int64_t (*write)(int fd, const void *from, size_t bytes, int64_t offset);
	int64_t (*present)(int fd, uint64_t start, uint64_t end, uint64_t max_pages,
			   struct tierd_region *region, size_t regions, uint64_t *walk_end);
};

struct tierd_idle;
struct tierd_idle_reader;
struct tierd_idle_histories;

struct tierd_idle_step {
	/* What to do. */
	int32_t mode;
	uint32_t round;	 /* of the scan, which only grows */
	uint64_t key;	 /* of page 0 of the target */
	uint64_t now_ns; /* CLOCK_MONOTONIC */
	uint8_t age;	 /* scans that histories cover by now; 0: what is found accessed is old */
	uint8_t hot_scans;
	uint8_t cold_scans;
	uint8_t report_scans;
	/*
	 * What was done: from which page number, where to go on, whether all that was to be read is
	 * done, and so on.
	 */
	uint64_t start;
	uint64_t next;
	uint64_t done;
	uint64_t records;
	uint64_t units;
	uint64_t pages;
	uint64_t accessed;
	/* As in a record of kind ROUND: pages that became hot, and pages in steady use. */
	uint64_t became_hot;
	uint64_t newly_hot;
	uint64_t steady;
	uint64_t newly_idle;
	/* For the next step: the last folio, whose other pages it may begin with. */
	uint64_t folio;
	uint32_t folio_round;
	uint8_t folio_state;
};

/*
 * bitmap, flags: /sys/kernel/mm/page_idle/bitmap and /proc/kpageflags, open; they stay the
 * caller's. frames: page frames below it may be shared between targets; history_bytes: most memory
 * of histories. calls: NULL, or what stands for the kernel in a test; each returns a count or a
 * negative errno.
 */
int tierd_idle_new(int bitmap, int flags, uint64_t frames, uint64_t history_bytes,
		   const struct tierd_idle_calls *calls, struct tierd_idle **out);
void tierd_idle_free(struct tierd_idle *idle);
/* Which node has which page frames: spans that ascend and are apart. */
int tierd_idle_nodes(struct tierd_idle *idle, const struct tierd_span *span, const int16_t *node,
		     size_t n);
/* The counters, for as long as `idle` lives. */
const struct tierd_idle_stats *tierd_idle_stats(const struct tierd_idle *idle);

/* The histories of a process's pages; `idle` lives as long as they do. */
int tierd_idle_histories_new(struct tierd_idle *idle, struct tierd_idle_histories **out);
void tierd_idle_histories_free(struct tierd_idle_histories *histories);
/* Its ranges of page numbers, which ascend and are apart. */
int tierd_idle_ranges(struct tierd_idle_histories *histories, const struct tierd_span *span,
		      size_t n);
/* Forget all of them, or those of pages that the scan `round` did not meet. */
void tierd_idle_forget(struct tierd_idle_histories *histories);
void tierd_idle_sweep(struct tierd_idle_histories *histories, uint32_t round);

/* calls: as of tierd_idle_new. */
int tierd_idle_reader_new(const struct tierd_idle_calls *calls, struct tierd_idle_reader **out);
void tierd_idle_reader_free(struct tierd_idle_reader *reader);
/*
 * Read which pages of a process are present, and their frames: of the ranges, from page number
 * `start` up to `stop`, `most` units, at most TIERD_IDLE_UNITS. pagemap: the process's file, open.
 * -ESRCH: the process, or the program that it ran, has ended; -EPERM: the kernel hides page
 * frames. Else 0 or -errno of what failed.
 */
int tierd_idle_read(struct tierd_idle_reader *reader, int pagemap, const struct tierd_span *range,
		    size_t ranges, uint64_t start, uint64_t stop, uint64_t most);

/*
 * Mark or check the pages that were read last, of the ranges that the histories have. record: room
 * for a record of kind PAGE for each unit, of pages that are hot. 0 or -errno of what failed.
 */
int tierd_idle_scan(struct tierd_idle *idle, struct tierd_idle_histories *histories,
		    const struct tierd_idle_reader *reader, struct tierd_idle_step *step,
		    struct tierd_hot_record *record);

#endif
