/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Inside of tierd.ko. Arrows point one way:
 *
 *	main -> netlink, dev, scan
 *	netlink -> budget, target;  dev -> ring, resolve
 *	scan -> budget, target, ring, sampling, walk <-> table -> history;  resolve -> target, walk
 *	(an event goes from scan to netlink, which only sends it)
 *
 * What is exported is for the driver of cards, tierd_neoprof.ko (neoprof.h).
 *
 * Locks, in the order they are taken:
 *	targets_lock (mutex)   the list of targets
 *	target->lock (mutex)   one target's ranges and the scanner's state of it
 *	mmap lock (read, by trylock), then page-table locks (walk.c, table.c)
 *	rings_lock (mutex)     the list of rings and what is written to them
 *	anon_vma lock (read, by trylock), then page-table locks (resolve.c)
 */
#ifndef TIERD_H
#define TIERD_H

#include "uapi/tierd.h"

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mm_types.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/pid.h>
#include <linux/xarray.h>

#define TIERD_TABLE_PAGES (PMD_SIZE / PAGE_SIZE)
#define TIERD_SPANS 16
#define TIERD_WALK_RECORDS (4 * TIERD_TABLE_PAGES)
#define TIERD_SAMPLING_INTERVAL_MIN_US 100

/**
 * struct tierd_settings - what the scanner shall do; replaced as a whole
 * @period_us: least time between two scans of a page
 * @budget_ppm: millionths of one CPU that the scanner may take
 * @flags: enum tierd_scan_flags
 * @sampling_interval_us: from clearing an accessed bit to checking it; 0: accesses since the last
 * scan count
 * @hot_scans: scans of eight that have to find a page accessed for it to become hot
 * @cold_scans: a hot page that no more scans of eight than these found accessed becomes cold
 * @report_scans: a page that stays hot is reported in one scan of so many
 * @hot_nodes: nodes whose hot pages are reported
 * @cold_nodes: nodes whose cold pages are reported
 */
struct tierd_settings {
	u32 period_us;
	u32 budget_ppm;
	u32 flags;
	u32 sampling_interval_us;
	u8 hot_scans;
	u8 cold_scans;
	u8 report_scans;
	nodemask_t hot_nodes;
	nodemask_t cold_nodes;
};

/**
 * struct tierd_ranges - what is scanned of an address space
 * @count: how many
 * @range: ascending, apart
 */
struct tierd_ranges {
	unsigned int count;
	struct tierd_range range[];
};

/**
 * struct tierd_sampling - a part of an address space is gone over twice
 *
 * The first time its accessed bits are cleared: the part is armed, and its sampling interval
 * begins. The second time, the look, reads which bits were set meanwhile.
 *
 * @us: the sampling interval of this round
 * @armed: the part's bits are cleared: what the cursor goes over now is its look
 * @from: where the part begins
 * @to: where it ends
 * @armed_ns: when clearing its bits began, 0: no part is under way
 * @armed_to_ns: when that had ended
 * @arming_ns: time that took, slices alone
 * @look_ns: when the look began, 0: it has not
 * @sum_ns: sum of the sampling intervals of this round's parts
 * @parts: how many those were
 */
struct tierd_sampling {
	u32 us;
	bool armed;
	unsigned long from, to;
	u64 armed_ns;
	u64 armed_to_ns;
	u64 arming_ns;
	u64 look_ns;
	u64 sum_ns;
	u32 parts;
};

/**
 * struct tierd_turnover - how much other memory a target has begun to use
 *
 * Newcomers are newly hot pages: of the last eight scans only the last two found them accessed.
 * Silent ones are newly idle: the three scans before this one found them accessed, and this one did
 * not. Many of both at a time mean that the target uses other memory than before.
 *
 * @became: pages that became hot
 * @newcomers: those of them that are newcomers
 * @steady: pages that each of the three scans before this one found accessed
 * @silent: those of them that are silent
 */
struct tierd_turnover {
	u32 became, newcomers;
	u32 steady, silent;
};

/**
 * struct tierd_target - one process that is scanned
 * @node: in the list of targets
 * @ref: counts the list and whoever uses it
 * @number: as user space chose it
 * @portid: netlink socket that registered it; it goes when that is closed
 * @pid: the process
 * @mm: held by mmgrab: the identity, not the memory
 * @dead: not on the list any more
 * @lock: of all that follows
 * @ranges: what is scanned, NULL: the whole address space
 * @history: address >> PMD_SHIFT -> struct tierd_chunk
 * @chunks: how many it has
 * @chunks_seen: how many of them this round has met
 * @cursor: where the next slice goes on
 * @in_round: a round has begun
 * @age: finished rounds, saturated at TIERD_HISTORY
 * @next_ns: it is not scanned before this time (ktime_get_ns())
 * @round_start_ns: when the round began, 0 before the first one
 * @round_cpu_ns: time that its slices took
 * @round_pages: pages that it has met
 * @round_accessed: those that were found accessed
 * @turnover: of the round
 * @sampling: of the part under way
 * @stats: as told to user space
 */
struct tierd_target {
	struct list_head node;
	struct kref ref;
	u16 number;
	u32 portid;
	struct pid *pid;
	struct mm_struct *mm;
	bool dead;
	struct mutex lock;
	struct tierd_ranges *ranges;
	struct xarray history;
	unsigned long chunks, chunks_seen;
	unsigned long cursor;
	bool in_round;
	u16 age;
	u64 next_ns;
	u64 round_start_ns, round_cpu_ns;
	u64 round_pages, round_accessed;
	struct tierd_turnover turnover;
	struct tierd_sampling sampling;
	struct tierd_target_stats stats;
};

/**
 * struct tierd_chunk - access histories of the pages of one page table
 * @history: a byte a page, bit 7 for the last scan; [0] alone for a page that is mapped by a PMD
 * @hot: those that are
 * @marked: those that were marked as young in this window (young.h)
 * @window: its number
 * @round: last one that met it
 * @pmd_round: last one that aged it as a PMD-mapped page
 * @pmd: it is one
 * @first_scan: the scan of @round is the first one that met it (young.h)
 */
struct tierd_chunk {
	u8 history[TIERD_TABLE_PAGES];
	DECLARE_BITMAP(hot, TIERD_TABLE_PAGES);
	DECLARE_BITMAP(marked, TIERD_TABLE_PAGES);
	u32 window;
	u32 round;
	u32 pmd_round;
	bool pmd;
	bool first_scan;
};

/**
 * struct tierd_span - frames that are of one node
 * @start: the first one
 * @count: how many
 * @node: the node
 */
struct tierd_span {
	unsigned long start, count;
	int node;
};

/**
 * struct tierd_walk - one pass over part of an address space, and what it found
 * @target: whose it is
 * @mm: the address space
 * @settings: in force
 * @stop: not beyond this address
 * @arm: only clear accessed bits, for a look later (struct tierd_sampling)
 * @mark: tell the kernel's own reclaim what was accessed
 * @age: the target's
 * @key: the target's number, as in records
 * @hot_least: tierd_history_least() of what is hot
 * @cold_least: of what stays so
 * @now_ns: the time, as last read
 * @steps: since the pass began, to read the clock now and then
 * @tables: page tables met
 * @pages: pages met
 * @accessed: those that were found accessed
 * @marked: those that were marked as young
 * @turnover: the target's
 * @span: frames of nodes
 * @spans: how many
 * @found: records that wait to be handed out
 * @records: room for TIERD_WALK_RECORDS
 */
struct tierd_walk {
	struct tierd_target *target;
	struct mm_struct *mm;
	const struct tierd_settings *settings;
	unsigned long stop;
	bool arm;
	bool mark;
	u16 age;
	u64 key;
	u64 hot_least, cold_least;
	u64 now_ns;
	unsigned long steps, tables, pages, accessed, marked;
	struct tierd_turnover *turnover;
	struct tierd_span span[TIERD_SPANS];
	unsigned int spans;
	unsigned int found;
	struct tierd_record *records;
};

/* main.c */
extern struct tierd_stats tierd_stats;
extern unsigned int tierd_max_targets, tierd_ring_records, tierd_max_readers;
extern unsigned long tierd_history_limit;
extern bool tierd_mark_young;

/* target.c; the list is under tierd_targets_lock */
extern struct mutex tierd_targets_lock;
extern struct list_head tierd_targets;
struct tierd_target *tierd_target_find(u16 number);
struct tierd_target *tierd_target_by_mm(struct mm_struct *mm);
struct tierd_target *tierd_target_due(u64 now_ns, u64 period_ns, bool begun, u64 *earliest_ns);
int tierd_target_add(u16 number, struct pid *pid, struct tierd_ranges *ranges, u32 portid);
void tierd_target_remove(struct tierd_target *target);
void tierd_target_put(struct tierd_target *target);
void tierd_targets_clear(u32 portid);
bool tierd_second_mmu(struct mm_struct *mm);
enum tierd_mm_state { TIERD_MM_SAME, TIERD_MM_NEW, TIERD_MM_GONE, TIERD_MM_SECOND_MMU };
enum tierd_mm_state tierd_target_get_mm(struct tierd_target *target, struct mm_struct **mm);

/* history.c */
int tierd_history_init(void);
void tierd_history_exit(void);
struct tierd_chunk *tierd_history_get(struct tierd_target *target, unsigned long addr);
void tierd_history_sweep(struct tierd_target *target);
void tierd_history_clear(struct tierd_target *target);
void tierd_history_reset(struct tierd_target *target);
void tierd_history_as_pmd(struct tierd_chunk *chunk);
void tierd_history_as_pages(struct tierd_chunk *chunk);

/* nodes.c */
unsigned int tierd_node_spans(struct tierd_span *span);

/* walk.c */
pmd_t *tierd_find_pmd(struct mm_struct *mm, unsigned long addr, unsigned long *next);
pte_t *tierd_lock_table(struct mm_struct *mm, pmd_t *pmdp, unsigned long addr, spinlock_t **ptl);
void tierd_unlock_table(spinlock_t *ptl);
bool tierd_vma_wanted(struct vm_area_struct *vma);
void tierd_walk_pmd(struct tierd_walk *walk, struct vm_area_struct *vma, pmd_t *pmdp,
		    unsigned long addr, unsigned long end);

/* table.c */
void tierd_walk_table(struct tierd_walk *walk, struct vm_area_struct *vma, pmd_t *pmdp,
		      struct tierd_chunk *chunk, unsigned long addr, unsigned long end);
void tierd_arm_table(struct tierd_walk *walk, struct vm_area_struct *vma, pmd_t *pmdp,
		     struct tierd_chunk *chunk, unsigned long addr, unsigned long end);

/* round.c: with the target's lock */
void tierd_round_start(struct tierd_target *target, const struct tierd_settings *settings,
		       u64 now_ns);
void tierd_round_end(struct tierd_walk *walk);

/* sampling.c: with the target's lock */
void tierd_set_sampling_interval(struct tierd_target *target, u32 sampling_interval_us);
void tierd_part_begin(struct tierd_walk *walk, u64 start_ns);
bool tierd_part_end(struct tierd_walk *walk, u64 start_ns, bool done);

/* scan.c */
int tierd_scan_start(void);
void tierd_scan_stop(void);
void tierd_scan_kick(void);

/**
 * struct tierd_bucket - the CPU time that the scanner may take
 * @tokens: what is left of it, below 0: owed
 * @seen_ns: when that was
 * @spent_ns: what the thread had run by then
 * @paid_ns: when what is owed is paid, 0: nothing is waited for
 * @budget_ppm: what this was reckoned with
 */
struct tierd_bucket {
	s64 tokens;
	u64 seen_ns, spent_ns;
	u64 paid_ns;
	u32 budget_ppm;
};
void tierd_settings_get(struct tierd_settings *settings);
int tierd_settings_set(const struct tierd_settings *settings, const char **why);
u64 tierd_bucket_wait(struct tierd_bucket *bucket, u32 budget_ppm);

/* ring.c */
struct tierd_ring;
extern struct mutex tierd_rings_lock;
struct tierd_ring *tierd_ring_open(bool with_pfn);
void tierd_ring_close(struct tierd_ring *ring);
int tierd_ring_map(struct tierd_ring *ring, struct vm_area_struct *vma);
void tierd_ring_publish(const struct tierd_record *records, unsigned int count);
void tierd_ring_publish_kind(enum tierd_record_kind kind, const struct tierd_record *records,
			     unsigned int count);
bool tierd_ring_wanted(enum tierd_record_kind kind);
int tierd_ring_set_kinds(struct tierd_ring *ring, u32 kinds);
void tierd_ring_wake(void);
void tierd_ring_closing(bool closing);
struct wait_queue_head *tierd_ring_queue(struct tierd_ring *ring);
bool tierd_ring_ready(struct tierd_ring *ring);

/* dev.c */
int tierd_dev_init(void);
void tierd_dev_exit(void);
bool tierd_dev_closing(void);
void tierd_dev_set_closing(bool closing);

/* resolve.c */
int tierd_resolve_init(void);
void tierd_resolve_exit(void);
void tierd_resolve_pfn(u64 pfn, struct tierd_owner *owner);
void tierd_resolve_page(struct page *page, unsigned long pfn, struct tierd_owner *owner, u8 *flags);

/* netlink.c */
int tierd_netlink_init(void);
void tierd_netlink_exit(void);
void tierd_netlink_event(enum tierd_event event, const struct tierd_target *target);
void tierd_netlink_card_event(enum tierd_event event, u32 card, const char *why);
struct genl_family;
struct genl_info;
struct netlink_callback;
struct sk_buff;
struct genl_family *tierd_netlink_family(void);
bool tierd_netlink_allowed(const struct sk_buff *skb);

/**
 * struct tierd_card_ops - what the driver of cards answers
 * @dump: neoprof-get
 * @set: neoprof-set
 * @profile: neoprof-profile-get
 * @socket_closed: a socket that may own cards was closed
 */
struct tierd_card_ops {
	int (*dump)(struct sk_buff *skb, struct netlink_callback *cb);
	int (*set)(struct sk_buff *skb, struct genl_info *info);
	int (*profile)(struct sk_buff *skb, struct genl_info *info);
	void (*socket_closed)(u32 portid);
};
int tierd_cards_register(const struct tierd_card_ops *ops);
void tierd_cards_unregister(void);
void tierd_cards_socket_closed(u32 portid);
int tierd_netlink_card_dump(struct sk_buff *skb, struct netlink_callback *cb);
int tierd_netlink_card_do(struct sk_buff *skb, struct genl_info *info);

/* netlink_target.c, netlink_scan.c: the operations of the family */
#define TIERD_NODES_BYTES (TIERD_MAX_NODES / 8)
int tierd_netlink_target_add(struct sk_buff *skb, struct genl_info *info);
int tierd_netlink_target_set(struct sk_buff *skb, struct genl_info *info);
int tierd_netlink_target_del(struct sk_buff *skb, struct genl_info *info);
int tierd_netlink_target_dump(struct sk_buff *skb, struct netlink_callback *cb);
int tierd_netlink_scan_set(struct sk_buff *skb, struct genl_info *info);
int tierd_netlink_scan_get(struct sk_buff *skb, struct genl_info *info);

#endif
