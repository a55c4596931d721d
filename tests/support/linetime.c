/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program line by line in the lab's timing (fpga/sim/plugin/timing.h), without a machine: it
 * takes turns, in each of which some lines of every array are read, in order or at random, and
 * written back if the array is one that this sweep writes. Owns: the program's progress.
 * Must not touch: where pages are; the caller keeps the map.
 */
#include "../../fpga/sim/plugin/timing.h"
#include "../workloads/rng.h"

#include <stdlib.h>

enum { PAGE_LINES = 64 };

struct linetime_array {
	uint64_t first, lines; /* numbers of lines */
	uint64_t at;
	uint32_t count;	       /* lines a turn */
	uint32_t every, phase; /* written in sweeps of this phase; never for every = 0 */
	uint32_t random;
	double instructions; /* for each line */
};

struct linetime {
	struct timing timing;
	struct linetime_array *arrays;
	const int16_t *node;
	uint32_t count, period;
	uint64_t sweep_turns, turns, random;
	uint32_t since[TIMING_NODES_MAX];
	uint64_t *samples;
	uint64_t room, taken;
};

struct linetime *linetime_new(struct linetime_array *arrays, uint32_t count, const int16_t *node,
			      uint64_t sweep_turns, uint32_t period, uint64_t *samples,
			      uint64_t room)
{
	struct linetime *run = calloc(1, sizeof(*run));

	if (!run)
		return NULL;
	timing_init(&run->timing, 1, 1);
	*run = (struct linetime){.timing = run->timing,
				 .arrays = arrays,
				 .node = node,
				 .count = count,
				 .period = period,
				 .sweep_turns = sweep_turns,
				 .random = 1,
				 .samples = samples,
				 .room = room};
	return run;
}

void linetime_node(struct linetime *run, uint32_t node, double latency_ns, double bandwidth)
{
	timing_set_node(&run->timing, node, latency_ns, bandwidth, 64);
}

static void miss(struct linetime *run, uint32_t node, uint64_t line, bool store)
{
	timing_read(&run->timing, TIMING_WORKLOAD, node, line);
	if (++run->since[node] < run->period)
		return;
	run->since[node] = 0;
	if (run->taken < run->room)
		run->samples[run->taken++] = line / PAGE_LINES << 1 | store;
}

static void turn(struct linetime *run, struct linetime_array *array)
{
	bool written = array->every && run->turns / run->sweep_turns % array->every == array->phase;

	for (uint32_t i = 0; i < array->count; i++) {
		uint64_t line = array->first;
		uint32_t node;

		if (array->random)
			line += rng_below(&run->random, (uint32_t)array->lines);
		else
			line += array->at++ % array->lines;
		node = (uint32_t)run->node[line / PAGE_LINES];
		timing_execute(&run->timing, TIMING_WORKLOAD, (uint64_t)array->instructions);
		miss(run, node, line, written);
		if (written)
			timing_write(&run->timing, TIMING_WORKLOAD, node);
	}
}

/* Runs until `until_ns`; turns done in all. Samples (page << 1 | store) begin anew. */
uint64_t linetime_run(struct linetime *run, double until_ns)
{
	run->taken = 0;
	while (run->timing.now_ns < until_ns) {
		for (uint32_t i = 0; i < run->count; i++)
			turn(run, &run->arrays[i]);
		run->turns++;
	}
	return run->turns;
}

uint64_t linetime_taken(const struct linetime *run)
{
	return run->taken;
}

double linetime_now(const struct linetime *run)
{
	return run->timing.now_ns;
}

/* The kernel copies a page, in `ns` of instructions. */
void linetime_copy(struct linetime *run, uint32_t from, uint32_t to, double ns)
{
	timing_execute(&run->timing, TIMING_KERNEL, (uint64_t)ns);
	for (uint32_t i = 0; i < PAGE_LINES; i++) {
		timing_read(&run->timing, TIMING_KERNEL, from, i);
		timing_write(&run->timing, TIMING_KERNEL, to);
	}
}

void linetime_end(struct linetime *run)
{
	free(run);
}
