// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which node a frame is of, by its number: page_to_nid() reads the frame's struct page, which is
 * a cache miss for each page that is told of, in slow memory for those in slow memory.
 */
#include "tierd.h"

#include <linux/mmzone.h>
#include <linux/nodemask.h>

/**
 * tierd_node_spans() - the frames of each node
 * @span: room for TIERD_SPANS
 *
 * None where nodes are many, or where frames of one lie between those of another. What is in no
 * span, as memory that was added since, says itself where it is.
 *
 * Return: How many there are.
 */
unsigned int tierd_node_spans(struct tierd_span *span)
{
	unsigned int count = 0, i;
	int node;

	for_each_node_state(node, N_MEMORY) {
		struct tierd_span own = {
			.start = READ_ONCE(NODE_DATA(node)->node_start_pfn),
			.count = READ_ONCE(NODE_DATA(node)->node_spanned_pages),
			.node = node,
		};

		if (count == TIERD_SPANS)
			return 0;
		for (i = 0; i < count; i++)
			if (own.start < span[i].start + span[i].count &&
			    span[i].start < own.start + own.count)
				return 0;
		span[count++] = own;
	}
	return count;
}
