/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a client: its chunk table, its moves and its messages. */
#ifndef TIERD_GPU_CLIENT_H
#define TIERD_GPU_CLIENT_H

#include "drv.h"
#include "loan.h"
#include "tierd_gpu.h"
#include "tuning.h"
#include "wire.h"

#include <pthread.h>
#include <stdbool.h>

#define TG_PLACES (TGW_MAX_GPUS + 1) /* the last one is the host */
#define TG_NO_PLACE (-2)
#define TG_SOCKET "/run/tierd/gpu.sock"

enum tg_state { TG_FREE, TG_IDLE, TG_QUEUED, TG_MOVING };

struct tg_chunk {
	uint64_t addr;
	uint32_t pins;
	uint32_t sequence; /* of the move that is queued */
	int16_t location;  /* device ordinal, TG_HOST, or TG_NO_PLACE before first use */
	uint8_t state;
	bool in_place; /* accessed from home where it is */
	bool touched;  /* acquired while a move was under way */
};

struct tg_range {
	uint64_t addr, bytes;
	uint32_t first, count;
	bool owned; /* from tg_alloc */
};

/* Moves of neighbouring chunks, carried out by one call of the driver. */
struct tg_flight {
	bool used;
	bool calling; /* the call that starts it is not back yet; the lock is free meanwhile */
	int from, to;
	int failed; /* what another flight on the path was told while this one was called */
	uint32_t first, count;	      /* chunks */
	struct tgw_move move[TG_RUN]; /* in any order, dest as an ordinal */
	CUevent event;
	CUstream stream;
};

struct tg_ring {
	struct tgw_move *move;
	uint32_t count; /* of TG_QUEUE, oldest first; a turn's window is put back in front */
};

struct tg_grant {
	uint32_t chunks;
	uint64_t borrowed_bytes;
};

struct tg_client {
	pthread_mutex_t lock;
	pthread_cond_t called; /* a call that started a flight is back */
	struct tg_driver driver;
	struct tg_options options;
	char name[32], *socket;
	uint8_t uuid[16];
	int devices;
	CUcontext context[TGW_MAX_GPUS];
	bool context_failed[TGW_MAX_GPUS];

	struct tg_chunk *chunk;
	uint32_t max_chunks;
	pthread_rwlock_t ranges_lock;	      /* who changes them holds `lock` as well */
	struct tg_range range[TG_MAX_RANGES]; /* by address */
	uint32_t ranges;
	struct tg_launches *launches; /* NULL: launches are not watched */

	CUstream stream[TG_PLACES][TG_PLACES];
	uint32_t on_path[TG_PLACES][TG_PLACES]; /* flights */
	uint32_t toward[TG_PLACES];		/* chunks under way */
	struct tg_flight flight[TG_MAX_INFLIGHT];
	struct tg_ring urgent, normal;
	uint64_t turn_ns;	  /* when the turn of moves began */
	uint32_t here[TG_PLACES]; /* chunks at each place */
	struct tg_grant grant[TGW_MAX_GPUS];

	struct tg_loans loans;

	bool attached, greeted, alive_due;
	int ordinal_of[TGW_MAX_GPUS]; /* the daemon's number to ours, -1: not visible */
	int number_of[TGW_MAX_GPUS];
	struct tgw_use *use;
	uint32_t use_head, uses;
	struct tgw_state *report;
	uint32_t report_head, reports;
	uint32_t resync; /* next chunk of a report on all of them; max_chunks: none is due */
	struct tgw_chunks *change;
	uint32_t changes;
	struct tg_stats stats;

	pthread_t thread;
	bool threaded, stopping;
	int wake_fd, socket_fd;
	uint32_t heartbeat_ms;
	uint64_t heard_ns;
};

static inline int tg_home(const struct tg_client *c)
{
	return c->options.device;
}

/* The GPU that the daemon calls `number`, -1: it is not visible. */
static inline int tg_ordinal(const struct tg_client *c, int number)
{
	return number < 0 || number >= TGW_MAX_GPUS ? -1 : c->ordinal_of[number];
}

/* The bytes of the whole chunks that hold so many; 0: none, or more than there can be. */
static inline size_t tg_whole_chunks(size_t bytes)
{
	if (bytes > SIZE_MAX - TG_CHUNK_BYTES)
		return 0;
	return (bytes + TG_CHUNK_BYTES - 1) / TG_CHUNK_BYTES * TG_CHUNK_BYTES;
}

static inline int tg_place(int where)
{
	return where < 0 ? TGW_MAX_GPUS : where;
}

/* chunks.c */
struct tg_range *tg_range_at(struct tg_client *c, uint64_t addr);
int tg_range_add(struct tg_client *c, uint64_t addr, size_t bytes, bool owned);
void tg_range_remove(struct tg_client *c, struct tg_range *range);
void tg_set_location(struct tg_client *c, struct tg_chunk *chunk, int where);
uint32_t tg_index(const struct tg_client *c, const struct tg_chunk *chunk);

/* copy.c: the GPU copy backend. Called with the client's lock held, but for tg_copy_call. */
int tg_enter(struct tg_client *c, int device); /* makes the device's context current */
void tg_leave(struct tg_client *c);
int tg_reach(struct tg_client *c, int device); /* a context there: prefetches need one */
int tg_copy_prepare(struct tg_client *c, struct tg_flight *flight);
int tg_copy_call(struct tg_client *c, const struct tg_flight *flight);
int tg_copy_poll(struct tg_client *c, struct tg_flight *flight);
int tg_copy_wait(struct tg_client *c, struct tg_flight *flight);
int tg_in_place(struct tg_client *c, struct tg_chunk *first, uint32_t count, bool on);
void tg_copy_close(struct tg_client *c);

/* access.c */
void tg_used(struct tg_client *c, uint64_t addr, uint64_t bytes); /* by a kernel that has run */

/* moves.c */
int tg_queue(struct tg_client *c, const struct tgw_move *move);
void tg_cancel_all(struct tg_client *c, bool wait);
/* True: the lock was free meanwhile, so ranges may be other ones now. */
bool tg_settle_chunk(struct tg_client *c, struct tg_chunk *chunk);
int tg_run_moves(struct tg_client *c);

/* reports.c */
uint64_t tg_now(const struct tg_client *c);
void tg_report_use(struct tg_client *c, uint32_t chunk, uint32_t bytes);
void tg_report_state(struct tg_client *c, uint32_t chunk, const struct tgw_move *move, int status);
void tg_report_change(struct tg_client *c, uint32_t first, uint32_t count, bool live);

/* link.c */
int tg_link_start(struct tg_client *c);
void tg_link_stop(struct tg_client *c);
void tg_link_wake(struct tg_client *c);

#endif
