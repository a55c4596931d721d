/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bfs: breadth-first searches of a Kronecker graph, top down. --work: searches, each from a
 * root of its own. The last tree is checked as Graph500 asks: the root is its own parent, every
 * tree edge is an edge of the graph, and no edge joins vertices more than one level apart.
 */
#include "../rng.h"
#include "graph.h"

#include <string.h>

enum { NONE = UINT32_MAX };

struct search {
	uint32_t *parent, *level, *queue;
};

static uint64_t search_from(const struct graph *graph, struct search *search, uint32_t root)
{
	uint64_t head = 0, tail = 0, traversed = 0;

	memset(search->parent, 0xff, graph->vertices * sizeof(*search->parent));
	search->parent[root] = root;
	search->level[root] = 0;
	search->queue[tail++] = root;
	while (head < tail) {
		uint32_t v = search->queue[head++];

		traversed += graph->offset[v + 1] - graph->offset[v];
		for (uint64_t e = graph->offset[v]; e < graph->offset[v + 1]; e++) {
			uint32_t to = graph->target[e];

			if (search->parent[to] != NONE)
				continue;
			search->parent[to] = v;
			search->level[to] = search->level[v] + 1;
			search->queue[tail++] = to;
		}
	}
	return traversed;
}

static bool is_edge(const struct graph *graph, uint32_t from, uint32_t to)
{
	for (uint64_t e = graph->offset[from]; e < graph->offset[from + 1]; e++)
		if (graph->target[e] == to)
			return true;
	return false;
}

static bool tree_is_right(const struct graph *graph, const struct search *search, uint32_t root)
{
	if (search->parent[root] != root || search->level[root] != 0)
		return false;
	for (uint32_t v = 0; v < graph->vertices; v++) {
		bool reached = search->parent[v] != NONE;

		for (uint64_t e = graph->offset[v]; e < graph->offset[v + 1]; e++) {
			uint32_t to = graph->target[e];

			if (reached != (search->parent[to] != NONE))
				return false;
			if (reached && search->level[to] > search->level[v] + 1)
				return false;
		}
		if (!reached || v == root)
			continue;
		if (search->level[v] != search->level[search->parent[v]] + 1)
			return false;
		if (!is_edge(graph, v, search->parent[v]))
			return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	struct suite suite = {.name = "bfs", .size = 256ul << 20, .work = 4, .seed = 1};
	uint64_t traversed = 0, answer = 0, state;
	struct search search;
	struct graph graph;
	uint32_t root = 0;
	bool ok;

	suite_options(&suite, argc, argv);
	graph_make(&graph, &suite, suite.size);
	search.parent = suite_alloc(&suite, graph.vertices * sizeof(uint32_t));
	search.level = suite_alloc(&suite, graph.vertices * sizeof(uint32_t));
	search.queue = suite_alloc(&suite, graph.vertices * sizeof(uint32_t));
	suite_touch(&suite, search.parent, graph.vertices * sizeof(uint32_t));
	suite_touch(&suite, search.level, graph.vertices * sizeof(uint32_t));
	suite_touch(&suite, search.queue, graph.vertices * sizeof(uint32_t));
	state = mix64(suite.seed);
	suite_start(&suite);
	for (uint64_t i = 0; i < suite.work; i++) {
		do
			root = rng_below(&state, graph.vertices);
		while (graph.offset[root] == graph.offset[root + 1]);
		traversed += search_from(&graph, &search, root);
	}
	suite_stop();
	suite_spoil(&suite, search.level, graph.vertices * sizeof(uint32_t));
	ok = tree_is_right(&graph, &search, root);
	for (uint32_t v = 0; v < graph.vertices; v++)
		if (search.parent[v] != NONE)
			answer += mix64((uint64_t)v << 32 | search.level[v]);
	return suite_end(&suite, traversed, ok, answer);
}
