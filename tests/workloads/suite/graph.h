/* SPDX-License-Identifier: Apache-2.0 */
/* A Kronecker graph (Graph500's R-MAT parameters) in compressed sparse rows. */
#ifndef GRAPH_H
#define GRAPH_H

#include "suite.h"

struct graph {
	uint32_t vertices;
	uint64_t edges;	  /* directed: twice the generated ones */
	uint64_t *offset; /* vertices + 1 */
	uint32_t *target; /* edges, of each vertex in turn */
};

/* The largest such graph, 16 edges a vertex, of which the rows fit into `bytes`. */
void graph_make(struct graph *graph, const struct suite *suite, size_t bytes);

#endif
