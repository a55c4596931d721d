/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mixed: a triad a[i] = b[i] + c[i] + k over three long arrays beside a pointer chase through a
 * fourth, in turns: some lines of the triad, then some steps of the chase. The triad wants
 * bandwidth, the chase latency, and on one node each slows the other down. --work: sweeps. The
 * checks are those of stream.c and chase.c.
 */
#include "chain.h"
#include "suite.h"
#include "sweeps.h"

typedef uint64_t lane __attribute__((vector_size(32)));

enum { BLOCK = 16 * 64 / sizeof(lane), STEPS = 4 };

static uint64_t sum_of(const lane *array, size_t count)
{
	lane sum = {0};

	for (size_t i = 0; i < count; i++)
		sum += array[i];
	return sum[0] + sum[1] + sum[2] + sum[3];
}

static struct line *sweep(lane *restrict a, const lane *restrict b, const lane *restrict c,
			  uint64_t k, size_t count, struct line *at)
{
	for (size_t i = 0; i + BLOCK <= count; i += BLOCK) {
		for (size_t j = i; j < i + BLOCK; j++)
			a[j] = b[j] + c[j] + k;
		for (unsigned int s = 0; s < STEPS; s++)
			at = at->next;
	}
	return at;
}

int main(int argc, char **argv)
{
	struct suite suite = {.name = "mixed", .size = 96ul << 20, .work = 100, .seed = 1};
	static const char *const names[] = {"a", "b", "c"};
	uint64_t expected[3], answer = 0, sum = 0, wanted = 0, steps;
	struct line *lines, *at;
	lane *array[3];
	size_t bytes, count;
	uint32_t links;
	bool ok = true;

	suite_options(&suite, argc, argv);
	bytes = suite.size / 4 & ~((2ul << 20) - 1);
	count = bytes / sizeof(lane);
	links = (uint32_t)(bytes / sizeof(*lines));
	for (unsigned int n = 0; n < 3; n++) {
		array[n] = suite_alloc(&suite, bytes);
		for (size_t i = 0; i < count; i++) {
			uint64_t x = mix64(suite.seed ^ (i << 2 | n));

			array[n][i] = (lane){x, x + 1, x + 2, x + 3};
		}
		expected[n] = sum_of(array[n], count);
	}
	lines = suite_alloc(&suite, bytes);
	link_lines(lines, links, suite.seed);
	at = lines;
	for (unsigned int n = 0; n < 3; n++)
		tell_array(!n, names[n], array[n], bytes, getpid());
	tell_array(false, "chase", lines, bytes, getpid());
	tell_end();
	suite_start(&suite);
	for (uint64_t i = 0; i < suite.work; i++) {
		unsigned int a = i % 3, b = (i + 1) % 3, c = (i + 2) % 3;
		const double begun = sweep_begins(i, suite.work);

		at = sweep(array[a], array[b], array[c], 2 * i + 3, count, at);
		sweep_ends(i, begun);
		expected[a] = expected[b] + expected[c] + (2 * i + 3) * 4 * count;
	}
	suite_stop();
	tell_sweeps(suite.work, NULL);
	suite_spoil(&suite, array[(suite.work - 1) % 3], bytes);
	for (unsigned int n = 0; n < 3; n++) {
		ok = ok && sum_of(array[n], count) == expected[n];
		answer = answer * 31 + expected[n];
	}
	/* Back where it began after a whole cycle, having seen each line once. */
	steps = suite.work * (count / BLOCK) * STEPS;
	for (uint64_t i = steps % links; i < links; i++)
		at = at->next;
	for (uint32_t i = 0; i < links; i++, at = at->next) {
		sum += at->number * (i ? 1 : 3);
		wanted += mix64(i ^ suite.seed) * (i ? 1 : 3);
	}
	return suite_end(&suite, suite.work, ok && at == lines && sum == wanted, answer ^ sum);
}
