/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an unmodified program uses, seen in its kernel launches.
 *
 * The parameters of a launch hold the addresses of the memory that its kernel works on.
 * Those that lie in tracked memory make the launch's spans. A span begins at an address
 * and ends before the next chunk at which another address lately began, or with its
 * allocation: the driver does not tell how much of it the kernel touches. Launches run
 * long after they are made, so spans wait here until an event after them has come, and are
 * reported as uses then, in the order of the launches.
 */
#ifndef TIERD_GPU_LAUNCHES_H
#define TIERD_GPU_LAUNCHES_H

#include "client.h"

struct tg_span {
	uint64_t addr, bytes;
};

struct tg_spans {
	struct tg_span span[TG_LAUNCH_SPANS];
	uint32_t count;
	uint32_t ticket; /* of the launch: each start is taken once */
};

/* launches.c. tg_launches_watching: whether there is a daemon that wants to know. */
bool tg_launches_watching(struct tg_client *c);
void tg_launches_begin(struct tg_client *c, struct tg_spans *spans);
/* Adds what `words` (n bytes, at any alignment) point at in tracked memory. */
void tg_launches_scan(struct tg_client *c, struct tg_spans *spans, const void *words, size_t bytes);
/* Adds [addr, addr + bytes) as far as it is tracked: of a copy, which tells its size. */
void tg_launches_exact(struct tg_client *c, struct tg_spans *spans, uint64_t addr, size_t bytes);
/* The launch was made on a stream. `told`: its parameters could be read. */
void tg_launches_end(struct tg_client *c, const struct tg_spans *spans, CUstream stream, bool told);
/* Reports what has run. Returns whether more is under way. */
bool tg_launches_poll(struct tg_client *c);
int tg_launches_open(struct tg_client *c);
void tg_launches_close(struct tg_client *c);

/* params.c: scans the parameters of one launch. False: they cannot be read. */
bool tg_params_scan(struct tg_client *c, struct tg_spans *spans, void *function, void **params,
		    void **extra);
void tg_params_forget(void); /* code was unloaded: its functions may be others next */

/* graph.c: what an executable graph uses, learnt when it is made. */
void tg_graph_made(struct tg_client *c, void *exec, void *graph);
void tg_graph_gone(void *exec);
/* False: the graph is not known. */
bool tg_graph_spans(void *exec, struct tg_spans *spans);

#endif
