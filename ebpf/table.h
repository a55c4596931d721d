/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The page table of counts that every program of tierd shares in kind: a bounded,
 * set-associative cache of pages a CPU, least recently used page out, in memory that
 * the service maps. daemon/tierd/sources/ebpf/table.py has the same layouts.
 *
 * Why not one of the kernel's LRU maps: they tell nobody what they evict, and their
 * locks can be held by the very code that a PMU interrupt interrupts. Here a slot has
 * one writer, its CPU, and what gives way is counted.
 *
 * There are two halves. Programs write into the half that the epoch's lowest bit names;
 * the service raises the epoch and then reads the other half at leisure. A slot with
 * an old epoch is empty, so nothing has to be cleared.
 *
 * For each half, at rest: counted == sum of the slots' counts + evicted.
 */
#ifndef TIERD_TABLE_H
#define TIERD_TABLE_H

#include "dialect.h"

#define WAYS 4
#define PAGE_SHIFT_4K 12
#define TARGET_SHIFT 48
/* User addresses have bit 63 clear on every 64-bit architecture Linux has. */
#define KERNEL_ADDRESS (1ULL << 63)

/* Sizes for bcc; the other loader sets them in the object, the service in `config`. */
#ifndef TIERD_SETS
#define TIERD_SETS 1024
#endif
#ifndef TIERD_CPUS
#define TIERD_CPUS 1
#endif
#ifndef TIERD_TARGETS
#define TIERD_TARGETS 4096
#endif

enum mode {
	MODE_COUNT = 0, /* count in the table */
	MODE_PASS = 1,	/* let the kernel write the sample into the event's ring buffer */
};

struct slot {
	u64 key; /* target << 48 | 4 KiB page number */
	u32 epoch;
	u32 stamp;
	u32 count;
	u32 writes;
	u32 hints; /* faults that were NUMA hint faults */
	u32 order; /* migrations: of the folio that moved last */
};

struct set {
	struct slot way[WAYS];
};

struct config {
	u32 epoch; /* never 0 */
	u32 mode;
	u32 sets; /* of one CPU in one half */
	u32 cpus;
	u32 hints;     /* 1: remember each thread's last fault */
	u32 own;       /* tgid of the service */
	u32 demotion;  /* the kernel's number of the migration reason "demotion" */
	u32 offset[7]; /* of tracepoint fields, in the order the program says */
	u32 spare[2];
};

struct stats {
	u64 seen;	/* runs of the program */
	u64 foreign;	/* process not watched */
	u64 no_address; /* no address, or one of the kernel's */
	u64 counted[2]; /* samples put into a half */
	u64 evicted[2]; /* of these, samples in slots that gave way */
	u64 passed;	/* samples for the ring buffer */
	u64 unplaced;	/* samples for which the table has no room at all (a CPU too many) */
	u64 hints;
	u64 hints_foreign;
	u64 hints_lost; /* hint faults of watched processes whose page is not known */
	u64 spare[4];
};

#ifdef TIERD_BCC
BPF_F_TABLE("array", u32, struct set, sets, TIERD_SETS, BPF_F_MMAPABLE);
BPF_F_TABLE("array", u32, struct stats, stats, TIERD_CPUS, BPF_F_MMAPABLE);
BPF_F_TABLE("array", u32, struct config, config, 1, BPF_F_MMAPABLE);
BPF_TABLE("hash", u32, u32, targets, TIERD_TARGETS);
#else
struct {
	MAP_INT(type, BPF_MAP_TYPE_ARRAY);
	MAP_INT(max_entries, TIERD_SETS);
	MAP_INT(map_flags, BPF_F_MMAPABLE);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct set);
} sets MAP_SECTION;

struct {
	MAP_INT(type, BPF_MAP_TYPE_ARRAY);
	MAP_INT(max_entries, TIERD_CPUS);
	MAP_INT(map_flags, BPF_F_MMAPABLE);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct stats);
} stats MAP_SECTION;

struct {
	MAP_INT(type, BPF_MAP_TYPE_ARRAY);
	MAP_INT(max_entries, 1);
	MAP_INT(map_flags, BPF_F_MMAPABLE);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct config);
} config MAP_SECTION;

struct {
	MAP_INT(type, BPF_MAP_TYPE_HASH);
	MAP_INT(max_entries, TIERD_TARGETS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u32);
} targets MAP_SECTION;
#endif

static __always_inline struct set *set_at(u32 index)
{
#ifdef TIERD_BCC
	return sets.lookup(&index);
#else
	return bpf_map_lookup_elem(&sets, &index);
#endif
}

static __always_inline struct stats *stats_of(u32 cpu)
{
#ifdef TIERD_BCC
	return stats.lookup(&cpu);
#else
	return bpf_map_lookup_elem(&stats, &cpu);
#endif
}

static __always_inline struct config *the_config(void)
{
	u32 zero = 0;
#ifdef TIERD_BCC
	return config.lookup(&zero);
#else
	return bpf_map_lookup_elem(&config, &zero);
#endif
}

/* The target number of a process (the key is its tgid), or NULL. */
static __always_inline u32 *target_of(u32 tgid)
{
#ifdef TIERD_BCC
	return targets.lookup(&tgid);
#else
	return bpf_map_lookup_elem(&targets, &tgid);
#endif
}

static __always_inline u64 key_of(u32 target, u64 address)
{
	return ((u64)target << TARGET_SHIFT) | (address >> PAGE_SHIFT_4K);
}

/* The page's slot in this CPU's part of the current half, made if need be; or NULL. */
static __always_inline struct slot *slot_of(struct config *c, struct stats *s, u32 cpu, u64 key)
{
	u32 epoch = *(volatile u32 *)&c->epoch;
	u32 half = epoch & 1;
	u64 hash = (key * 0x9E3779B97F4A7C15ULL) >> 32;
	u32 index = (half * c->cpus + cpu) * c->sets + (u32)((hash * c->sets) >> 32);
	struct set *set = set_at(index);
	struct slot *oldest;
	u32 stamp;

	if (!set || cpu >= c->cpus)
		return 0;
	s->counted[half & 1]++;
	stamp = (u32)s->counted[half & 1];
	oldest = &set->way[0];
#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		struct slot *slot = &set->way[i];

		if (slot->epoch != epoch) {
			/* Slots are filled in order, so the page is in none of the rest. */
			oldest = slot;
			goto fresh;
		}
		if (slot->key == key) {
			slot->stamp = stamp;
			return slot;
		}
		if (slot->stamp < oldest->stamp)
			oldest = slot;
	}
	s->evicted[half & 1] += oldest->count;
fresh:
	oldest->key = key;
	oldest->stamp = stamp;
	oldest->count = 0;
	oldest->writes = 0;
	oldest->hints = 0;
	oldest->order = 0;
	oldest->epoch = epoch;
	return oldest;
}

/*
 * What becomes of one sample: returns 0 when it was counted or dropped, and 1 when the
 * kernel shall write it into the event's ring buffer.
 */
static __always_inline int take_sample(u64 address, u32 writes)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct stats *s = stats_of(cpu);
	struct config *c = the_config();
	struct slot *slot;
	u32 *target;

	if (!s || !c)
		return 0;
	s->seen++;
	target = target_of(bpf_get_current_pid_tgid() >> 32);
	if (!target) {
		s->foreign++;
		return 0;
	}
	if (!address || (address & KERNEL_ADDRESS)) {
		s->no_address++;
		return 0;
	}
	if (c->mode == MODE_PASS) {
		s->passed++;
		return 1;
	}
	slot = slot_of(c, s, cpu, key_of(*target, address));
	if (!slot) {
		s->unplaced++;
		return 0;
	}
	slot->count++;
	slot->writes += writes;
	return 0;
}

#endif
