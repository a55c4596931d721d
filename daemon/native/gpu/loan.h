/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of loans: memory of a neighbour that the program fills itself, as a cache (tierd_gpu.h).
 *
 * loan.c has the accounts: what is wanted, granted and held, and by when something is due.
 * loan_blocks.c has the blocks: managed memory with the neighbour as preferred location, used
 * from home where it is. So whatever the program does, the driver serves the lender: it evicts
 * managed memory. loan_wire.c has what is said to the daemon and heard from it.
 */
#ifndef TIERD_GPU_LOAN_H
#define TIERD_GPU_LOAN_H

#include "drv.h"
#include "tuning.h"
#include "wire.h"

#include <pthread.h>
#include <stdbool.h>

struct tg_client;

struct tg_loan_step { /* what is above `granted` must be gone by then */
	uint64_t granted, due_ns;
};

struct tg_loan_account {
	uint64_t wanted, granted, held;
	uint64_t unplaced; /* of it, what was not given back in time */
	struct tg_loan_step step[TG_LOAN_STEPS];
	uint32_t steps;
	bool news; /* for the daemon */
	bool used; /* since the last heartbeat */
};

struct tg_loan_block {
	uint64_t addr, bytes;
	int device;
	bool unplaced;
};

struct tg_loans {
	struct tg_loan_account at[TGW_MAX_GPUS];
	struct tg_loan_block *block; /* in the order of allocation */
	uint32_t blocks, room;
	uint64_t said, drained, sent; /* changes: made, in a message, in the socket */
	pthread_cond_t told;
	CUstream stream;
	uint32_t due_ms; /* what the daemon gave last */
	int fd;
};

/* loan.c. With the client's lock held, but for the first two. */
void tg_loans_open(struct tg_client *c);
void tg_loans_close(struct tg_client *c);
/* NULL: it is not another GPU. */
struct tg_loan_account *tg_loan_account(struct tg_client *c, int device);
/* 0: a daemon that serves the device is there; -ENOTCONN, -ENODEV. */
int tg_loan_served(const struct tg_client *c, int device);
/* So much may be held from now on; what is above it is due in `due_ms`. */
void tg_loan_regrant(struct tg_client *c, struct tg_loan_account *loan, uint64_t granted);
void tg_loan_take(struct tg_client *c, struct tg_loan_account *loan, size_t bytes);
void tg_loan_give(struct tg_client *c, struct tg_loan_account *loan, size_t bytes);
/* Bytes above which all that is held is overdue; UINT64_MAX: nothing is. */
uint64_t tg_loan_keep(const struct tg_loan_account *loan, uint64_t now);

/* loan_blocks.c. With the client's lock held. */
void tg_loan_overdue(struct tg_client *c); /* what is not given back in time loses its place */
void tg_loan_free_all(struct tg_client *c);

/* loan_wire.c. With the client's lock held, but for tg_loan_sent. */
void tg_loan_say(struct tg_client *c, struct tg_loan_account *loan);
void tg_loan_say_again(struct tg_client *c); /* a daemon has said how it numbers GPUs */
void tg_loan_say_used(struct tg_client *c);
uint32_t tg_loan_drain(struct tg_client *c, struct tgw_loan *out, uint32_t most);
void tg_loan_sent(struct tg_client *c);
void tg_loan_heard(struct tg_client *c, const struct tgw_grant *grants, uint32_t count);
void tg_loan_detach(struct tg_client *c);

#endif
