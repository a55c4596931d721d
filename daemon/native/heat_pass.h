/* SPDX-License-Identifier: Apache-2.0 */
/* A pass over the slots of the heat table, for the best of those that a question is about. */
#ifndef TIERD_HEAT_PASS_H
#define TIERD_HEAT_PASS_H

#include "heat_table.h"

/* True heats are stored ones times a gain, rounded: by less than this share. */
#define HEAT_SLACK 0x1p-20F

/*
 * The best of what a pass over the slots offers. Where it is not known how many these are, there
 * is room for twice as many as are wanted at most; when it is full the worse half goes, and what
 * is worse than all that stay is not taken any more.
 */
struct best {
	struct rank *rank;
	size_t n;
	size_t room;
	size_t most;
	bool hottest;
	/* A pass ends when it has so many. */
	size_t enough;
	/* What is wanted comes before this: the worst that stayed, once any went. */
	struct rank worst;
};

/* What a pass looks for. */
struct question {
	/* TIERD_NODE_UNPLACED: what is of any and not lately confirmed. */
	uint8_t node;
	bool hottest;
	/* Only huge folios are asked for. */
	bool huge;
	float least;
	const uint8_t *among;
	/* The least warmth of the hottest, the most of the coldest: of all, and in a pass. */
	unsigned int last;
	unsigned int warmth;
	/* The next warmth beyond that any slot has and that is asked for; -1 if there is none. */
	int beyond;
};

/*
 * Offer all slots that the question is about; -ENOMEM. `worst` is what all that are wanted come
 * before, and may become a better one.
 */
int heat_pass(const struct tierd_heat *heat, const struct question *question, struct best *best);
/* Keep the best `most`, in any order: there are more. */
void heat_drop_worse(struct best *best);

#endif
