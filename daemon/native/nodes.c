/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of nodes: their zones, from a few lines of the kernel's zoneinfo. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sys.h"

int tierd_zones(const char *path, struct tierd_node_zones *nodes, size_t most)
{
	struct tierd_node_zones *zone = NULL;
	FILE *file = fopen(path, "re");
	size_t n = 0, size = 0;
	char *text = NULL;

	if (file == NULL)
		return -errno;
	while (getline(&text, &size, file) > 0) {
		const char *line = text + strspn(text, " ");
		unsigned long pages;
		int node;

		/* Zones of a node, of which there may be several, follow one another. */
		if (*line == 'N' && sscanf(line, "Node %d", &node) == 1) {
			if (zone != NULL && zone->node == node)
				continue;
			zone = n < most ? &nodes[n++] : NULL;
			if (zone != NULL)
				*zone = (struct tierd_node_zones){.node = node};
		} else if (zone != NULL && *line == 'h' && sscanf(line, "high %lu", &pages) == 1) {
			zone->high_pages += pages;
		} else if (zone != NULL && *line == 'c' &&
			   sscanf(line, "count: %lu", &pages) == 1) {
			zone->held_pages += pages;
		}
	}
	free(text);
	fclose(file);
	return (int)n;
}
