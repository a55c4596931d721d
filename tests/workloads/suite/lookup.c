/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup: cross sections of a material at random energies, in the manner of XSBench (Tramm et
 * al. 2014): a unionised energy grid leads to a place in the grid of each nuclide, and five
 * cross sections are interpolated there. --work: lookups.
 *
 * Here every nuclide's cross sections are linear in the energy, so that interpolation must give
 * a known value: each lookup is checked against it.
 */
#include "../rng.h"
#include "suite.h"

#include <math.h>
#include <stdlib.h>

enum { NUCLIDES = 68, SECTIONS = 5, MATERIAL = 12 };

struct point {
	double energy, xs[SECTIONS];
};

struct grids {
	uint32_t points; /* of a nuclide */
	uint64_t union_points;
	struct point *nuclide; /* [NUCLIDES][points], ascending */
	double *energy;	       /* [union_points], ascending */
	uint32_t *index;       /* [union_points][NUCLIDES]: the point at or below */
};

static double unit(uint64_t r)
{
	return (double)(r >> 11) * 0x1p-53;
}

static double section(uint32_t nuclide, unsigned int which, double energy)
{
	double slope = unit(mix64(nuclide * 8 + which)) - 0.3;

	return 1.0 + (double)which + slope * energy;
}

/* Energies of a nuclide: jittered steps, so that they ascend without a sort. */
static void fill(const struct suite *suite, struct grids *grids)
{
	uint64_t state = mix64(suite->seed);

	for (uint32_t n = 0; n < NUCLIDES; n++) {
		for (uint32_t i = 0; i < grids->points; i++) {
			struct point *p = &grids->nuclide[(size_t)n * grids->points + i];

			p->energy =
			    i ? ((double)i + 0.9 * unit(rng_next(&state))) / grids->points : 0;
			if (i == grids->points - 1)
				p->energy = 1;
			for (unsigned int s = 0; s < SECTIONS; s++)
				p->xs[s] = section(n, s, p->energy);
		}
	}
}

/* Merges the nuclides' grids: each step takes the lowest next energy. */
static void unite(struct grids *grids)
{
	uint32_t at[NUCLIDES] = {0};

	for (uint64_t u = 0; u < grids->union_points; u++) {
		uint32_t lowest = 0;
		double energy = INFINITY;

		for (uint32_t n = 0; n < NUCLIDES; n++) {
			const struct point *p = &grids->nuclide[(size_t)n * grids->points];

			if (at[n] + 1 < grids->points && p[at[n] + 1].energy < energy) {
				energy = p[at[n] + 1].energy;
				lowest = n;
			}
		}
		for (uint32_t n = 0; n < NUCLIDES; n++)
			grids->index[u * NUCLIDES + n] = at[n];
		grids->energy[u] = u ? energy : 0;
		if (u && energy < INFINITY)
			grids->index[u * NUCLIDES + lowest] = ++at[lowest];
	}
}

static uint64_t find(const struct grids *grids, double energy)
{
	uint64_t low = 0, high = grids->union_points;

	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;

		if (grids->energy[middle] <= energy)
			low = middle;
		else
			high = middle;
	}
	return low;
}

static bool look_up(const struct grids *grids, uint64_t *state, uint64_t *answer)
{
	double energy = unit(rng_next(state)), total[SECTIONS] = {0}, expected[SECTIONS] = {0};
	uint64_t u = find(grids, energy), draw = rng_next(state);
	bool ok = true;

	for (unsigned int m = 0; m < MATERIAL; m++) {
		uint32_t n = (uint32_t)((draw >> (5 * (m % 12))) % NUCLIDES + m) % NUCLIDES;
		const struct point *p =
		    &grids->nuclide[(size_t)n * grids->points + grids->index[u * NUCLIDES + n]];
		double f;

		if (p->energy > energy || p == &grids->nuclide[(n + 1ul) * grids->points - 1])
			p--;
		f = (energy - p[0].energy) / (p[1].energy - p[0].energy);
		for (unsigned int s = 0; s < SECTIONS; s++) {
			total[s] += p[0].xs[s] + f * (p[1].xs[s] - p[0].xs[s]);
			expected[s] += section(n, s, energy);
		}
	}
	for (unsigned int s = 0; s < SECTIONS; s++) {
		ok = ok && fabs(total[s] - expected[s]) < 1e-9;
		*answer += (uint64_t)(total[s] * 1e6);
	}
	return ok;
}

int main(int argc, char **argv)
{
	struct suite suite = {.name = "lookup", .size = 256ul << 20, .work = 1000000, .seed = 1};
	uint64_t state, answer = 0, wrong = 0;
	struct grids grids;

	suite_options(&suite, argc, argv);
	grids.points =
	    (uint32_t)(suite.size / NUCLIDES /
		       (sizeof(struct point) + NUCLIDES * sizeof(uint32_t) + sizeof(double)));
	grids.union_points = (uint64_t)(grids.points - 1) * NUCLIDES + 1;
	grids.nuclide = suite_alloc(&suite, sizeof(struct point) * NUCLIDES * grids.points);
	grids.energy = suite_alloc(&suite, grids.union_points * sizeof(double));
	grids.index = suite_alloc(&suite, grids.union_points * NUCLIDES * sizeof(uint32_t));
	fill(&suite, &grids);
	unite(&grids);
	suite_spoil(&suite, grids.nuclide, sizeof(struct point) * NUCLIDES * grids.points);
	state = mix64(suite.seed + 1);
	suite_start(&suite);
	for (uint64_t i = 0; i < suite.work; i++)
		wrong += !look_up(&grids, &state, &answer);
	suite_stop();
	return suite_end(&suite, suite.work, !wrong, answer);
}
