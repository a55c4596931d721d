/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One simulated card in the machine: its library, its decoders, the requests on their way to it,
 * and its clock.
 * Owns: the library's handle. Must not touch: the window and the cache. One thread at a time.
 *
 * Time: from the first card_advance() on the memory clock follows guest time at cycles_per_100us
 * (before, during the guest's boot, nobody could tell). Requests come in batches; if one
 * takes more cycles than guest time has given, the clock runs ahead and waits until time has
 * caught up. Without -icount guest time does not stand still while the RTL is simulated: a single
 * step is then bounded, and what is left out is counted in `skipped`.
 */
#ifndef TIERD_LAB_CARD_H
#define TIERD_LAB_CARD_H

#include "options.h"

#include "../../include/neoprof_card.h"

#include <stdio.h>

enum { CARD_BATCH = 1024 };

struct card {
	struct hdm hdm;
	np_card *card;
	const char *kind;
	unsigned int cycles_per_100us;
	bool begun;
	uint64_t begin_ns, begin_cycles; /* of the first card_advance() */
	bool bounded; /* an RTL card in a machine that is not counted by instructions */
	uint64_t batch[CARD_BATCH];
	unsigned int filled;
	uint64_t reads, writes; /* requests pushed or in the batch */
	uint64_t unmapped;	/* addresses of its range that no decoder has */
	uint64_t skipped;	/* memory clocks */
	int (*push)(np_card *card, const uint64_t *requests, size_t count);
	int (*step)(np_card *card, uint64_t cycles);
	int (*read)(np_card *card, uint32_t offset, unsigned int size, uint64_t *value);
	int (*write)(np_card *card, uint32_t offset, unsigned int size, uint64_t value);
	uint64_t (*cycles)(const np_card *card);
	void (*close)(np_card *card);
};

/* `block`: where the decoders are written. 0, or -1 after a message on stderr. */
int card_open(struct card *card, const struct card_options *options, bool counted, uint8_t *block);
void card_close(struct card *card);

/* Bring the card up to guest time `ns`, all requests first. */
void card_advance(struct card *card, uint64_t ns);

/* A line of its host-physical range is read or written. True: the batch is full, call
 * card_advance() before the next. */
static inline bool card_request(struct card *card, uint64_t host, bool write)
{
	uint64_t device;

	if (!hdm_to_device(&card->hdm, host, &device)) {
		card->unmapped++;
		return false;
	}
	if (write)
		card->writes++;
	else
		card->reads++;
	card->batch[card->filled++] = device | (write ? NP_REQ_WRITE : 0);
	return card->filled == CARD_BATCH;
}

/* The card as a JSON object. */
void card_print(const struct card *card, FILE *out);

#endif
