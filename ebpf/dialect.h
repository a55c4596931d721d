/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The few words in which bcc and plain clang differ, so that a program is one file.
 *
 * bcc defines TIERD_BCC and brings its own helpers; it rewrites calls such as
 * map.lookup(&key), but neither in macros nor in included files (the loader pastes
 * includes in), so each map has one small function that looks it up in either way.
 * Only kernel headers for user space (UAPI) are used: any kernel's will do.
 */
#ifndef TIERD_DIALECT_H
#define TIERD_DIALECT_H

#ifdef TIERD_BCC
#include <uapi/linux/bpf.h>
#include <uapi/linux/bpf_perf_event.h>
#define PROGRAM(name)
#else
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <linux/types.h>

typedef __u64 u64;
typedef __u32 u32;
typedef __u16 u16;
typedef __u8 u8;

#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define PROGRAM(name) __attribute__((section(name), used))
#define MAP_SECTION __attribute__((section(".maps"), used))
/* Map attributes for libbpf's BTF-defined maps (kernel: Documentation/bpf/libbpf). */
#define MAP_INT(name, value) int(*name)[value]
#define MAP_TYPE(name, type) typeof(type) *name

/* Helper numbers are part of the kernel's ABI (uapi/linux/bpf.h, __BPF_FUNC_MAPPER). */
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value,
				   u64 flags) = (void *)BPF_FUNC_map_update_elem;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_delete_elem;
static u32 (*bpf_get_smp_processor_id)(void) = (void *)BPF_FUNC_get_smp_processor_id;
static u64 (*bpf_get_current_pid_tgid)(void) = (void *)BPF_FUNC_get_current_pid_tgid;
static long (*bpf_probe_read_kernel)(void *to, u32 size,
				     const void *from) = (void *)BPF_FUNC_probe_read_kernel;

static const char LICENSE[] __attribute__((section("license"), used)) = "GPL";
#endif

#endif
