/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ground truth: exact counts of what the cache asked of memory, for each page and each node.
 * Owns: the counts, and which node an address belongs to. Must not touch: cache and cards.
 * One thread at a time.
 */
#ifndef TIERD_LAB_TRUTH_H
#define TIERD_LAB_TRUTH_H

#include "options.h"

#include <stdio.h>

enum { TRUTH_PAGE_LOG2 = 12, TRUTH_BLOCK_LOG2 = 20, TRUTH_NODES_MAX = 64 };

/* A page's requests; each stops at its maximum. */
struct truth_page {
	uint32_t reads, writes;
};

struct truth_node {
	uint64_t reads, writes; /* lines */
};

struct truth {
	struct truth_page *pages; /* by page frame number */
	uint64_t page_count;
	uint8_t *node_of; /* by MiB; TRUTH_NODES_MAX: none */
	struct truth_node nodes[TRUTH_NODES_MAX + 1];
	uint64_t outside; /* requests above all nodes */
};

/* 0, -EINVAL (ranges that are no whole MiB, or a node number too high) or -ENOMEM. */
int truth_init(struct truth *truth, const struct options *options);
void truth_clear(struct truth *truth);

/* One line read from memory or written back to it. */
static inline void truth_count(struct truth *truth, uint64_t address, bool write)
{
	const uint64_t page = address >> TRUTH_PAGE_LOG2;
	struct truth_node *node;
	uint32_t *count;

	if (page >= truth->page_count) {
		truth->outside++;
		return;
	}
	count = write ? &truth->pages[page].writes : &truth->pages[page].reads;
	*count += *count != UINT32_MAX;
	node = &truth->nodes[truth->node_of[address >> TRUTH_BLOCK_LOG2]];
	if (write)
		node->writes++;
	else
		node->reads++;
}

/* The pages as an array of struct truth_page into a file. 0 or a negative errno. */
int truth_write_pages(const struct truth *truth, const char *path);

/* The nodes as members of a JSON object. */
void truth_print_nodes(const struct truth *truth, FILE *out);

#endif
