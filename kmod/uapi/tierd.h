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
	TIERD_A_PERIOD_US,    /* u32: least time between two looks at a page */
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
};
#define TIERD_SCAN_FLAGS_ALL (TIERD_SCAN_CHANGES | TIERD_SCAN_DIRTY | TIERD_SCAN_FLUSH)

enum tierd_event {
	TIERD_EVENT_UNSPEC,
	TIERD_EVENT_GONE,    /* the process of a target ended; the target is removed */
	TIERD_EVENT_EXEC,    /* it runs another program now; its history starts afresh */
	TIERD_EVENT_CLOSING, /* the module wants to go: close the device */
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
};

struct tierd_target_stats {
	__u64 rounds;
	__u64 round_ns;	    /* length of the last finished round */
	__u64 round_cpu_ns; /* time the last finished round worked */
	__u64 round_pages;  /* present 4 KiB pages of the last finished round */
	__u64 round_accessed;
	__u64 history_bytes;
	__u64 ranges;	 /* 0: the whole address space */
	__u64 period_ns; /* time between the starts of the last two rounds */
};

/*
 * The mapping of /dev/tierd: TIERD_RING_DATA bytes of indices, then the records.
 * The kernel writes `tail` and `dropped`, the reader writes `head` (on a page of its
 * own). Both only grow; record n is at index n modulo `capacity`. The reader reads
 * `tail`, then the records, and then stores `head`; a record that finds the ring full
 * is counted in `dropped`, and no record is ever overwritten before it is consumed.
 */
#define TIERD_RING_MAGIC 0x64726974u /* "tird" */
#define TIERD_RING_VERSION 1
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
	TIERD_RECORD_ROUND = 2, /* a scan of a target ended: page = its key, value = rounds */
};

enum tierd_page_flags {
	TIERD_PAGE_HOT = 1 << 0,     /* seen in at least hot-scans of the last 8 scans */
	TIERD_PAGE_CHANGED = 1 << 1, /* ... and not before; or hot before, and cold now */
	TIERD_PAGE_DIRTY = 1 << 2,   /* written (since the last scan if dirty bits are cleared) */
	TIERD_PAGE_ANON = 1 << 3,
	TIERD_PAGE_SHARED = 1 << 4, /* mapped more than once, as far as the kernel can tell */
	TIERD_PAGE_PMD = 1 << 5,    /* mapped as a whole: one record for 2^order pages */
};

struct tierd_record {
	__u64 page;    /* page key */
	__u64 pfn;     /* page frame, 0 for a reader without CAP_SYS_ADMIN */
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u8 kind;     /* enum tierd_record_kind */
	__u8 flags;    /* enum tierd_page_flags */
	__u8 order;    /* log2 of the folio's 4 KiB pages */
	__u8 history;  /* bit 7: this scan, bit 0: seven scans ago */
	__s16 node;
	__u16 value; /* PAGE: scans the history covers; ROUND: the round's number */
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

#endif
