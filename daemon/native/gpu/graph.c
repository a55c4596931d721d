/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What executable graphs use: their kernel nodes' parameters are read once, when a graph
 * is made executable ("CUDA Driver API", "Graph management"). A kernel node's parameters
 * changed in the executable graph later are not seen.
 */
#include "launches.h"

#include <stdlib.h>

struct graph {
	void *exec;
	struct tg_span *span;
	uint32_t count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct graph table[TG_GRAPHS];

static void scan_kernel(struct tg_client *c, struct tg_spans *spans, void *node)
{
	CUDA_KERNEL_NODE_PARAMS params = {0};

	if (!c->driver.kernel_node_params(node, &params))
		tg_params_scan(c, spans, params.func ? params.func : params.kern,
			       params.kernel_params, params.extra);
}

static void scan_graph(struct tg_client *c, struct tg_spans *spans, void *graph, int depth)
{
	size_t count = 0;
	void **nodes;

	if (c->driver.graph_nodes(graph, NULL, &count) || !count || count > TG_GRAPH_NODES)
		return;
	nodes = calloc(count, sizeof(*nodes));
	if (!nodes || c->driver.graph_nodes(graph, nodes, &count))
		count = 0;
	for (size_t i = 0; i < count; i++) {
		void *child;
		int type;

		if (c->driver.node_type(nodes[i], &type))
			continue;
		if (type == CU_GRAPH_NODE_TYPE_KERNEL)
			scan_kernel(c, spans, nodes[i]);
		else if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth &&
			 !c->driver.child_graph(nodes[i], &child))
			scan_graph(c, spans, child, depth - 1);
	}
	free(nodes);
}

void tg_graph_gone(void *exec)
{
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < TG_GRAPHS; i++)
		if (table[i].exec == exec) {
			free(table[i].span);
			table[i] = (struct graph){0};
		}
	pthread_mutex_unlock(&lock);
}

void tg_graph_made(struct tg_client *c, void *exec, void *graph)
{
	struct tg_spans *spans = malloc(sizeof(*spans));
	struct tg_span *kept = NULL;

	tg_graph_gone(exec); /* the address of one that is no more */
	if (!spans || !c->driver.graph_nodes || !c->driver.node_type ||
	    !c->driver.kernel_node_params || !c->driver.child_graph)
		goto out;
	tg_launches_begin(c, spans);
	scan_graph(c, spans, graph, TG_GRAPH_DEPTH);
	kept = calloc(spans->count + 1, sizeof(*kept));
	if (!kept)
		goto out;
	for (uint32_t i = 0; i < spans->count; i++)
		kept[i] = spans->span[i];
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < TG_GRAPHS && kept; i++)
		if (!table[i].exec) {
			table[i] = (struct graph){exec, kept, spans->count};
			kept = NULL;
		}
	pthread_mutex_unlock(&lock);
	free(kept);
out:
	free(spans);
}

bool tg_graph_spans(void *exec, struct tg_spans *spans)
{
	bool known = false;

	spans->count = 0;
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < TG_GRAPHS && !known; i++)
		if (table[i].exec == exec) {
			known = true;
			while (spans->count < table[i].count) {
				spans->span[spans->count] = table[i].span[spans->count];
				spans->count++;
			}
		}
	pthread_mutex_unlock(&lock);
	return known;
}
