/* SPDX-License-Identifier: Apache-2.0 */
#include "timing.h"

#include <errno.h>
#include <string.h>

void timing_init(struct timing *timing, double instruction_ns, double mlp)
{
	memset(timing, 0, sizeof(*timing));
	timing->instruction_ns = instruction_ns > 0 ? instruction_ns : 0.25;
	timing->mlp = mlp > 0 ? mlp : 1;
	/* No line has this number: its successor would be line 0. */
	memset(timing->stream, 0xff, sizeof(timing->stream));
}

int timing_set_node(struct timing *timing, unsigned int node, double latency_ns, double bandwidth,
		    unsigned int line_bytes)
{
	if (node >= TIMING_NODES_MAX || latency_ns < 0 || bandwidth < 0 || !line_bytes)
		return -EINVAL;
	timing->nodes[node].latency_ns = latency_ns;
	timing->nodes[node].line_ns = bandwidth > 0 ? line_bytes * 1e9 / bandwidth : 0;
	return 0;
}

int timing_set_delay(struct timing *timing, unsigned int node, uint32_t every, double delay_ns)
{
	if (node >= TIMING_NODES_MAX || delay_ns < 0)
		return -EINVAL;
	timing->nodes[node].every = every;
	timing->nodes[node].delay_ns = delay_ns;
	timing->nodes[node].since_delay = 0;
	return 0;
}

static void spend(struct timing *timing, enum timing_owner owner, double ns)
{
	timing->now_ns += ns;
	timing->spent_ns[owner] += ns;
}

void timing_execute(struct timing *timing, enum timing_owner owner, uint64_t count)
{
	timing->instructions[owner] += count;
	spend(timing, owner, (double)count * timing->instruction_ns);
}

/* What this demand miss takes longer than others. */
static double delay(struct timing_node *node)
{
	if (!node->every || ++node->since_delay < node->every)
		return 0;
	node->since_delay = 0;
	return node->delay_ns;
}

/* Puts a line behind the node's backlog; how long the backlog before it still takes. */
static double queue(struct timing *timing, struct timing_node *node)
{
	double backlog = node->free_ns - timing->now_ns;

	if (backlog < 0) {
		backlog = 0;
		node->free_ns = timing->now_ns;
	}
	node->free_ns += node->line_ns;
	return backlog;
}

static void wait_for(struct timing *timing, enum timing_owner owner, struct timing_node *node,
		     double ns)
{
	if (ns <= 0)
		return;
	node->waited_ns += ns;
	timing->waited_ns += ns;
	spend(timing, owner, ns);
}

/* True if `line` goes on with a stream; streams are replaced in turn. */
static bool streamed(struct timing *timing, uint64_t line)
{
	for (unsigned int i = 0; i < TIMING_STREAMS; i++)
		if (timing->stream[i] == line) {
			timing->stream[i] = line + 1;
			return true;
		}
	timing->stream[timing->next_stream] = line + 1;
	timing->next_stream = (timing->next_stream + 1) % TIMING_STREAMS;
	return false;
}

void timing_read(struct timing *timing, enum timing_owner owner, unsigned int number, uint64_t line)
{
	struct timing_node *node = &timing->nodes[number % TIMING_NODES_MAX];
	const bool prefetched = streamed(timing, line);
	const double backlog = queue(timing, node);

	if (prefetched) {
		node->lines.prefetched++;
		timing->lines[owner].prefetched++;
		wait_for(timing, owner, node, backlog - TIMING_PREFETCH_DEPTH * node->line_ns);
	} else {
		node->lines.demand++;
		timing->lines[owner].demand++;
		wait_for(timing, owner, node,
			 backlog + node->latency_ns / timing->mlp + delay(node));
	}
}

void timing_write(struct timing *timing, enum timing_owner owner, unsigned int number)
{
	struct timing_node *node = &timing->nodes[number % TIMING_NODES_MAX];
	const double backlog = queue(timing, node);

	node->lines.written++;
	timing->lines[owner].written++;
	wait_for(timing, owner, node, backlog - TIMING_WRITE_DEPTH * node->line_ns);
}

double timing_loaded_ns(const struct timing *timing, unsigned int number)
{
	const struct timing_node *node = &timing->nodes[number % TIMING_NODES_MAX];
	const double backlog = node->free_ns - timing->now_ns;

	return node->latency_ns + (backlog > 0 ? backlog : 0);
}
