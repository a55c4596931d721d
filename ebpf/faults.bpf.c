// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page faults: the software event PERF_COUNT_SW_PAGE_FAULTS, whose samples carry the
 * faulting address. One sample a fault when its period is 1.
 *
 * NUMA hint faults look like any other fault there (the entry is not present for the
 * CPU). They are told apart where kprobes work: task_numa_fault() runs in the thread
 * that faulted, after the fault's event and before its next one.
 */
#include "table.h"

#ifndef TIERD_THREADS
#define TIERD_THREADS 16384
#endif

#ifdef TIERD_BCC
BPF_TABLE("lru_hash", u32, u64, last_fault, TIERD_THREADS);
#else
struct {
	MAP_INT(type, BPF_MAP_TYPE_LRU_HASH);
	MAP_INT(max_entries, TIERD_THREADS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} last_fault MAP_SECTION;
#endif

static __always_inline void remember(u32 thread, u64 address)
{
#ifdef TIERD_BCC
	last_fault.update(&thread, &address);
#else
	bpf_map_update_elem(&last_fault, &thread, &address, BPF_ANY);
#endif
}

static __always_inline u64 *remembered(u32 thread)
{
#ifdef TIERD_BCC
	return last_fault.lookup(&thread);
#else
	return bpf_map_lookup_elem(&last_fault, &thread);
#endif
}

PROGRAM("perf_event") int on_fault(struct bpf_perf_event_data *ctx)
{
	u64 address = ctx->addr;
	struct config *c = the_config();
	u64 task = bpf_get_current_pid_tgid();

	if (c && c->hints && target_of(task >> 32))
		remember((u32)task, address);
	return take_sample(address, 0);
}

/* void task_numa_fault(int last_cpupid, int mem_node, int pages, int flags), kernel/sched. */
PROGRAM("kprobe/task_numa_fault") int on_numa_fault(void *ctx)
{
	u64 task = bpf_get_current_pid_tgid();
	u32 cpu = bpf_get_smp_processor_id();
	struct stats *s = stats_of(cpu);
	struct config *c = the_config();
	struct slot *slot = 0;
	u32 *target = target_of(task >> 32);
	u64 *address;

	if (!s || !c)
		return 0;
	if (!target) {
		s->hints_foreign++;
		return 0;
	}
	s->hints++;
	address = remembered((u32)task);
	if (address) {
		slot = slot_of(c, s, cpu, key_of(*target, *address));
		/* A hint is no sample of its own: take back what slot_of counted. */
		if (slot)
			s->counted[slot->epoch & 1]--;
	}
	if (slot)
		slot->hints++;
	else
		s->hints_lost++;
	return 0;
}
