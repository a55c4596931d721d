/* SPDX-License-Identifier: Apache-2.0 */
/* hotset's command line. */
#ifndef TIERD_WORKLOAD_OPTIONS_H
#define TIERD_WORKLOAD_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_THREADS = 64 };

struct options {
	size_t size, hot, leave_free;
	double hot_access, seconds, move_after, interval;
	unsigned long rate;
	unsigned int threads;
	int fast_node, slow_node;
	uint64_t seed;
	bool scattered, huge, check, map;
	const char *hot_file;
};

extern struct options opt;

/* Fills `opt`; a mistake prints the usage and ends the program with 2. */
void options_parse(int argc, char **argv);

#endif
