/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the stand-in driver: the world's tables. Indices, not pointers: it is shared. */
#ifndef FAKEGPU_WORLD_H
#define FAKEGPU_WORLD_H

#include "cuabi.h"
#include "fakegpu.h"

#include <pthread.h>
#include <stdbool.h>

#define FG_MAX_RANGES 8192
#define FG_MAX_OPS 4096
#define FG_MAX_STREAMS 2048
#define FG_MAX_EVENTS 8192
#define FG_MAX_LANES (FG_MAX_GPUS * FG_MAX_GPUS + 4 * FG_MAX_GPUS)
#define FG_NONE (-1)

enum fg_kind { FG_FREE, FG_MANAGED, FG_DEVICE };

/* One direction of a link; transfers on it follow each other. */
struct fg_lane {
	double bytes_per_ns;
	uint64_t latency_ns;
	uint64_t busy_until;
	uint64_t carried;
	bool exists, down;
};

/* Where a frame is that a block does not hold for good. */
enum fg_list_name {
	FG_ON_FREE,   /* nobody's: what cuMemGetInfo and NVML call free */
	FG_ON_SPARE,  /* the managed part of the driver took it and has not used it yet */
	FG_ON_UNUSED, /* a managed block left it behind: still its own until somebody needs it */
	FG_ON_USED,   /* a managed block is there, longest here first */
	FG_LISTS,
	FG_ON_NONE = FG_LISTS, /* of cuMemAlloc or a context */
};

struct fg_list {
	int32_t head, tail, count; /* through fg_frame.prev and next */
};

struct fg_gpu {
	uint64_t total_bytes;
	int32_t first_frame, frames, least_room;
	struct fg_list list[FG_LISTS];
	double hbm_bytes_per_ns;
	uint64_t debt_ns; /* memory time that copies took from kernels */
	bool lost;
	struct fg_gpu_stats stats;
};

struct fg_frame {
	int32_t block, prev, next;
	int32_t last_owner;
	uint8_t on; /* of enum fg_list_name */
};

struct fg_block {
	uint64_t va;
	int32_t range;
	int32_t frame[FG_MAX_GPUS];
	int32_t op; /* the move under way, or FG_NONE */
	uint64_t ready_at;
	uint32_t resident, accessed_by;
	int16_t preferred, last_prefetch;
	uint8_t kind;
	bool lost;
	bool host_pages; /* host memory was found for it once: it stays */
};

struct fg_range {
	uint64_t va, bytes;
	int32_t first, blocks;
	int32_t owner;
	uint8_t kind;
};

struct fg_op {
	bool used;
	int32_t block, from, to, stream;
	int32_t lane[2];
	bool copy; /* of bytes between blocks, not of residency: `block` is written */
	uint64_t done_at;
};

struct fg_stream {
	bool used;
	int32_t owner, gpu;
	uint64_t tail;
	int32_t error;
	uint32_t serial; /* of handle reuse */
};

#define FG_MAX_CAPTURES 32

struct fg_capture {
	bool used, invalid;
	int32_t owner, stream, mode;
};

struct fg_event {
	bool used;
	int32_t owner, stream;
	uint64_t at;
};

struct fg_tenant {
	bool used, own_process;
	int32_t serial; /* no other tenant ever has it; slots are used again */
	int32_t pid;
	int32_t contexts[FG_MAX_GPUS];	  /* how often the primary context is held */
	uint64_t context_at[FG_MAX_GPUS]; /* its memory, an address range */
	int32_t plain[FG_MAX_GPUS];	  /* frames that are not managed memory */
	uint64_t moving_until;		  /* its last prefetch */
	uint64_t locked_until;		  /* its last prefetch call: others of its calls wait */
	uint64_t kernel_tail[FG_MAX_GPUS];
};

struct fg_world {
	uint32_t magic;
	pthread_mutex_t lock;
	uint64_t now;
	bool manual;
	int32_t gpus;
	uint32_t payload, max_blocks, frames;
	uint32_t batch;
	uint64_t context_bytes;
	int32_t scrub;
	bool switched; /* GPUs joined by a switch */
	int32_t nvlinks[FG_MAX_GPUS][FG_MAX_GPUS];
	int32_t fail_allocations;
	int32_t hold_prefetches, prefetches_held;
	int32_t ops_used;
	int32_t serials;
	uint64_t next_done;
	char name[32];
	uint64_t frames_at, blocks_at, gpu_arena_at, host_arena_at, size;
	struct fg_gpu gpu[FG_MAX_GPUS];
	struct fg_lane lane[FG_MAX_LANES];
	struct fg_tenant tenant[FG_MAX_TENANTS];
	struct fg_range range[FG_MAX_RANGES];
	struct fg_op op[FG_MAX_OPS];
	struct fg_stream stream[FG_MAX_STREAMS];
	struct fg_event event[FG_MAX_EVENTS];
	struct fg_capture capture[FG_MAX_CAPTURES];
};

/* NULL until a world is open. What NVML needs of this library is visible to it. */
extern FG_API struct fg_world *fg_w;

/* world.c */
FG_API int fg_lock(void); /* attaches from the environment if need be; 0 or a CUresult */
FG_API void fg_unlock(void);
struct fg_frame *fg_frame_at(int32_t index);
struct fg_block *fg_block_at(int32_t index);
int32_t fg_block_index(const struct fg_block *block);
uint8_t *fg_frame_bytes(int32_t frame);
uint8_t *fg_host_bytes(const struct fg_block *block);

/* tenants.c */
int fg_self(void);
bool fg_is_own(int slot);
int fg_join(int world_fd);
void fg_part(void);
FG_API void fg_reap(void);

/* cpu.c */
void fg_cpu_protect(const struct fg_block *block);
void fg_cpu_watch(void);
void fg_cpu_unwatch(void);

/* clock.c */
void fg_block_until(uint64_t when); /* the harness's kernel ends then */
uint64_t fg_present(void);	    /* now, after what this thread's calls took */
void fg_spend(uint64_t ns);	    /* a call takes time */
void fg_spend_until(uint64_t when);
void fg_wait_while_held(void); /* without the world's lock */

/* devices.c */
void fg_devices_find(void); /* reads CUDA_VISIBLE_DEVICES */
int fg_gpu_of(int ordinal); /* FG_NONE: not visible */
int fg_ordinal_of(int gpu);
int fg_visible_count(void);

/* contexts.c */
void fg_context_drop(int slot, int gpu);

/* memory.c */
int fg_plain_range(uint64_t bytes, int gpu, struct fg_range **out); /* 0 or a CUresult */
void fg_plain_drop(struct fg_range *range);

/* links.c */
void fg_links_setup(struct fg_world *w);
int fg_lanes(int from, int to, int32_t lane[2]); /* number of lanes, 0: no path */
uint64_t fg_transfer(int from, int to, uint64_t bytes, uint64_t ready, int32_t lane[2]);
uint64_t fg_access(int from, int to, uint64_t bytes, uint64_t ready);
FG_API double fg_bandwidth(int from, int to);

/* blocks.c */
struct fg_block *fg_find(uint64_t addr);
struct fg_range *fg_find_range(uint64_t addr, int owner);
int fg_range_new(uint64_t va, uint64_t bytes, int owner, enum fg_kind kind);
void fg_range_drop(struct fg_range *range);
void fg_reap_tenant(int slot);

/* frames.c */
#define FG_POISON 0xd5 /* what stands where nothing is any more */
int32_t fg_frame_take(int gpu, int32_t block, int owner, uint64_t *when);
void fg_frame_give(int gpu, int32_t frame);
void fg_list_append(int gpu, int32_t frame, enum fg_list_name name);
int fg_room(int gpu); /* frames that an allocation gets without a copy */
uint8_t *fg_bytes(struct fg_block *block, int where);
void fg_leave(struct fg_block *block, int where);
void fg_leave_behind(struct fg_block *block, int gpu); /* its memory there is unused now */
int fg_where(const struct fg_block *block);	       /* FG_NONE: it has no memory yet */

/* ops.c */
void fg_settle(uint64_t upto);
void fg_wait_block(struct fg_block *block, uint64_t *when);
uint64_t fg_populate(struct fg_block *block); /* what host memory for it costs the first time */
int fg_migrate(struct fg_block *block, int to, uint64_t bytes, uint64_t *when, int stream);
void fg_copy_op(struct fg_block *dest, int from, int to, uint64_t bytes, uint64_t *when,
		int stream);
void fg_lose_blocks(int gpu);
void fg_fail_lane(int32_t lane, int error);

#endif
