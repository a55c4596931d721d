/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtierd-gpu: lets tierd place an application's GPU memory in chunks of 2 MiB on its
 * own GPU, on neighbours that do not need theirs, or on the host.
 *
 * A client belongs to one GPU of one process. Its memory is managed memory, so that the
 * driver keeps every address valid wherever the bytes are. Without a daemon, or when it
 * goes away, a client does nothing but allocate: placement is the driver's.
 *
 * Functions return 0 (or a count) or a negative errno. All are thread-safe.
 */
#ifndef TIERD_GPU_H
#define TIERD_GPU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TG_API __attribute__((visibility("default")))
#define TG_HOST (-1)

struct tg_client;

/* A lender's memory stays the driver's; only what it is told to be free is corrected. */
enum tg_role { TG_BORROW = 1, TG_LEND = 2 };
enum tg_hint { TG_WILLNEED = 1, TG_DONTNEED = 2 };

struct tg_options {
	const char *driver;	    /* NULL: libcuda.so.1 */
	const char *socket;	    /* NULL: no thread; the caller feeds, drains and pumps */
	const char *name;	    /* shown by the daemon */
	int device;		    /* CUDA ordinal */
	int role;		    /* of enum tg_role */
	uint32_t max_chunks;	    /* 0: 65,536 */
	uint32_t inflight;	    /* calls under way on one path, of up to 16 chunks; 0: 2 */
	uint64_t (*clock_ns)(void); /* NULL: CLOCK_MONOTONIC */
};

struct tg_stats {
	uint64_t chunks, ranges;
	uint64_t moves_done, moves_failed, moves_refused, moves_cancelled;
	uint64_t bytes_moved;
	uint64_t uses, uses_dropped, states_dropped, moves_dropped, ranges_untracked;
	uint64_t queued, inflight, parked; /* chunks */
	uint64_t attached, detached;	   /* times the daemon came and went */
	uint64_t refused;		   /* errno by which it refused this client last, 0: none */
	uint64_t launches, launches_untold, spans_dropped; /* seen by the shim */
};

/* -ENOENT without a driver, -ENOSYS if it lacks a function, -ENODEV without that device,
 * -EOPNOTSUPP without managed memory that moves under kernels, -ENOMEM, -EAGAIN: no thread. */
TG_API int tg_open(const struct tg_options *options, struct tg_client **out);
TG_API void tg_close(struct tg_client *client);

/* Memory from here is tracked; `bytes` is rounded up to whole chunks. -ENOMEM, -ENOSPC. */
TG_API int tg_alloc(struct tg_client *client, size_t bytes, uint64_t *addr);
TG_API int tg_free(struct tg_client *client, uint64_t addr);
/* Tracks managed memory that the application allocated itself, whole chunks of it. */
TG_API int tg_register(struct tg_client *client, uint64_t addr, size_t bytes);
TG_API int tg_unregister(struct tg_client *client, uint64_t addr);

/*
 * Says that kernels launched from now on use `bytes` from `addr`, and at release that no
 * more of them will: a chunk in use is not sent away. It makes placement better, and
 * nothing depends on it; a kernel may still run when its memory is released.
 */
TG_API int tg_acquire(struct tg_client *client, uint64_t addr, size_t bytes);
TG_API int tg_release(struct tg_client *client, uint64_t addr, size_t bytes);
/*
 * Says that a kernel was launched on `stream` (a CUstream) with these addresses among its
 * parameters, as the preload reads them off: when it has run, what they point at was used.
 * For whoever launches kernels and knows of them no more than that.
 */
TG_API int tg_launched(struct tg_client *client, const uint64_t *addresses, size_t count,
		       void *stream);
TG_API int tg_hint(struct tg_client *client, uint64_t addr, size_t bytes, int hint);
/* The driver's figures, with what neighbours borrowed here counted as free. */
TG_API int tg_mem_info(struct tg_client *client, size_t *free_bytes, size_t *total);

/*
 * Loans: memory of a neighbour for a program that fills it itself, as a cache: what is there
 * may be given up at any time without a copy. A program says how much it wants, is granted so
 * much or less, and allocates within the grant. When the grant falls below what is held,
 * `due_ns` says by when (CLOCK_MONOTONIC, or the client's clock) the rest must be freed. What
 * is not freed in time stays valid memory: the driver evicts it to the host when the lender
 * needs it, and it comes to the neighbour no more. A copy or a kernel uses it where it is.
 *
 * `device` is the neighbour's CUDA ordinal. -EINVAL: it is not another GPU; -ENODEV: the
 * daemon does not serve it; -ENOTCONN: there is no daemon, and nothing is granted.
 */
struct tg_loan {
	uint64_t wanted, granted, held; /* bytes */
	uint64_t due_ns;		/* 0: nothing has to be given back */
};

/* Is kept, and said to a daemon that comes. 0 or -ENOTCONN. */
TG_API int tg_loan_want(struct tg_client *client, int device, uint64_t bytes);
/* Fills *out also when it returns -ENOTCONN. */
TG_API int tg_loan_state(struct tg_client *client, int device, struct tg_loan *out);
/* `bytes` are rounded up to whole chunks. -ENOSPC: more than is granted; -ENOMEM: the
 * lender has taken the memory, and the grant has not fallen yet. With a thread, waits
 * until the daemon was told, so that the lender does not take it for somebody else's. */
TG_API int tg_loan_alloc(struct tg_client *client, int device, size_t bytes, uint64_t *addr);
/* Waits for the kernels that are under way, as cuMemFree does. -ENOENT. */
TG_API int tg_loan_free(struct tg_client *client, uint64_t addr);
/* Says that what is there was of use: of two loans the idle one is taken back first. */
TG_API int tg_loan_used(struct tg_client *client, int device);
/* An eventfd that is readable when a grant has changed; the client's own. */
TG_API int tg_loan_fd(struct tg_client *client);

TG_API int tg_stats_get(struct tg_client *client, struct tg_stats *out);

/* Without a thread: the daemon's messages in, ours out, and the work between. */
TG_API int tg_feed(struct tg_client *client, const void *message, size_t bytes);
TG_API int tg_drain(struct tg_client *client, void *message, size_t room); /* bytes, 0: none */
TG_API int tg_pump(struct tg_client *client); /* moves under way and queued */
TG_API int tg_attach(struct tg_client *client);
TG_API int tg_detach(struct tg_client *client);
/* Where the chunk at `addr` is believed to be. 0 or -ENOENT. */
TG_API int tg_where(struct tg_client *client, uint64_t addr, int *location);

#ifdef __cplusplus
}
#endif
#endif
