/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modelled time of one processor: instructions take a fixed time, and a miss of the last-level
 * cache takes what the memory of its node takes. docs/research/lab.md has the model in words.
 *
 * - A node serves one line after another, `line_ns` each (64 bytes by its bandwidth), and a
 *   line is there `latency_ns` after the node began with it. Work that the node has not begun
 *   with is its backlog.
 * - A demand miss waits for the backlog and for latency_ns / mlp: `mlp` misses overlap.
 * - A miss of a line whose predecessor has been missed shortly before belongs to a stream that
 *   a prefetcher has seen: it waits only while the backlog is longer than PREFETCH_DEPTH lines.
 * - A line written back waits only while the backlog is longer than WRITE_DEPTH lines.
 *
 * So a pointer chase sees the latency (mlp 1), streams see the bandwidth, and both slow each
 * other down on the same node. Owns: time. Must not touch: the cache, addresses' nodes.
 */
#ifndef TIERD_LAB_TIMING_H
#define TIERD_LAB_TIMING_H

#include <stdbool.h>
#include <stdint.h>

enum {
	TIMING_NODES_MAX = 64,
	TIMING_STREAMS = 32,
	TIMING_PREFETCH_DEPTH = 24,
	TIMING_WRITE_DEPTH = 48,
};

/* Whose instructions and waiting it is. */
enum timing_owner { TIMING_WORKLOAD, TIMING_DAEMON, TIMING_KERNEL, TIMING_OTHER, TIMING_OWNERS };

/* Lines of the last-level cache: missed, missed but seen by the prefetcher, written back. */
struct timing_lines {
	uint64_t demand, prefetched, written;
};

struct timing_node {
	double latency_ns, line_ns;
	double delay_ns; /* that one demand miss in `every` takes longer; 0: none does */
	uint32_t every, since_delay;
	double free_ns; /* when it has served all it was asked for */
	struct timing_lines lines;
	double waited_ns; /* by the processor, for this node */
};

struct timing {
	double now_ns, instruction_ns, mlp;
	double waited_ns; /* of now_ns: for memory */
	uint64_t instructions[TIMING_OWNERS];
	double spent_ns[TIMING_OWNERS];		  /* instructions and waiting */
	struct timing_lines lines[TIMING_OWNERS]; /* written back: for whom there had to be room */
	struct timing_node nodes[TIMING_NODES_MAX];
	uint64_t stream[TIMING_STREAMS]; /* the line that would go on with it */
	unsigned int next_stream;
};

/* instruction_ns and mlp: 0 stands for 0.25 ns and 1. All nodes are without cost at first. */
void timing_init(struct timing *timing, double instruction_ns, double mlp);

/* bandwidth in bytes a second, 0: without limit; line in bytes. -EINVAL for no such node. */
int timing_set_node(struct timing *timing, unsigned int node, double latency_ns, double bandwidth,
		    unsigned int line_bytes);

/* One demand miss in `every` of a node takes `delay_ns` longer; 0: none. */
int timing_set_delay(struct timing *timing, unsigned int node, uint32_t every, double delay_ns);

/* `count` instructions of `owner` were executed. */
void timing_execute(struct timing *timing, enum timing_owner owner, uint64_t count);

/* The cache missed line number `line` (by virtual address: streams cross pages) of `node`. */
void timing_read(struct timing *timing, enum timing_owner owner, unsigned int node, uint64_t line);

/* The cache wrote a line back to `node`. */
void timing_write(struct timing *timing, enum timing_owner owner, unsigned int node);

/* Load of the node: how long a demand miss would take now. */
double timing_loaded_ns(const struct timing *timing, unsigned int node);

#endif
