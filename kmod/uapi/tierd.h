/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * User API of the tierd kernel module.
 *
 * Control goes through the generic netlink family "tierd" (described in tierd.yaml),
 * data through /dev/tierd: a ring of fixed records that user space maps, and an ioctl
 * that tells whose page frames are.
 *
 * All numbers are in host byte order. Pages are counted in 4 KiB.
 */
#ifndef _UAPI_TIERD_H
#define _UAPI_TIERD_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define TIERD_GENL_NAME "tierd"
#define TIERD_GENL_VERSION 1
#define TIERD_GENL_EVENTS "events"

#define TIERD_DEVICE "tierd"

/* A page key: target number << 48 | virtual page number. */
#define TIERD_KEY_SHIFT 48

/* Limits that hold for every build. */
#define TIERD_MAX_RANGES 4000
#define TIERD_MAX_NODES 1024
#define TIERD_HISTORY 8

enum tierd_cmd {
	TIERD_CMD_UNSPEC,
	TIERD_CMD_TARGET_ADD,
	TIERD_CMD_TARGET_SET,
	TIERD_CMD_TARGET_DEL,
	TIERD_CMD_TARGET_GET,
	TIERD_CMD_SCAN_SET,
	TIERD_CMD_SCAN_GET,
	TIERD_CMD_EVENT,
	TIERD_CMD_NEOPROF_GET,
	TIERD_CMD_NEOPROF_SET,
	TIERD_CMD_NEOPROF_PROFILE_GET,
	__TIERD_CMD_MAX,
};
#define TIERD_CMD_MAX (__TIERD_CMD_MAX - 1)

/* One name space of attributes for all commands; tierd.yaml says which go where. */
enum tierd_attr {
	TIERD_A_UNSPEC,
	TIERD_A_PAD,
	TIERD_A_TARGET,	      /* u16: number chosen by the caller, unique, not 0xffff */
	TIERD_A_PID,	      /* u32 */
	TIERD_A_RANGES,	      /* struct tierd_range[], ascending, apart */
	TIERD_A_PERIOD_US,    /* u32: least time between two scans of a page */
	TIERD_A_BUDGET_PPM,   /* u32: CPU time of the scanner, in millionths of one CPU */
	TIERD_A_HOT_SCANS,    /* u8: a page seen in this many of 8 scans is hot */
	TIERD_A_COLD_SCANS,   /* u8: a hot page seen in no more than these is cold again */
	TIERD_A_REPORT_SCANS, /* u8: one that stays hot is reported in one scan of so many */
	TIERD_A_FLAGS,	      /* u32: enum tierd_scan_flags */
	TIERD_A_HOT_NODES,    /* u64[]: bitmap of nodes whose hot pages are reported */
	TIERD_A_COLD_NODES,   /* u64[]: bitmap of nodes whose cooled pages are reported */
	TIERD_A_STATS,	      /* struct tierd_stats */
	TIERD_A_TARGET_STATS, /* struct tierd_target_stats */
	TIERD_A_EVENT,	      /* u8: enum tierd_event */

	/* NeoProf cards */
	TIERD_A_CARD,	       /* u32: number of the card, 0 to TIERD_CARDS_MAX - 1 */
	TIERD_A_BACKEND,       /* string: how it is reached: window, pci, neoprof-v1 */
	TIERD_A_DEVICE,	       /* string: the bus's name of the device */
	TIERD_A_CARD_STATE,    /* u8: enum tierd_card_state */
	TIERD_A_WHY,	       /* string: why it failed, or why it has no ranges */
	TIERD_A_CARD_RANGES,   /* struct tierd_card_range[]: host memory behind it */
	TIERD_A_CARD_GEOMETRY, /* struct tierd_card_geometry */
	TIERD_A_CARD_STATS,    /* struct tierd_card_stats */
	TIERD_A_PROFILE,       /* struct tierd_profile */
	TIERD_A_ENABLE,	       /* u8: 1 to count, 0 to stop */
	TIERD_A_DRAIN_US,      /* u32: time between two drains of the hot list */
	TIERD_A_EPOCH_US,      /* u32: counters are cleared each; 0: by command only */
	TIERD_A_THRESHOLD,     /* u32: a unit is reported when its count is greater */
	TIERD_A_TRACK,	       /* u8: enum tierd_card_track */
	TIERD_A_UNIT_LOG2,     /* u8: log2 of the bytes that have a counter together */
	TIERD_A_DOWNSAMPLE,    /* u8: one request in 2^n is counted */
	TIERD_A_CARD_FLAGS,    /* u32: enum tierd_card_flags */
	TIERD_A_ERROR_RANK,    /* u32: rank of the counter that is the error bound; 0: W / 2 */
	TIERD_A_CARD_DO,       /* u32: enum tierd_card_do */

	TIERD_A_SAMPLING_INTERVAL_US, /* u32: from clearing accessed bits to the scan; 0: period */
	__TIERD_A_MAX,
};
#define TIERD_A_MAX (__TIERD_A_MAX - 1)

enum tierd_scan_flags {
	/* Report hot pages when they become hot only, not in every scan that finds them so. */
	TIERD_SCAN_CHANGES = 1 << 0,
	/* Test and clear the dirty bit of anonymous pages too (implies a TLB flush a table). */
	TIERD_SCAN_DIRTY = 1 << 1,
	/*
	 * Flush the TLB after each table: no access is missed, at the price of an interrupt
	 * on every CPU. Hardware does not need it; emulators keep translations longer.
	 */
	TIERD_SCAN_FLUSH = 1 << 2,
	/*
	 * Leave out what a page's entry does not tell: TIERD_PAGE_ANON, TIERD_PAGE_SHARED, and the
	 * order of folios that are not mapped as a whole (0). It costs a cache miss a record.
	 */
	TIERD_SCAN_BRIEF = 1 << 3,
};
#define TIERD_SCAN_FLAGS_ALL                                                                       \
	(TIERD_SCAN_CHANGES | TIERD_SCAN_DIRTY | TIERD_SCAN_FLUSH | TIERD_SCAN_BRIEF)

enum tierd_event {
	TIERD_EVENT_UNSPEC,
	TIERD_EVENT_GONE,	 /* the process of a target ended; the target is removed */
	TIERD_EVENT_EXEC,	 /* it runs another program now; its history starts afresh */
	TIERD_EVENT_CLOSING,	 /* the module wants to go: close the device */
	TIERD_EVENT_CARD_ADDED,	 /* a NeoProf card is there, stopped */
	TIERD_EVENT_CARD_FAILED, /* it does not answer any more; it stays known, as failed */
	TIERD_EVENT_CARD_GONE,	 /* it was removed; its number is free */
	/* A second MMU uses a target's memory, whose accesses cannot be seen; it is removed. */
	TIERD_EVENT_SECOND_MMU,
};

/* Virtual addresses [start, end), whole pages. */
struct tierd_range {
	__u64 start;
	__u64 end;
};

/* Since the module was loaded. Times in ns. New fields are added at the end. */
struct tierd_stats {
	__u64 cpu_ns;	     /* CPU time of the scanner's thread */
	__u64 rounds;	     /* scans of a whole target */
	__u64 slices;	     /* times a target's page tables were locked for a part of a scan */
	__u64 tables;	     /* page tables and PMD-mapped pages looked at */
	__u64 pages;	     /* present 4 KiB pages looked at */
	__u64 accessed;	     /* ... whose accessed bit was set */
	__u64 reported;	     /* records made */
	__u64 dropped;	     /* records that did not fit into a reader's ring */
	__u64 lock_busy;     /* slices put off because the address space was being changed */
	__u64 history_bytes; /* memory of the access histories now */
	__u64 history_full;  /* tables passed over because that memory is bounded */
	__u64 targets;	     /* registered now */
	__u64 targets_gone;  /* targets whose process ended */
	__u64 targets_exec;  /* execs of targets */
	__u64 readers;	     /* rings mapped now */
	__u64 resolved;	     /* page frames asked for */
	__u64 marked;	     /* pages marked as young for the kernel's own reclaim */
	/* targets refused or removed because a second MMU uses their memory */
	__u64 targets_second_mmu;
};

struct tierd_target_stats {
	__u64 rounds;
	__u64 round_ns;	    /* length of the last finished round */
	__u64 round_cpu_ns; /* time the last finished round worked */
	__u64 round_pages;  /* present 4 KiB pages of the last finished round */
	__u64 round_accessed;
	__u64 history_bytes;
	__u64 ranges;		    /* 0: the whole address space */
	__u64 period_ns;	    /* time between the starts of the last two rounds */
	__u64 sampling_interval_ns; /* mean in the last finished round, 0: from scan to scan */
};

/*
 * The mapping of /dev/tierd: TIERD_RING_DATA bytes of indices, then the records.
 * The kernel writes `tail` and `dropped`, the reader writes `head` (on a page of its
 * own). Both only grow; record n is at index n modulo `capacity`. The reader reads
 * `tail`, then the records, and then stores `head`; a record that finds the ring full
 * is counted in `dropped`, and no record is ever overwritten before it is consumed.
 */
#define TIERD_RING_MAGIC 0x64726974u /* "tird" */
#define TIERD_RING_VERSION 2
#define TIERD_RING_HEAD 4096 /* offset of the reader's page */
#define TIERD_RING_DATA 8192 /* offset of the first record */

struct tierd_ring_info {
	__u32 magic;
	__u16 version;
	__u16 record_size;
	__u32 capacity; /* records, a power of two */
	__u32 closing;	/* not 0: the module wants to go, close the device */
	__u64 tail;
	__u64 dropped;
	__u64 size; /* bytes of the whole mapping */
};

struct tierd_ring_head {
	__u64 head;
};

enum tierd_record_kind {
	TIERD_RECORD_PAGE = 1,	/* a page past the threshold, or one that changed class */
	TIERD_RECORD_ROUND = 2, /* a scan of a target ended, and what it found */
	TIERD_RECORD_HOT = 3,	/* a card counted a page of a target above its threshold */
	TIERD_RECORD_FRAME = 4, /* ... any other frame; only for readers that ask */
};

/* The kinds that a ring gets until TIERD_IOC_KINDS says otherwise. */
#define TIERD_RING_KINDS (1u << TIERD_RECORD_PAGE | 1u << TIERD_RECORD_ROUND)

enum tierd_page_flags {
	TIERD_PAGE_HOT = 1 << 0,     /* seen in at least hot-scans of the last 8 scans */
	TIERD_PAGE_CHANGED = 1 << 1, /* ... and not before; or hot before, and cold now */
	TIERD_PAGE_DIRTY = 1 << 2,   /* written (since the last scan if dirty bits are cleared) */
	TIERD_PAGE_ANON = 1 << 3,
	TIERD_PAGE_SHARED = 1 << 4, /* mapped more than once, as far as the kernel can tell */
	TIERD_PAGE_PMD = 1 << 5,    /* mapped as a whole: one record for 2^order pages */
};

struct tierd_record {
	/*
	 * Page key; ROUND: target << 48 | pages found accessed; FRAME: TIERD_NO_TARGET << 48 |
	 * enum tierd_owner_status
	 */
	__u64 page;
	union {
		__u64 pfn; /* page frame, 0 for a reader without CAP_SYS_ADMIN */
		/*
		 * ROUND: of pages that became hot, those that just the last two of eight scans
		 * found accessed; of pages that each of three scans found accessed, those that
		 * this one, the next, did not.
		 */
		struct {
			__u32 newcomers, silent;
		};
	};
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u8 kind;     /* enum tierd_record_kind */
	__u8 flags;    /* enum tierd_page_flags */
	__u8 order;    /* log2 of the folio's 4 KiB pages; ROUND: share that is newcomers, of 255 */
	/*
	 * Bit 7: this scan, bit 0: seven scans ago; ROUND: share that is silent, of 255; HOT,
	 * FRAME: the card
	 */
	__u8 history;
	__s16 node;
	/* PAGE: scans the history covers; ROUND: the round's number; HOT, FRAME: the count */
	__u16 value;
};

/* Whose page frames are. */
enum tierd_owner_status {
	TIERD_OWNER_GONE = 0,	/* not memory, not in use, or mapped nowhere */
	TIERD_OWNER_MAPPED = 1, /* anonymous, mapped once: pid, target, vpn hold */
	TIERD_OWNER_SHARED = 2, /* anonymous, mapped more than once: those of one mapping */
	TIERD_OWNER_FILE = 3,	/* page cache or shared memory: no address */
	TIERD_OWNER_OTHER = 4,	/* kernel memory, hugetlb, KSM: cannot be moved by address */
	TIERD_OWNER_BUSY = 5,	/* being changed just now: ask again */
};

#define TIERD_NO_TARGET 0xffff

struct tierd_owner {
	__u64 vpn;    /* virtual page number of this very frame */
	__u32 pid;    /* thread group, in the caller's pid name space; 0 if not known */
	__u16 target; /* number of the registered target, or TIERD_NO_TARGET */
	__u8 order;   /* log2 of the folio's 4 KiB pages */
	__u8 status;  /* enum tierd_owner_status */
};

#define TIERD_RESOLVE_MAX (1u << 20)

struct tierd_resolve {
	__u64 pfns;   /* address of __u64[count] */
	__u64 owners; /* address of struct tierd_owner[count] */
	__u32 count;  /* at most TIERD_RESOLVE_MAX */
	__u32 flags;  /* 0 */
};

/* Returns 0 when all were looked up. */
#define TIERD_IOC_RESOLVE _IOW('t', 0x81, struct tierd_resolve)

/*
 * The kinds of records this open of the device gets, bit n for kind n, from now on. Kind
 * FRAME needs CAP_SYS_ADMIN.
 */
#define TIERD_IOC_KINDS _IOW('t', 0x82, __u32)

/*
 * NeoProf cards: profilers in memory devices. A card counts requests to units (2^unit_log2
 * bytes of device memory) in a sketch and puts units above the threshold into its hot list,
 * once an epoch each. The module drains that list, translates device to host physical
 * addresses, asks whose the frames are, and reports what targets own.
 */
#define TIERD_CARDS_MAX 64
#define TIERD_CARD_RANGES_MAX 32
#define TIERD_CARD_BINS 64
#define TIERD_CARD_WHY 160 /* bytes of TIERD_A_WHY, with the ending 0 */

enum tierd_card_state {
	TIERD_CARD_STATE_UNSPEC,
	TIERD_CARD_STATE_STOPPED, /* ready to count */
	TIERD_CARD_STATE_COUNTING,
	TIERD_CARD_STATE_FAILED, /* TIERD_A_WHY says why; TIERD_CARD_DO_RESET tries again */
};

enum tierd_card_track {
	TIERD_TRACK_READS = 1,
	TIERD_TRACK_WRITES = 2,
	TIERD_TRACK_BOTH = 3,
};

enum tierd_card_flags {
	/* Count only in the rows of the sketch that hold the minimum: more exact. */
	TIERD_CARD_CONSERVATIVE = 1 << 0,
	/* Choose at random the requests that down-sampling counts. */
	TIERD_CARD_RANDOM = 1 << 1,
	/* Go on when the netlink socket that enabled the card is closed. */
	TIERD_CARD_PERSIST = 1 << 2,
	/* Count a run of requests to lines of one page near each other once. */
	TIERD_CARD_COALESCE = 1 << 3,
};
#define TIERD_CARD_FLAGS_ALL                                                                       \
	(TIERD_CARD_CONSERVATIVE | TIERD_CARD_RANDOM | TIERD_CARD_PERSIST | TIERD_CARD_COALESCE)

enum tierd_card_do {
	TIERD_CARD_DO_CLEAR = 1 << 0, /* a new epoch: all counters become 0 */
	TIERD_CARD_DO_RESET = 1 << 1, /* reset the card; revives one that failed, stopped */
};
#define TIERD_CARD_DO_ALL (TIERD_CARD_DO_CLEAR | TIERD_CARD_DO_RESET)

/* What a card can do; it refuses settings that need what it has not (EOPNOTSUPP). */
enum tierd_card_features {
	TIERD_CARD_HAS_HISTOGRAM = 1 << 0,
	TIERD_CARD_HAS_BANDWIDTH = 1 << 1,    /* cycles, read_beats and write_beats */
	TIERD_CARD_HAS_ERROR_BOUND = 1 << 2,  /* otherwise computed from the histogram, if any */
	TIERD_CARD_HAS_COUNTERS = 1 << 3,     /* the other fields of struct tierd_profile */
	TIERD_CARD_HAS_CONSERVATIVE = 1 << 4, /* conservative update */
	TIERD_CARD_HAS_TRACK = 1 << 5,	      /* writes; without it only reads are counted */
	TIERD_CARD_HAS_EPOCH = 1 << 6,	      /* clears by itself; else the module's clock does */
	TIERD_CARD_HAS_CLEAR = 1 << 7,	      /* clears without losing requests */
	TIERD_CARD_HAS_COUNT = 1 << 8,	      /* reports carry counts; else the threshold + 1 */
	TIERD_CARD_HAS_INTERRUPT = 1 << 9,    /* drained when half full, besides each period */
	TIERD_CARD_HAS_DOWNSAMPLE = 1 << 10,
	TIERD_CARD_HAS_COALESCE = 1 << 11, /* counts runs, not requests, where it is told to */
};

/*
 * Host physical [start, end) in bytes, of which the device has every `ways`-th block of
 * `granularity` bytes, the `position`-th; `device` is its own address of the first. ways
 * 1: all of it. `node` is told; when ranges are set it is ignored.
 */
struct tierd_card_range {
	__u64 start;
	__u64 end;
	__u64 device;
	__u32 granularity;
	__u16 ways;
	__u16 position;
	__s32 node; /* -1: not online memory */
	__u32 pad;
};

struct tierd_card_geometry {
	__u64 capacity;	     /* bytes of device address space the counters can tell apart */
	__u64 features;	     /* enum tierd_card_features */
	__u32 depth;	     /* rows of the sketch */
	__u32 width;	     /* counters in a row */
	__u32 counter_bits;  /* they stop at 2^counter_bits - 1 */
	__u32 channels;	     /* requests a cycle */
	__u32 bins;	     /* of the histogram: 0 or TIERD_CARD_BINS */
	__u32 slots;	     /* of the hot list */
	__u32 unit_sizes;    /* bit n: 2^n bytes */
	__u32 cycles_100us;  /* cycles in 100 us, 0 if unknown */
	__u32 threshold_max; /* greatest that can be set */
	__u32 pad;
};

/* Since the card appeared. Times in ns. New fields are added at the end. */
struct tierd_card_stats {
	__u64 drains;
	__u64 entries;	  /* taken from the hot list */
	__u64 reported;	  /* records of kind HOT */
	__u64 not_target; /* frames of processes that are no targets */
	__u64 shared;	  /* ... that more than one process maps */
	__u64 file;	  /* ... of files and shared memory */
	__u64 other;	  /* ... of the kernel, hugetlb, KSM */
	__u64 gone;	  /* ... not in use, or not memory */
	__u64 busy;	  /* ... that were being changed */
	__u64 outside;	  /* entries whose device address is in none of the ranges */
	__u64 overflows;  /* drains that found that the card had refused reports */
	__u64 limited;	  /* drains that left entries for the next one, their work being bounded */
	__u64 drain_ns;	  /* time in drains */
	__u64 level;	  /* entries that the last drain found */
	__u64 level_max;
	__u64 interrupts;
	__u64 accesses; /* of registers */
	__u64 errors;	/* ... that failed */
};

/* A card's counters and histogram at one moment. */
struct tierd_profile {
	__u64 valid;	/* enum tierd_card_features: which of the fields hold */
	__u64 time_ns;	/* CLOCK_MONOTONIC */
	__u64 sequence; /* grows with each */
	/* HAS_BANDWIDTH: since the last reset of the card */
	__u64 cycles;
	__u64 read_beats;
	__u64 write_beats;
	/* HAS_COUNTERS */
	__u64 busy_cycles;
	__u64 offered;
	__u64 counted;
	__u64 skipped_type;
	__u64 skipped_range;
	__u64 skipped_sample;
	__u64 reports;
	__u64 reports_refused; /* found the hot list full */
	__u64 saturated;       /* increments not made, counters being at their greatest */
	__u64 epoch;	       /* its number */
	__u64 epoch_start;     /* `offered` when it began */
	__u64 applied_at;      /* `offered` when the last command took effect */
	/* HAS_ERROR_BOUND: the error_rank-th largest counter of row 0 is between these */
	__u32 error_low;
	__u32 error_high;
	__u32 error_bin;
	__u32 error_rank;
	__u32 threshold; /* in force */
	__u32 bins;	 /* of the histogram that hold */
	/* HAS_HISTOGRAM: counters of row 0 by value, zeros included; docs have the edges */
	__u64 histogram[TIERD_CARD_BINS];
	/* HAS_COUNTERS */
	__u64 skipped_run; /* left out by TIERD_CARD_COALESCE */
};

#endif
