/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From loads and stores to requests: each vCPU's filter, the last-level cache behind all of them,
 * and who hears of what goes past it, the exact counts and the cards.
 * Owns: filters, cache, counts, cards, and the lock around the last three. Must not touch: the
 * window, and when watching begins and ends.
 */
#ifndef TIERD_LAB_TRAFFIC_H
#define TIERD_LAB_TRAFFIC_H

#include "card.h"
#include "qemu_api.h"
#include "truth.h"

#include <pthread.h>

enum { TRAFFIC_VCPUS = 64 };

struct traffic {
	pthread_mutex_t lock; /* around truth and cards, for whoever uses them */
	struct truth truth;
	struct card cards[NPW_CARDS_MAX];
	unsigned int card_count;
};

extern struct traffic traffic;

/* `hdm(context, n)`: where card n's decoders are written. 0, or -1 after a message on stderr. */
int traffic_open(const struct options *options, uint8_t *(*hdm)(void *context, unsigned int card),
		 void *context);

/* Cache and filters become empty, nothing is written back. With the lock held. */
void traffic_forget(void);

/* A guest's load or store, called by the vCPU that makes it, without the lock. */
void traffic_access(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t vaddr, bool store);

#endif
