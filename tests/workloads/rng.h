/* SPDX-License-Identifier: Apache-2.0 */
/* Small generators: splitmix64 (Steele, Lea, Flood 2014), also used as a hash. */
#ifndef TIERD_WORKLOAD_RNG_H
#define TIERD_WORKLOAD_RNG_H

#include <stdint.h>

static inline uint64_t mix64(uint64_t z)
{
	z += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static inline uint64_t rng_next(uint64_t *state)
{
	uint64_t value = mix64(*state);

	*state += 0x9e3779b97f4a7c15u;
	return value;
}

/* A number in [0, bound), by multiplication (Lemire 2019); bound fits in 32 bits. */
static inline uint32_t rng_below(uint64_t *state, uint32_t bound)
{
	return (uint32_t)(((rng_next(state) >> 32) * bound) >> 32);
}

#endif
