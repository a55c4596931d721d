/* SPDX-License-Identifier: Apache-2.0 */
/* Cache lines that point at each other in one random cycle, for chases through memory. */
#ifndef TIERD_WORKLOAD_CHAIN_H
#define TIERD_WORKLOAD_CHAIN_H

#include "../rng.h"

#include <stdint.h>

struct line {
	struct line *next;
	uint64_t number, pad[6];
};

/* Sattolo's algorithm: a random permutation that is one cycle. */
static inline void link_lines(struct line *lines, uint32_t count, uint64_t seed)
{
	uint64_t state = mix64(seed);

	for (uint32_t i = 0; i < count; i++)
		lines[i].number = i;
	for (uint32_t i = count - 1; i; i--) {
		uint32_t j = rng_below(&state, i);
		uint64_t swap = lines[i].number;

		lines[i].number = lines[j].number;
		lines[j].number = swap;
	}
	for (uint32_t i = 0; i < count; i++)
		lines[i].next = &lines[lines[i].number];
	for (uint32_t i = 0; i < count; i++)
		lines[i].number = mix64(i ^ seed);
}

#endif
