/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The window that the guest sees as an ivshmem device, served: ../../include/neoprof_window.h.
 * Owns: the mapping and the protocol. Must not touch: what the lab's operations do.
 */
#ifndef TIERD_LAB_WINDOW_H
#define TIERD_LAB_WINDOW_H

#include "card.h"

enum window_request {
	WINDOW_LAB = 1,	  /* the lab's mailbox has a request: window_lab_op(), window_lab_done() */
	WINDOW_WRITE = 2, /* a card's register was written */
};

struct window {
	uint8_t *base;
	struct card *cards;
	unsigned int card_count;
};

/* Maps the file, which is NPW_BYTES long, and empties it. 0, or -1 after a message on stderr. */
int window_open(struct window *window, const char *path);

/* Where card `number` has its decoders. */
uint8_t *window_hdm(struct window *window, unsigned int number);

/* From here on the guest finds the cards. */
void window_publish(struct window *window, struct card *cards, unsigned int count);

/* The host goes: the magic becomes 0, requests that wait are answered with -ENODEV. */
void window_close(struct window *window);

/* True if someone waits for an answer. Cheap, needs no lock. */
bool window_pending(const struct window *window);

/* Answers the cards' requests; which sorts there were, as a mask of enum window_request. */
unsigned int window_serve(struct window *window, uint64_t ns);

uint32_t window_lab_op(const struct window *window);
/* What goes with the operation: a 32-bit number at an offset of the lab's mailbox. */
uint32_t window_lab_word(const struct window *window, unsigned int offset);
void window_lab_done(struct window *window, int status, bool watching);
void window_set_watching(struct window *window, bool watching);

#endif
