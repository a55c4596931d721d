/* SPDX-License-Identifier: Apache-2.0 */
/* A scan over the slots of the heat table for the best matches of a query. */
#ifndef TIERD_HEAT_PASS_H
#define TIERD_HEAT_PASS_H

#include "heat_table.h"

/* True heat is stored heat times a gain, with a relative rounding error below this. */
#define HEAT_SLACK 0x1p-20F

/*
 * The best matches of a scan. If their number is not known, there is space for twice as many as
 * are wanted. When that is full, the worse half is dropped, and from then on matches that are
 * worse than all kept ones are not taken.
 */
struct best {
	struct rank *rank;
	size_t n;
	size_t room;
	size_t most;
	bool hottest;
	/* A scan ends when it has so many. */
	size_t enough;
	/* The worst kept match once any was dropped: wanted ones come before it. */
	struct rank worst;
};

/* The query of a scan. */
struct question {
	/* TIERD_NODE_UNPLACED: what is of any and not lately confirmed. */
	uint8_t node;
	bool hottest;
	/* Huge folios only. */
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
 * Collect all slots that match the query; -ENOMEM. `worst` is what all that are wanted come
 * before, and may become a better one.
 */
int heat_pass(const struct tierd_heat *heat, const struct question *question, struct best *best);
/* Keep the best `most`, in any order: there are more. */
void heat_drop_worse(struct best *best);

#endif
