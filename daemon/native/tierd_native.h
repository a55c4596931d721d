/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Python sees of the native code, with tierd_rule.h and tierd_promoter.h. build_native.py
 * hands their text to cffi with the preprocessor lines taken out, so they hold plain declarations
 * only.
 *
 * Functions return 0 or a count, or a negative errno; none prints. Arrays are
 * C-contiguous and owned by the caller. No function may run on one object from two
 * threads at once, except those of the mover that say so.
 */
#ifndef TIERD_NATIVE_H
#define TIERD_NATIVE_H

#include <stddef.h>
#include <stdint.h>

/* Pages [start, end). */
struct tierd_span {
	uint64_t start;
	uint64_t end;
};

/* ---- heat ---- */

struct tierd_heat;

struct tierd_heat_stats {
	uint64_t tracked;
	uint64_t huge;
	uint64_t capacity;
	uint64_t memory_bytes;
	uint64_t ingested;
	uint64_t evicted;
	uint64_t dropped_invalid;
	uint64_t dropped_full;
	uint64_t folded;
	uint64_t split;
	/* Slots that passes over the whole table have seen, and tags that queries have. */
	uint64_t passed;
	uint64_t compared;
};

/* The node numbers that the table can hold, and the two that are not nodes. */
enum { TIERD_NODE_MAX = 253, TIERD_NODE_UNPLACED = 254, TIERD_NODE_UNKNOWN = 255 };

int tierd_heat_new(uint64_t capacity, double half_life_s, double refresh_s,
		   struct tierd_heat **out);
void tierd_heat_free(struct tierd_heat *heat);
/* node: NULL, or where a source met each page, -1 where it does not know; it gives way to place. */
void tierd_heat_ingest(struct tierd_heat *heat, const uint64_t *page, const float *count,
		       const int16_t *node, size_t n, uint64_t time_ns);
void tierd_heat_advance(struct tierd_heat *heat, uint64_t time_ns);
int tierd_heat_set_half_life(struct tierd_heat *heat, double half_life_s);
/* Cool all heat at once by so many half-lives; fewer than none raise it. */
void tierd_heat_fade(struct tierd_heat *heat, double half_lives);
/* By how many half-lives all heat has decayed, or was faded, since the table was made. */
double tierd_heat_aged(const struct tierd_heat *heat);
void tierd_heat_place(struct tierd_heat *heat, const uint64_t *page, const int16_t *node,
		      const uint8_t *order, size_t n, const uint8_t *insert_on);
void tierd_heat_moved(struct tierd_heat *heat, const uint64_t *page, const uint8_t *fate,
		      const int16_t *node, const uint8_t *order, size_t n);
/* Drop the pages of a target outside of spans of its page numbers, which ascend and are apart. */
void tierd_heat_keep(struct tierd_heat *heat, uint32_t target, const struct tierd_span *span,
		     size_t n);
/*
 * No query of a node finds the folios whose first pages are in spans of keys, which ascend and are
 * apart, as long as they are held; or they are found again.
 */
void tierd_heat_hold(struct tierd_heat *heat, const struct tierd_span *span, size_t n, int held);
/*
 * huge: huge folios only, not all. among: a byte for each target number, 0 leaves its pages out;
 * NULL: all count.
 */
int64_t tierd_heat_select(struct tierd_heat *heat, int node, int hottest, int huge, float min_heat,
			  const uint8_t *among, size_t n, uint64_t *page, float *value, int16_t *on,
			  uint8_t *order, float *idle_s);
/* No page on the node has less heat; infinite if none is known there. */
float tierd_heat_least(struct tierd_heat *heat, int node);
int tierd_heat_lookup(struct tierd_heat *heat, uint64_t page, float *value, int16_t *node,
		      uint8_t *order, float *idle_s);
/* The node of each page's folio, -1 where it is unknown or the page not tracked. */
void tierd_heat_where(struct tierd_heat *heat, const uint64_t *page, size_t n, int16_t *node);
/* The heat of each page's folio, all of it, 0 of one that is not tracked. */
void tierd_heat_of(struct tierd_heat *heat, const uint64_t *page, size_t n, float *value);
/* The table's own counters, for as long as it lives. */
const struct tierd_heat_stats *tierd_heat_stats(const struct tierd_heat *heat);

/* ---- mover ---- */

enum tierd_fate {
	TIERD_NOT_TRIED = 0,
	TIERD_MOVED = 1,
	TIERD_ALREADY_THERE = 2,
	TIERD_BUSY = 3,
	TIERD_GONE = 4,
	TIERD_REFUSED = 5,
	TIERD_NO_ROOM = 6,
	TIERD_FAILED = 7,
	TIERD_JOINED = 8
};

/* Errno values above this are counted in the last place of the histogram. */
enum { TIERD_ERRNO_MAX = 255 };

struct tierd_process {
	uint32_t target;
	int32_t pid;
	int32_t pidfd;
};

struct tierd_job {
	const uint64_t *page;
	const uint8_t *order;
	/* Node each page is thought to be on, negative if unknown. */
	const int16_t *source;
	const int16_t *dest;
	size_t n;
	const struct tierd_process *process;
	size_t processes;
	uint8_t *fate;
	int16_t *node;
	uint8_t *tries;
	/* 4 KiB pages that failed, by errno, and all of them. */
	uint64_t errors[256];
	uint64_t failed;
	uint64_t moved_bytes;
	uint64_t cpu_ns;
	uint64_t retries;
	uint64_t calls;
	uint64_t longest_call_ns;
	size_t cursor;
	uint32_t pass;
	uint64_t pass_due_ns;
};

struct tierd_mover;

/* A call of move_pages: what it took, and the 4 KiB pages that it was made for. */
struct tierd_move_call {
	uint64_t ns;
	uint64_t pages;
};

/* Calls that a mover keeps until they are taken. */
enum { TIERD_MOVE_CALLS = 4096 };

/* Constants of tierd.core.tuning; what each means is said there. */
struct tierd_mover_tuning {
	uint64_t call_target_ns;
	uint64_t cpu_credit_ns;
	uint64_t backoff_ns;
	uint64_t backoff_factor;
	uint64_t max_backoff_ns;
	double first_ns_per_page;
};

int tierd_mover_new(uint64_t rate, uint64_t burst, uint32_t busy_retries, double cpu_share,
		    const struct tierd_mover_tuning *tuning, struct tierd_mover **out);
void tierd_mover_free(struct tierd_mover *mover);
int tierd_mover_run(struct tierd_mover *mover, struct tierd_job *job, uint64_t slice_ns);
/* End a run soon, and let none begin; or let them run again. */
void tierd_mover_stop(struct tierd_mover *mover, int stop);
void tierd_mover_set_rate(struct tierd_mover *mover, uint64_t rate, uint64_t burst);
/*
 * The calls since this was asked last, at most TIERD_MOVE_CALLS; `*dropped` is the number of those
 * there was no room for since the start. For between two runs only.
 */
size_t tierd_mover_take_calls(struct tierd_mover *mover, struct tierd_move_call *call,
			      uint64_t *dropped);
int tierd_mover_set_limits(struct tierd_mover *mover, uint32_t busy_retries, double cpu_share);

/* ---- where pages are ---- */

struct tierd_region {
	uint64_t start;
	uint64_t end;
	uint64_t categories;
};

enum { TIERD_PAGE_PRESENT = 8, TIERD_PAGE_PFNZERO = 32, TIERD_PAGE_HUGE = 64 };

/* A thread's memory policy; 1024 nodes are the most that Linux can be built for. */
struct tierd_mempolicy {
	int mode;
	uint64_t nodes[16];
};

/* What this thread allocates comes from `node` while it has room, until *before is restored. */
int tierd_mempolicy_prefer(int node, struct tierd_mempolicy *before);
int tierd_mempolicy_restore(const struct tierd_mempolicy *before);

size_t tierd_damon_regions(const char *text, size_t length, uint64_t *region, size_t most);
/*
 * Runs of pages in [start, end) (addresses) that have all categories of `need` and none of
 * `without`, at most `max_pages` 4 KiB pages of them (0: no limit), by PAGEMAP_SCAN (Linux 6.7).
 * Returns the number of regions; `*walk_end` is where to go on.
 */
int64_t tierd_pagemap_scan(int fd, uint64_t start, uint64_t end, uint64_t need, uint64_t without,
			   uint64_t max_pages, struct tierd_region *region, size_t regions,
			   uint64_t *walk_end);

/*
 * A set of pages in a table, zero at first, of a power of two of slots: more than there are
 * members. tierd_members returns for n pages, each `stride` words behind the one before,
 * whether they are in it. Keys of all ones never are.
 */
void tierd_members_add(uint64_t *table, size_t slots, const uint64_t *page, size_t n);
void tierd_members(const uint64_t *table, size_t slots, const uint64_t *page, size_t stride,
		   size_t n, uint8_t *found);
/*
 * Have the calls below made by agents from now on: processes that keep none but some capabilities,
 * a bit each, and have so long to answer. Call it before there are threads. Without it each call
 * is made, and waited for, here.
 *
 * These calls may wait for another process for ever. With agents they return -ETIMEDOUT when there
 * is no answer in time, or an earlier call about the same process (or about DAMON) has none yet;
 * -EAGAIN when all agents wait for processes that do not answer, or the agent was killed.
 */
int tierd_agents_start(uint64_t capabilities, uint64_t answer_ns);
/* What agents are late with: processes, -1 for DAMON; and how often there was no answer in time. */
size_t tierd_agents_late(int *about, size_t space, uint64_t *timeouts);
/* CPU time of this thread, and of agents for it. */
uint64_t tierd_thread_cpu_ns(void);
/*
 * Whether a thread of this host slept for all but a 50th of the last `waited_ns`. `*active_ns` is
 * for the next call: how long it has run, and waited for a processor, in all.
 */
int tierd_slept(int tid, uint64_t waited_ns, uint64_t *active_ns);
/*
 * move_pages(2) with MPOL_MF_MOVE. `nodes` NULL asks where pages are. `status` is
 * left untouched for pages that the kernel did not get to, or that were still to be
 * migrated when it gave up; a positive result is the number of those.
 */
long tierd_move_pages(int pid, unsigned long count, void **pages, const int *nodes, int *status);
/*
 * process_madvise(2) (Linux 5.10) of up to 65536 spans of page numbers; the bytes that it was
 * carried out for, without those of spans that were refused; an error if all were.
 */
enum { TIERD_ADVICE_COLD = 20, TIERD_ADVICE_PAGE_OUT = 21 };
int64_t tierd_advise(int pid, const struct tierd_span *span, size_t n, int advice);
/* Write to a file of DAMON, which waits for its kernel thread. */
int tierd_write_damon(const char *path, const char *text, size_t n);

/* ---- splitting ---- */

/* What became of a 2 MiB folio that was to be split (tierd.core.migration.SplitFate). */
enum tierd_split {
	TIERD_SPLIT_NOT_TRIED = 0,
	TIERD_SPLIT_DONE = 1,
	TIERD_SPLIT_ALREADY = 2,
	TIERD_SPLIT_GONE = 3,
	TIERD_SPLIT_REFUSED = 4,
	TIERD_SPLIT_FAILED = 5
};

/* Split the folios of n page keys, one after another, until all are tried or a stop comes. */
void tierd_mover_split(struct tierd_mover *mover, const uint64_t *page, size_t n,
		       const struct tierd_process *process, size_t processes, uint8_t *fate);

/* ---- probe ---- */

enum { TIERD_PROBE_STEPS = 32 };

/*
 * A buffer of `bytes` on a node, bound to it and locked, of which `blocks` times TIERD_PROBE_STEPS
 * lines are read in random order. 1 if it could not be locked, and is for one measurement only;
 * -EINVAL for no such node or a buffer that is too small, else -errno of what failed.
 */
struct tierd_probe;
int tierd_probe_open(int node, size_t bytes, size_t blocks, struct tierd_probe **out);
/*
 * Measures the node's memory from the CPU it runs on: what a stream of one CPU gets, and how long
 * each block of dependent reads takes; 0 for a block during which another thread had the CPU.
 * -EAGAIN where half of what was timed was interrupted so; -EIO where the kernel has moved the
 * buffer to another node.
 */
int tierd_probe_run(struct tierd_probe *probe, uint32_t *block_ns, double *bandwidth_bytes_per_s);
void tierd_probe_close(struct tierd_probe *probe);

/* ---- how full nodes are ---- */

struct tierd_node_zones {
	int32_t node;
	uint64_t high_pages; /* the sum of its zones' high marks: the kernel reclaims below it */
	uint64_t held_pages; /* free pages on CPUs' lists, which MemFree does not count */
};

/* Of a zoneinfo file: the number of nodes, of which no more than `most` are told. */
int tierd_zones(const char *path, struct tierd_node_zones *nodes, size_t most);
/* Of a node's meminfo file, in bytes; -EINVAL where it does not say. */
int tierd_node_memory(const char *path, uint64_t *total, uint64_t *free_bytes);

/* ---- records of the module's scanner and of cards ---- */

struct tierd_hot_record;

/* The values of a record's history, and the most scans that it covers. */
enum { TIERD_HISTORIES = 256, TIERD_DEPTHS = 9 };

/*
 * The hot pages among records of a scan, and the accesses that each stands for.
 *
 * keep: NULL, or which records to take, by record. stays, becomes: accesses, by depth and
 * history, of a page that stays hot and of one that has become so. dirty: NULL, or room for
 * whether each page was written to. node: where each was met, -1 for one of a huge folio. Returns
 * the number of pages.
 */
size_t tierd_scan_records(const struct tierd_hot_record *record, size_t n, const uint8_t *keep,
			  const float *stays, const float *becomes, uint64_t *page, float *count,
			  uint8_t *dirty, int16_t *node);

/* What a card's records are weighed with; arrays are by card. */
struct tierd_hot_epochs {
	uint64_t start_ns[256];
	uint64_t before_ns[256];
	float scale[256];
	uint64_t least_age_ns;
	float rate_cap;
	float copy_requests;
	float visits; /* a request stands for */
};

/*
 * The hot records of cards, and the accesses since the start of their epoch that each stands
 * for. copied: NULL, or whether requests of the page's own copy are among them, by record.
 * current: whether its epoch still lasts. node: as above. Returns the number of pages.
 */
size_t tierd_hot_records(const struct tierd_hot_record *record, size_t n, const uint8_t *copied,
			 const struct tierd_hot_epochs *epochs, uint64_t *page, float *count,
			 float *rate, uint64_t *told_ns, uint8_t *current, int16_t *node);

#endif
