// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page migrations, whoever started them: the kernel's NUMA balancing, demotion by
 * reclaim, DAMON, compaction, tierd itself and other programs.
 *
 *   migrate:mm_migrate_pages              pages moved and failed by reason, in the same
 *                                         place where /proc/vmstat's pgmigrate_* count
 *   migrate:remove_migration_pte          the virtual page that has just moved (also
 *                                         when its move failed and it stays)
 *   vmscan:mm_vmscan_lru_shrink_inactive  the node whose reclaim demoted
 *   sched:sched_move_numa                 a task that follows its memory
 *
 * Where the fields stand differs between kernels: the service reads it from tracefs
 * and puts it into `config`. A migrated page's process is not in the event; its key has
 * the target of the current process (the owner, for NUMA balancing) or NO_TARGET.
 */
#include "table.h"

#define REASONS 16
#define NODES 64
#define NO_TARGET 0xFFFF
/* Tracepoint fields in config.offset. */
enum { SUCCEEDED, FAILED, REASON, ADDRESS, ORDER, NODE };

struct moved {
	u64 calls;
	u64 succeeded;
	u64 failed;
	u64 own; /* of the succeeded, by the service itself */
};

struct node {
	u64 demoted; /* pages that this node's reclaim demoted */
	u64 spare;
};

#ifdef TIERD_BCC
BPF_F_TABLE("array", u32, struct moved, reasons, REASONS *TIERD_CPUS, BPF_F_MMAPABLE);
BPF_F_TABLE("array", u32, struct node, nodes, NODES *TIERD_CPUS, BPF_F_MMAPABLE);
BPF_TABLE("lru_hash", u32, u64, demoting, 1024);
#else
struct {
	MAP_INT(type, BPF_MAP_TYPE_ARRAY);
	MAP_INT(max_entries, REASONS *TIERD_CPUS);
	MAP_INT(map_flags, BPF_F_MMAPABLE);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct moved);
} reasons MAP_SECTION;

struct {
	MAP_INT(type, BPF_MAP_TYPE_ARRAY);
	MAP_INT(max_entries, NODES *TIERD_CPUS);
	MAP_INT(map_flags, BPF_F_MMAPABLE);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct node);
} nodes MAP_SECTION;

struct {
	MAP_INT(type, BPF_MAP_TYPE_LRU_HASH);
	MAP_INT(max_entries, 1024);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} demoting MAP_SECTION;
#endif

static __always_inline struct moved *moved_for(u32 index)
{
#ifdef TIERD_BCC
	return reasons.lookup(&index);
#else
	return bpf_map_lookup_elem(&reasons, &index);
#endif
}

static __always_inline struct node *node_at(u32 index)
{
#ifdef TIERD_BCC
	return nodes.lookup(&index);
#else
	return bpf_map_lookup_elem(&nodes, &index);
#endif
}

/* Pages that a thread has demoted since its last look at a list of inactive pages. */
static __always_inline u64 *demoting_by(u32 thread)
{
#ifdef TIERD_BCC
	return demoting.lookup(&thread);
#else
	return bpf_map_lookup_elem(&demoting, &thread);
#endif
}

static __always_inline void set_demoting(u32 thread, u64 pages)
{
#ifdef TIERD_BCC
	demoting.update(&thread, &pages);
#else
	bpf_map_update_elem(&demoting, &thread, &pages, BPF_ANY);
#endif
}

static __always_inline u64 field64(void *ctx, struct config *c, u32 which)
{
	u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (char *)ctx + (c->offset[which] & 0xfff));
	return value;
}

static __always_inline u32 field32(void *ctx, struct config *c, u32 which)
{
	u32 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (char *)ctx + (c->offset[which] & 0xfff));
	return value;
}

PROGRAM("tracepoint/migrate/mm_migrate_pages") int on_migrate(void *ctx)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct stats *s = stats_of(cpu);
	struct config *c = the_config();
	u64 task = bpf_get_current_pid_tgid();
	u64 succeeded, *pending;
	struct moved *moved;
	u32 reason;

	if (!s || !c)
		return 0;
	s->seen++;
	succeeded = field64(ctx, c, SUCCEEDED);
	reason = field32(ctx, c, REASON);
	/* A reason that a newer kernel added beyond our table is counted as the last. */
	moved = moved_for(cpu * REASONS + (reason < REASONS ? reason : REASONS - 1));
	if (!moved) {
		s->unplaced += succeeded;
		return 0;
	}
	moved->calls++;
	moved->succeeded += succeeded;
	moved->failed += field64(ctx, c, FAILED);
	if (task >> 32 == c->own)
		moved->own += succeeded;
	if (reason == c->demotion && succeeded) {
		pending = demoting_by((u32)task);
		set_demoting((u32)task, succeeded + (pending ? *pending : 0));
	}
	return 0;
}

PROGRAM("tracepoint/migrate/remove_migration_pte") int on_page_moved(void *ctx)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct stats *s = stats_of(cpu);
	struct config *c = the_config();
	u32 *target = target_of(bpf_get_current_pid_tgid() >> 32);
	struct slot *slot;
	u64 key;

	if (!s || !c)
		return 0;
	key = key_of(target ? *target : NO_TARGET, field64(ctx, c, ADDRESS));
	slot = slot_of(c, s, cpu, key);
	if (!slot) {
		s->unplaced++;
		return 0;
	}
	slot->count++;
	slot->order = field32(ctx, c, ORDER);
	return 0;
}

PROGRAM("tracepoint/vmscan/mm_vmscan_lru_shrink_inactive") int on_shrink(void *ctx)
{
	u32 cpu = bpf_get_smp_processor_id();
	u32 thread = (u32)bpf_get_current_pid_tgid();
	struct config *c = the_config();
	u64 *pending = demoting_by(thread);
	struct node *node;
	u32 number;

	if (!c || !pending || !*pending)
		return 0;
	number = field32(ctx, c, NODE);
	if (number >= NODES)
		return 0;
	node = node_at(cpu * NODES + number);
	if (node)
		node->demoted += *pending;
	*pending = 0;
	return 0;
}

PROGRAM("tracepoint/sched/sched_move_numa") int on_move_numa(void *ctx)
{
	struct stats *s = stats_of(bpf_get_smp_processor_id());

	if (s)
		s->passed++;
	return 0;
}
