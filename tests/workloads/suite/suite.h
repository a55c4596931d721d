/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the workloads of the benchmark share: options, memory, the measured region, and the
 * one line of JSON at the end. Each workload checks its own answer.
 *
 *   WORKLOAD [--size 256M] [--work N] [--seed S] [--huge] [--spoil] [--endless FILE]
 *
 * With --endless, which updates, moving, stencil and redis know, the work goes on until SIGTERM,
 * and the first 8 bytes of FILE count its operations, in portions of milliseconds.
 */
#ifndef SUITE_H
#define SUITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct suite {
	const char *name;
	size_t size;   /* bytes of data, about */
	uint64_t work; /* operations, iterations: the workload says which */
	uint64_t seed;
	bool huge;
	bool spoil;
	bool can_be_endless;
	const char *endless;
	int pid; /* of the process whose memory it is; 0: this one */
};

/* Reads the options; the fields of `suite` hold the defaults. Ends the program on a mistake. */
void suite_options(struct suite *suite, int argc, char **argv);

/* Zeroed memory of its own mapping, counted in the report; ends the program without. */
void *suite_alloc(const struct suite *suite, size_t bytes);

/* Has all of such memory in place before the start; what was written there stays. */
void suite_touch(const struct suite *suite, void *memory, size_t bytes);

/* Memory that the workload got in another way. */
void suite_count(size_t bytes);

/* Waits for a line or the end of standard input where it is a pipe, so that a launcher can put
 * the process under a method first; then the measured region begins. */
void suite_start(const struct suite *suite);
void suite_stop(void);

/* Counts a portion of operations that begins or has ended. */
void suite_progress(uint64_t operations);

/* Whether to go on: `done` is less than the work, or with --endless nobody asked for the end. */
bool suite_goes_on(const struct suite *suite, uint64_t done);

/* With --spoil, zeroes a page in the middle: the check of the answer must then fail. */
void suite_spoil(const struct suite *suite, void *memory, size_t bytes);

/* Prints the report; returns the exit status: 0 if `ok`. */
int suite_end(const struct suite *suite, uint64_t operations, bool ok, uint64_t answer);

#endif
