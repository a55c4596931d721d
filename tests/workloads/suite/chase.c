/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chase: follows pointers through all cache lines of its memory in one random cycle: every step
 * waits for the one before, so time a step is the latency of memory. --work: steps.
 *
 * After as many steps as there are lines the chase is back where it began, having seen each
 * line once: the check.
 */
#include "../rng.h"
#include "suite.h"

struct line {
	struct line *next;
	uint64_t number, pad[6];
};

/* Sattolo's algorithm: a random permutation that is one cycle. */
static void link_lines(struct line *lines, uint32_t count, uint64_t seed)
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

int main(int argc, char **argv)
{
	struct suite suite = {.name = "chase", .size = 256ul << 20, .work = 4000000, .seed = 1};
	uint64_t sum = 0, expected = 0;
	struct line *lines, *at;
	uint32_t count;

	suite_options(&suite, argc, argv);
	count = (uint32_t)(suite.size / sizeof(*lines));
	lines = suite_alloc(&suite, count * sizeof(*lines));
	link_lines(lines, count, suite.seed);
	at = lines;
	suite_start(&suite);
	for (uint64_t i = 0; i < suite.work; i++)
		at = at->next;
	suite_stop();
	suite_spoil(&suite, &lines[count / 2].number, sizeof(uint64_t));
	for (uint64_t i = suite.work % count; i < count; i++)
		at = at->next;
	for (uint32_t i = 0; i < count; i++, at = at->next) {
		sum += at->number * (i ? 1 : 3);
		expected += mix64(i ^ suite.seed) * (i ? 1 : 3);
	}
	return suite_end(&suite, suite.work, at == lines && sum == expected, sum);
}
