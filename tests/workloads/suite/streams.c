/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams: four arrays that are read in order, each in parts as the threads of a parallel loop
 * do, some lines of every part in turn. Of a line one word is
 * read, which leaves the time to memory. Parts begin anywhere, so that they do not come to the
 * end of a page together. --work: sweeps.
 */
#include "../rng.h"
#include "suite.h"
#include "sweeps.h"

enum { ARRAYS = 4, PARTS = 4, LINE = 64 / sizeof(uint64_t), TURN = 4 * LINE };

struct part {
	const uint64_t *words;
	size_t at;
};

static uint64_t sweep(struct part *parts, size_t count)
{
	uint64_t sum = 0;

	for (size_t done = 0; done < count; done += TURN)
		for (unsigned int p = 0; p < ARRAYS * PARTS; p++) {
			const uint64_t *words = parts[p].words + parts[p].at;

			for (size_t i = 0; i < TURN; i += LINE)
				sum += words[i];
			parts[p].at = (parts[p].at + TURN) % count;
		}
	return sum;
}

int main(int argc, char **argv)
{
	struct suite suite = {.name = "streams", .size = 32ul << 20, .work = 100, .seed = 1};
	static const char *const names[ARRAYS] = {"s0", "s1", "s2", "s3"};
	uint64_t *array[ARRAYS], wanted = 0, sum = 0, state;
	struct part parts[ARRAYS * PARTS];
	size_t bytes, count;
	bool ok = true;

	suite_options(&suite, argc, argv);
	bytes = suite.size / ARRAYS & ~((2ul << 20) - 1);
	count = bytes / PARTS / sizeof(uint64_t);
	state = mix64(suite.seed);
	for (unsigned int n = 0; n < ARRAYS; n++) {
		array[n] = suite_alloc(&suite, bytes);
		for (size_t i = 0; i < bytes / sizeof(uint64_t); i++) {
			array[n][i] = mix64(mix64(suite.seed) ^ (i << 2 | n));
			wanted += i % LINE ? 0 : array[n][i];
		}
		for (unsigned int p = 0; p < PARTS; p++) {
			const size_t at = rng_below(&state, (uint32_t)(count / TURN)) * TURN;

			parts[n * PARTS + p] = (struct part){array[n] + p * count, at};
		}
		tell_array(!n, names[n], array[n], bytes, getpid());
	}
	tell_end();
	suite_start(&suite);
	for (uint64_t i = 0; i < suite.work; i++) {
		const double began = sweep_begins(i, suite.work);

		sum = sweep(parts, count);
		sweep_ends(i, began);
		ok = ok && sum == wanted;
	}
	suite_stop();
	tell_sweeps(suite.work, NULL);
	suite_spoil(&suite, array[1], bytes);
	ok = ok && sweep(parts, count) == wanted;
	return suite_end(&suite, suite.work, ok, wanted);
}
