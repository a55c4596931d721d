/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stencil: sweeps of a seven-point stencil over a three-dimensional grid with periodic edges,
 * from one array to another and back. --work: sweeps.
 *
 * The arithmetic is modulo 2^64 and each point's seven weights add up to 9, so a sweep must
 * multiply the grid's sum by 9 exactly; one wrong or stale word shows.
 */
#include "../rng.h"
#include "suite.h"

static uint64_t sum_of(const uint64_t *grid, size_t points)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < points; i++)
		sum += grid[i];
	return sum;
}

static void sweep(uint64_t *restrict to, const uint64_t *restrict from, size_t n)
{
	for (size_t z = 0; z < n; z++) {
		const uint64_t *here = from + z * n * n, *below = from + (z + n - 1) % n * n * n,
			       *above = from + (z + 1) % n * n * n;

		suite_progress(n * n);
		for (size_t y = 0; y < n; y++) {
			size_t row = y * n, north = (y + n - 1) % n * n, south = (y + 1) % n * n;

			for (size_t x = 0; x < n; x++) {
				size_t west = x ? x - 1 : n - 1, east = x + 1 < n ? x + 1 : 0;

				to[z * n * n + row + x] = 3 * here[row + x] + here[row + west] +
							  here[row + east] + here[north + x] +
							  here[south + x] + below[row + x] +
							  above[row + x];
			}
		}
	}
}

int main(int argc, char **argv)
{
	struct suite suite = {
	    .name = "stencil", .size = 256ul << 20, .work = 8, .seed = 1, .can_be_endless = true};
	uint64_t expected, *from, *to;
	uint64_t sweeps = 0;
	size_t n = 8, points;

	suite_options(&suite, argc, argv);
	while (2 * (n + 1) * (n + 1) * (n + 1) * sizeof(*from) <= suite.size)
		n++;
	points = n * n * n;
	from = suite_alloc(&suite, points * sizeof(*from));
	to = suite_alloc(&suite, points * sizeof(*to));
	for (size_t i = 0; i < points; i++)
		from[i] = mix64(suite.seed ^ i << 8);
	expected = sum_of(from, points);
	suite_touch(&suite, to, points * sizeof(*to));
	suite_start(&suite);
	for (; suite_goes_on(&suite, sweeps); sweeps++) {
		uint64_t *swap = from;

		sweep(to, from, n);
		from = to;
		to = swap;
		expected *= 9;
	}
	suite_stop();
	suite_spoil(&suite, from, points * sizeof(*from));
	return suite_end(&suite, sweeps * points, sum_of(from, points) == expected, expected);
}
