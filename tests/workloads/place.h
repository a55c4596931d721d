/* SPDX-License-Identifier: Apache-2.0 */
/* Where pages are put at the start, and where the kernel says they are. */
#ifndef TIERD_WORKLOAD_PLACE_H
#define TIERD_WORKLOAD_PLACE_H

#include "layout.h"

#include <stddef.h>
#include <stdint.h>

enum { PLACE_PAGE = 4096, PLACE_MAX_NODES = 64 };

/* Pages faulted in from now on come from `node` (-1: the default policy). This is the
 * task's policy, not a mapping's, so nothing stays bound. 0 or -errno. */
int place_prefer(int node);

/* Free bytes of a node, or -errno. */
long long place_node_free(int node);

/* Counts the nodes of every `stride`-th page of order[from..to): counts[n] for node n,
 * the last entry for pages that are not present. 0 or -errno. */
int place_count(const char *base, const struct layout *layout, size_t from, size_t to,
		size_t stride, size_t counts[PLACE_MAX_NODES + 1]);

/* The nodes of the pages [from..from + n) in order of address; below 0: not present. 0 or -errno.
 */
int place_of(const char *base, size_t from, size_t n, int *node);

#endif
