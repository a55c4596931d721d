/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests may do with the stand-in driver beside calling cu* and nvml*: make a world,
 * move its clock, break things, run accesses as a kernel would, and read counters.
 *
 * Locations are the world's GPUs, whatever CUDA_VISIBLE_DEVICES says; FG_HOST is host
 * memory. Times are virtual nanoseconds.
 * One world a process at a time; a world made with a path is shared by processes.
 */
#ifndef FAKEGPU_H
#define FAKEGPU_H

#include <stdint.h>

#define FG_API __attribute__((visibility("default")))
#define FG_MAX_GPUS 8
#define FG_HOST FG_MAX_GPUS
#define FG_LOCS (FG_MAX_GPUS + 1)
#define FG_BLOCK_BYTES ((uint64_t)2 << 20)
#define FG_MAX_TENANTS 32

enum fg_scrub {
	FG_SCRUB_OWNER = 0, /* a frame that comes to another process is cleared */
	FG_SCRUB_NEVER = 1, /* nothing is ever cleared: the worst a driver may do */
};

struct fg_config {
	const char *topology; /* "v100x4", "h100x8", "pcie4" */
	uint64_t gpu_bytes;   /* capacity of each GPU, 0: the topology's own */
	uint32_t payload;     /* bytes kept of each block: up to 2 MiB; a block's other bytes
				 are not stored. 2 MiB makes blocks readable by the CPU */
	uint32_t max_blocks;
	int scrub;
	uint32_t batch;		/* blocks that managed memory takes at once, 0: 64 */
	uint64_t context_bytes; /* of a GPU, for each process that computes there */
};

struct fg_gpu_stats {
	uint64_t total_bytes, free_bytes; /* as cuMemGetInfo and NVML tell */
	uint64_t spare_bytes;		  /* managed memory took it ahead of need */
	uint64_t unused_bytes;		  /* managed blocks left it behind */
	uint64_t plain_bytes;		  /* of cuMemAlloc and contexts */
	uint64_t least_room_bytes; /* free, spare and unused, the least since the world was made */
	uint64_t faults, fault_ns;
	uint64_t evict_copies;			  /* blocks the driver evicted from here */
	uint64_t evicted_of_others, evicted_self; /* ... by who owned them and who caused it */
	uint64_t moved_in, moved_out;		  /* blocks, by prefetch and fault */
	uint64_t remote_bytes;			  /* accesses in place over a link */
	uint64_t kernel_ns, contention_ns;
	uint64_t failed_ops, alloc_failures;
	uint64_t lost; /* 1: the device is gone */
};

/* The world. All return 0 or -errno. */
FG_API int fg_world_open(const char *path, const struct fg_config *config);
FG_API void fg_world_close(void);
FG_API int fg_gpu_count(void);
FG_API int fg_stats(int gpu, struct fg_gpu_stats *out);
/* Bytes carried and the bandwidth (bytes per second) of the path between two locations. */
FG_API int fg_path(int from, int to, uint64_t *carried, double *bytes_per_s);

/* The clock. By default blocking calls move it; a manual clock only the harness moves. */
FG_API uint64_t fg_now(void);
FG_API void fg_set_manual(int manual);
FG_API void fg_set_now(uint64_t now);
/* On a manual clock: what this thread's calls took since this was asked last. */
FG_API uint64_t fg_take_spent(void);

/* Several processes in one: calls of this thread are made as tenant `slot` from now on. */
FG_API int fg_tenant_new(void);
FG_API void fg_tenant_use(int slot);
FG_API void fg_tenant_kill(int slot);

/* Faults, from now on; copies under way on what breaks fail in the middle. */
FG_API int fg_link_set(int a, int b, int up);
FG_API int fg_device_lose(int gpu);
FG_API void fg_fail_allocations(int count);
/* Calls of cuMemPrefetchAsync do not go on while held; how many wait. */
FG_API void fg_hold_prefetches(int held);
FG_API int fg_prefetches_held(void);

/*
 * One kernel's access to `bytes` of the block that holds `addr`, then `compute_ns` of
 * computing, on the stream of the calling tenant's `gpu` (kernels of one GPU and tenant
 * follow each other). Starts no sooner than `not_before`. Returns when it ends, or 0 on
 * an error, which *status then holds as a CUresult. With `write`, the block's stored
 * bytes are filled from `value`; without, *hash gets the hash of what is stored.
 */
FG_API uint64_t fg_kernel(int gpu, uint64_t addr, uint32_t bytes, int write, uint64_t value,
			  uint64_t compute_ns, uint64_t not_before, uint64_t *hash, int *status);
/* A kernel that touches only memory of its own GPU: its end, with what copies through that
 * memory cost it. The worst case: all of it is bound by memory bandwidth. */
FG_API uint64_t fg_compute(int gpu, uint64_t compute_ns, uint64_t not_before);
/* The hash that a block filled from `value` has. */
FG_API uint64_t fg_hash_of(uint64_t value);
/* What a launched kernel does with memory: one parameter of the functions of launch.c. */
struct fg_operand {
	uint64_t addr, bytes;
	uint64_t write; /* not 0: filled from `value`; else read and, unless `value` is 0, */
	uint64_t value; /* ... every block compared with what that fills */
};
/* Blocks that launched kernels of this process found otherwise. */
FG_API uint64_t fg_wrong_reads(void);
/* Where the block that holds `addr` is: a bit for each location; bit 31: its bytes are lost. */
FG_API uint32_t fg_residency(uint64_t addr);

#endif
