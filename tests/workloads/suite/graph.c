/* SPDX-License-Identifier: Apache-2.0 */
#include "graph.h"

#include "../rng.h"

enum { EDGES_A_VERTEX = 16 };

/*
 * One edge of the R-MAT model (Chakrabarti, Zhan, Faloutsos 2004) with the Graph500 parameters
 * A = 0.57, B = C = 0.19, in 1/65536. Vertex numbers are scrambled, so that degree does not
 * follow from the number, as that benchmark asks.
 */
static void edge_at(uint64_t seed, uint64_t number, unsigned int scale, uint32_t *from,
		    uint32_t *to)
{
	const uint32_t a = 37356, ab = 49808, abc = 62260, mask = (1u << scale) - 1;
	uint64_t state = mix64(seed) ^ mix64(number * 2 + 1), bits = 0;
	uint32_t u = 0, v = 0;

	for (unsigned int level = 0; level < scale; level++) {
		uint32_t draw;

		if (level % 4 == 0)
			bits = rng_next(&state);
		draw = bits & 0xffff;
		bits >>= 16;
		u = u << 1 | (draw >= ab);
		v = v << 1 | ((draw >= a && draw < ab) || draw >= abc);
	}
	/* Odd multipliers permute the numbers modulo a power of two. */
	*from = (u * 0x9e3779b1u + 12345) & mask;
	*to = (v * 0x9e3779b1u + 12345) & mask;
}

void graph_make(struct graph *graph, const struct suite *suite, size_t bytes)
{
	unsigned int scale = 10;
	uint64_t generated;
	uint32_t from, to;

	while (scale < 30 && ((uint64_t)(8 + 8 * EDGES_A_VERTEX) << (scale + 1)) <= bytes)
		scale++;
	graph->vertices = 1u << scale;
	generated = (uint64_t)EDGES_A_VERTEX << scale;
	graph->edges = 2 * generated;
	graph->offset = suite_alloc(suite, (graph->vertices + 2ul) * sizeof(*graph->offset));
	graph->target = suite_alloc(suite, graph->edges * sizeof(*graph->target));
	/* Counting sort by vertex: the edges are generated twice rather than kept. */
	for (uint64_t i = 0; i < generated; i++) {
		edge_at(suite->seed, i, scale, &from, &to);
		graph->offset[from + 2]++;
		graph->offset[to + 2]++;
	}
	for (uint32_t v = 2; v < graph->vertices + 2; v++)
		graph->offset[v] += graph->offset[v - 1];
	for (uint64_t i = 0; i < generated; i++) {
		edge_at(suite->seed, i, scale, &from, &to);
		graph->target[graph->offset[from + 1]++] = to;
		graph->target[graph->offset[to + 1]++] = from;
	}
}
