/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenants: two processes that share a CPU by the kernel's time slices. One chases pointers and
 * came first, so that first touch gives it the better memory; the other one streams through two
 * arrays, b[i] = b[i] * 3 + a[i]. --work: sweeps of the second; the first chases meanwhile, in
 * pieces of a fixed length. What a sweep takes and what such a piece takes are times on the CPU.
 * No address is of both: the lab's sampled misses do not say of which process they are.
 */
#include "chain.h"
#include "suite.h"
#include "sweeps.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { STEPS = 3 << 15 };

static double of_chases[SWEEPS];

struct shared {
	struct line *lines;
	atomic_int ready, go, leave, ok;
	_Atomic uint64_t chases;
	_Atomic double spent; /* seconds on the CPU, of all chases */
};

static void chase(const struct suite *suite, struct shared *shared, size_t bytes)
{
	const uint32_t links = (uint32_t)(bytes / sizeof(struct line));
	struct line *lines = shared->lines, *at = lines;
	uint64_t sum = 0, wanted = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	link_lines(lines, links, suite->seed);
	shared->ready = 1;
	while (!shared->leave) {
		double began;

		if (!shared->go) {
			usleep(1000);
			continue;
		}
		began = clock_s(CLOCK_PROCESS_CPUTIME_ID);
		for (unsigned int s = 0; s < STEPS; s++)
			at = at->next;
		shared->spent = shared->spent + clock_s(CLOCK_PROCESS_CPUTIME_ID) - began;
		shared->chases++;
	}
	for (uint32_t i = 0; i < links; i++, at = at->next) {
		sum += at->number;
		wanted += mix64(i ^ suite->seed);
	}
	shared->ok = sum == wanted;
	_exit(0);
}

static uint64_t sum_of(const uint64_t *array, size_t count)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += array[i];
	return sum;
}

/* What a chase took on the CPU, of those that ended since `chases`; at least one. */
static double of_chase(struct shared *shared, uint64_t *chases, double *spent)
{
	double each;

	while (shared->chases == *chases)
		usleep(1000);
	each = (shared->spent - *spent) / (double)(shared->chases - *chases);
	*chases = shared->chases;
	*spent = shared->spent;
	return each;
}

int main(int argc, char **argv)
{
	struct suite suite = {.name = "tenants", .size = 32ul << 20, .work = 100, .seed = 1};
	uint64_t *array[2], expected[2], chases = 0;
	struct shared *shared;
	size_t bytes, count;
	double spent = 0;
	bool ok;
	pid_t other;

	suite_options(&suite, argc, argv);
	bytes = suite.size / 4 & ~((1ul << 20) - 1);
	count = bytes / sizeof(uint64_t);
	shared =
	    mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	shared->lines = suite_alloc(&suite, 2 * bytes);
	for (unsigned int n = 0; n < 2; n++)
		array[n] = suite_alloc(&suite, bytes);
	other = fork();
	if (other < 0)
		return 1;
	if (!other) {
		for (unsigned int n = 0; n < 2; n++)
			munmap(array[n], bytes);
		chase(&suite, shared, 2 * bytes);
	}
	munmap(shared->lines, 2 * bytes);
	while (!shared->ready)
		usleep(1000);
	tell_array(true, "chase", shared->lines, 2 * bytes, other);
	for (unsigned int n = 0; n < 2; n++) {
		for (size_t i = 0; i < count; i++)
			array[n][i] = mix64(suite.seed ^ (i << 1 | n));
		expected[n] = sum_of(array[n], count);
		tell_array(false, n ? "b" : "a", array[n], bytes, getpid());
	}
	tell_end();
	suite_start(&suite);
	for (uint64_t i = 0; i < suite.work; i++) {
		double began;

		shared->go = 0;
		before_sweep(i, suite.work);
		shared->go = 1;
		began = clock_s(CLOCK_PROCESS_CPUTIME_ID);
		for (size_t j = 0; j < count; j++)
			array[1][j] = array[1][j] * 3 + array[0][j];
		sweep_took[i % SWEEPS] = clock_s(CLOCK_PROCESS_CPUTIME_ID) - began;
		expected[1] = expected[1] * 3 + expected[0];
		of_chases[i % SWEEPS] = of_chase(shared, &chases, &spent);
	}
	shared->go = 0;
	suite_stop();
	tell_sweeps(suite.work, of_chases);
	shared->leave = 1;
	waitpid(other, NULL, 0);
	suite_spoil(&suite, array[0], bytes);
	ok = shared->ok;
	for (unsigned int n = 0; n < 2; n++)
		ok = ok && sum_of(array[n], count) == expected[n];
	return suite_end(&suite, suite.work, ok, expected[0] * 31 + expected[1]);
}
