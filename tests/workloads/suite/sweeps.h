/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the workloads share whose sweeps are timed while their pages move (tests/vm/guest_hbm.py):
 * they print where their arrays are before they wait for their start, wait for another line
 * before their last sweeps, and for one after they have printed how long each sweep took.
 */
#ifndef SWEEPS_H
#define SWEEPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { SWEEPS = 4096, LAST = 5 };

static double sweep_took[SWEEPS];

static inline double clock_s(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Waits for a line: for a method to be taken away, for a look at where pages are. */
static inline void await(void)
{
	char c;

	while (read(STDIN_FILENO, &c, 1) == 1 && c != '\n')
		;
}

/* One array: name, address, bytes and whose it is. Call it once for each, then `tell_end`. */
static inline void tell_array(bool first, const char *name, const void *at, size_t bytes, int pid)
{
	printf("%s\"%s\": [%zu, %zu, %d]", first ? "{\"event\": \"arrays\", \"arrays\": {" : ", ",
	       name, (size_t)at, bytes, pid);
}

static inline void tell_end(void)
{
	printf("}}\n");
}

/* Before sweep `i` of `work`: the last ones run without the method. */
static inline void before_sweep(uint64_t i, uint64_t work)
{
	if (work > LAST && i == work - LAST)
		await();
}

/* ... and when it begins, in seconds. */
static inline double sweep_begins(uint64_t i, uint64_t work)
{
	before_sweep(i, work);
	return clock_s(CLOCK_MONOTONIC);
}

static inline void sweep_ends(uint64_t i, double began)
{
	sweep_took[i % SWEEPS] = clock_s(CLOCK_MONOTONIC) - began;
}

static inline void tell_times(const char *name, const double *took, uint64_t count)
{
	printf(", \"%s\": [", name);
	for (uint64_t i = 0; i < count && i < SWEEPS; i++)
		printf("%s%.6f", i ? ", " : "", took[i]);
	printf("]");
}

/* What each sweep took, and, of those who have it, what others took in the meantime. */
static inline void tell_sweeps(uint64_t work, const double *others)
{
	printf("{\"event\": \"sweeps\"");
	tell_times("seconds", sweep_took, work);
	if (others)
		tell_times("others", others, work);
	printf("}\n");
	fflush(stdout);
	await();
}

#endif
