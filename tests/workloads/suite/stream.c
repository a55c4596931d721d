/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream: the triad a[i] = b[i] + k * c[i] over three long arrays (after McCalpin's STREAM), so
 * time a byte is the bandwidth of memory. --work: sweeps; `operations` are bytes read and
 * written by the program.
 *
 * The arithmetic is modulo 2^64 and the arrays change places after each sweep; the sum of what
 * each sweep wrote is known from those of its inputs.
 */
#include "../rng.h"
#include "suite.h"

static uint64_t sum_of(const uint64_t *array, size_t count)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += array[i];
	return sum;
}

static void triad(uint64_t *restrict a, const uint64_t *restrict b, const uint64_t *restrict c,
		  uint64_t k, size_t count)
{
	for (size_t i = 0; i < count; i++)
		a[i] = b[i] + k * c[i];
}

int main(int argc, char **argv)
{
	struct suite suite = {.name = "stream", .size = 256ul << 20, .work = 10, .seed = 1};
	uint64_t *array[3], expected[3], answer = 0;
	size_t count;
	bool ok = true;

	suite_options(&suite, argc, argv);
	count = suite.size / 3 / sizeof(uint64_t);
	for (unsigned int n = 0; n < 3; n++) {
		array[n] = suite_alloc(&suite, count * sizeof(uint64_t));
		for (size_t i = 0; i < count; i++)
			array[n][i] = mix64(suite.seed ^ (i << 2 | n));
		expected[n] = sum_of(array[n], count);
	}
	suite_start(&suite);
	for (uint64_t i = 0; i < suite.work; i++) {
		unsigned int a = i % 3, b = (i + 1) % 3, c = (i + 2) % 3;

		triad(array[a], array[b], array[c], 2 * i + 3, count);
		expected[a] = expected[b] + (2 * i + 3) * expected[c];
	}
	suite_stop();
	suite_spoil(&suite, array[(suite.work - 1) % 3], count * sizeof(uint64_t));
	for (unsigned int n = 0; n < 3; n++) {
		ok = ok && sum_of(array[n], count) == expected[n];
		answer = answer * 31 + expected[n];
	}
	return suite_end(&suite, suite.work * 3 * count * sizeof(uint64_t), ok, answer);
}
