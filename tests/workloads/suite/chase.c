/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chase: follows pointers through all cache lines of its memory in one random cycle: every step
 * waits for the one before, so time a step is the latency of memory. --work: steps.
 *
 * After as many steps as there are lines the chase is back where it began, having seen each
 * line once: the check.
 */
#include "chain.h"
#include "suite.h"

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
