/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks after Zipf's law, by the inversion of Gray et al. (SIGMOD 1994), as YCSB draws them;
 * the rank is scattered over the items by a permutation.
 */
#ifndef ZIPF_H
#define ZIPF_H

#include "../rng.h"

#include <math.h>

struct zipf {
	uint64_t items;
	double theta, alpha, zetan, eta, half;
};

static inline void zipf_make(struct zipf *z, uint64_t items, double theta)
{
	double zeta2 = 1 + pow(0.5, theta);

	z->items = items;
	z->theta = theta;
	z->alpha = 1 / (1 - theta);
	z->zetan = 0;
	for (uint64_t i = 1; i <= items; i++)
		z->zetan += pow(1.0 / (double)i, theta);
	z->eta = (1 - pow(2.0 / (double)items, 1 - theta)) / (1 - zeta2 / z->zetan);
	z->half = zeta2;
}

/* In [0, items); 0 is the most frequent. */
static inline uint64_t zipf_rank(const struct zipf *z, uint64_t *state)
{
	double u = (double)(rng_next(state) >> 11) * 0x1p-53, uz = u * z->zetan;
	uint64_t rank;

	if (uz < 1)
		return 0;
	if (uz < z->half)
		return 1;
	rank = (uint64_t)((double)z->items * pow(z->eta * u - z->eta + 1, z->alpha));
	return rank < z->items ? rank : z->items - 1;
}

/* In [0, items), scattered: some item for every rank, the same each time. */
static inline uint64_t zipf_item(const struct zipf *z, uint64_t *state)
{
	return (uint64_t)(((unsigned __int128)mix64(zipf_rank(z, state)) * z->items) >> 64);
}

#endif
