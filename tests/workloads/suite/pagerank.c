/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pagerank: ranks on a Kronecker graph, pulled along the edges. --work: iterations.
 *
 * Ranks are fixed-point numbers, so that the order of additions does not matter. The answer is
 * checked by computing the last iteration again the other way, pushed from the sources: every
 * rank must be equal, bit for bit.
 */
#include "graph.h"

#include <string.h>

static uint64_t share_of(const struct graph *graph, uint32_t v, const uint64_t *rank)
{
	uint64_t degree = graph->offset[v + 1] - graph->offset[v];

	return degree ? rank[v] / degree : 0;
}

static uint64_t damped(uint64_t sum)
{
	return (1ul << 32) * 15 / 100 + sum / 100 * 85;
}

static void pull(const struct graph *graph, uint64_t *rank, uint64_t *share)
{
	for (uint32_t v = 0; v < graph->vertices; v++)
		share[v] = share_of(graph, v, rank);
	for (uint32_t v = 0; v < graph->vertices; v++) {
		uint64_t sum = 0;

		for (uint64_t e = graph->offset[v]; e < graph->offset[v + 1]; e++)
			sum += share[graph->target[e]];
		rank[v] = damped(sum);
	}
}

static bool push_agrees(const struct suite *suite, const struct graph *graph, const uint64_t *share,
			const uint64_t *rank)
{
	uint64_t *sum = suite_alloc(suite, graph->vertices * sizeof(*sum));

	for (uint32_t v = 0; v < graph->vertices; v++)
		for (uint64_t e = graph->offset[v]; e < graph->offset[v + 1]; e++)
			sum[graph->target[e]] += share[v];
	for (uint32_t v = 0; v < graph->vertices; v++)
		if (damped(sum[v]) != rank[v])
			return false;
	return true;
}

int main(int argc, char **argv)
{
	struct suite suite = {.name = "pagerank", .size = 256ul << 20, .work = 5, .seed = 1};
	uint64_t *rank, *share, answer = 0;
	struct graph graph;
	bool ok;

	suite_options(&suite, argc, argv);
	graph_make(&graph, &suite, suite.size);
	rank = suite_alloc(&suite, graph.vertices * sizeof(*rank));
	share = suite_alloc(&suite, graph.vertices * sizeof(*share));
	for (uint32_t v = 0; v < graph.vertices; v++)
		rank[v] = 1ul << 32;
	suite_touch(&suite, share, graph.vertices * sizeof(*share));
	suite_start(&suite);
	for (uint64_t i = 0; i < suite.work; i++)
		pull(&graph, rank, share);
	suite_stop();
	suite_spoil(&suite, rank, graph.vertices * sizeof(*rank));
	ok = push_agrees(&suite, &graph, share, rank);
	for (uint32_t v = 0; v < graph.vertices; v++)
		answer = answer * 31 + rank[v];
	return suite_end(&suite, suite.work * graph.edges, ok, answer);
}
