/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints: /sys/kernel/tracing/events/tierd. docs/reference/kmod-trace.md lists them. */
/* clang-format off */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM tierd

#if !defined(TIERD_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define TIERD_TRACE_H

#include "tierd.h"

#include <linux/tracepoint.h>

TRACE_EVENT(tierd_round,
	TP_PROTO(const struct tierd_target *target),
	TP_ARGS(target),
	TP_STRUCT__entry(
		__field(u16, target)
		__field(pid_t, pid)
		__field(u64, round)
		__field(u64, pages)
		__field(u64, accessed)
		__field(u64, round_ns)
		__field(u64, work_ns)
	),
	TP_fast_assign(
		__entry->target = target->number;
		__entry->pid = pid_nr(target->pid);
		__entry->round = target->stats.rounds;
		__entry->pages = target->stats.round_pages;
		__entry->accessed = target->stats.round_accessed;
		__entry->round_ns = target->stats.round_ns;
		__entry->work_ns = target->stats.round_cpu_ns;
	),
	TP_printk("target=%u pid=%d round=%llu pages=%llu accessed=%llu round_ns=%llu work_ns=%llu",
		  __entry->target, __entry->pid, __entry->round, __entry->pages,
		  __entry->accessed, __entry->round_ns, __entry->work_ns)
);

TRACE_EVENT(tierd_target,
	TP_PROTO(const struct tierd_target *target, u8 event),
	TP_ARGS(target, event),
	TP_STRUCT__entry(
		__field(u16, target)
		__field(pid_t, pid)
		__field(u8, event)
	),
	TP_fast_assign(
		__entry->target = target->number;
		__entry->pid = pid_nr(target->pid);
		__entry->event = event;
	),
	TP_printk("target=%u pid=%d event=%s", __entry->target, __entry->pid,
		  __print_symbolic(__entry->event, { TIERD_EVENT_UNSPEC, "add" },
				   { TIERD_EVENT_GONE, "gone" }, { TIERD_EVENT_EXEC, "exec" },
				   { TIERD_EVENT_SECOND_MMU, "second-mmu" }))
);

TRACE_EVENT(tierd_overflow,
	TP_PROTO(unsigned int capacity, u64 dropped),
	TP_ARGS(capacity, dropped),
	TP_STRUCT__entry(
		__field(unsigned int, capacity)
		__field(u64, dropped)
	),
	TP_fast_assign(
		__entry->capacity = capacity;
		__entry->dropped = dropped;
	),
	TP_printk("capacity=%u dropped=%llu", __entry->capacity, __entry->dropped)
);

TRACE_EVENT(tierd_resolve,
	TP_PROTO(u32 asked, u32 mapped, u32 shared, u32 gone, u32 busy),
	TP_ARGS(asked, mapped, shared, gone, busy),
	TP_STRUCT__entry(
		__field(u32, asked)
		__field(u32, mapped)
		__field(u32, shared)
		__field(u32, gone)
		__field(u32, busy)
	),
	TP_fast_assign(
		__entry->asked = asked;
		__entry->mapped = mapped;
		__entry->shared = shared;
		__entry->gone = gone;
		__entry->busy = busy;
	),
	TP_printk("asked=%u mapped=%u shared=%u gone=%u busy=%u", __entry->asked,
		  __entry->mapped, __entry->shared, __entry->gone, __entry->busy)
);

TRACE_EVENT(neoprof_drain,
	TP_PROTO(unsigned int card, unsigned int level, unsigned int frames, u64 reported,
		 bool overflow, u64 work_ns),
	TP_ARGS(card, level, frames, reported, overflow, work_ns),
	TP_STRUCT__entry(
		__field(unsigned int, card)
		__field(unsigned int, level)
		__field(unsigned int, frames)
		__field(u64, reported)
		__field(bool, overflow)
		__field(u64, work_ns)
	),
	TP_fast_assign(
		__entry->card = card;
		__entry->level = level;
		__entry->frames = frames;
		__entry->reported = reported;
		__entry->overflow = overflow;
		__entry->work_ns = work_ns;
	),
	TP_printk("card=%u level=%u frames=%u reported=%llu overflow=%d work_ns=%llu",
		  __entry->card, __entry->level, __entry->frames, __entry->reported,
		  __entry->overflow, __entry->work_ns)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
