/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions between the promoter's decisions and the moves of plans and reports. Each is one
 * pass over thousands of pages, where arrays in Python would take a dozen.
 */
#include <math.h>
#include <stdbool.h>

#include "pagekey.h"
#include "tierd_promoter.h"

size_t tierd_outcome_moves(const struct tierd_outcome *outcome, size_t n,
			   const struct tierd_moves *out)
{
	size_t moves = 0;

	for (size_t i = 0; i < n; i++) {
		if (outcome[i].fate == TIERD_NOT_TRIED)
			continue;
		out->page[moves] = outcome[i].page;
		out->heat[moves] = outcome[i].heat;
		out->source[moves] = outcome[i].source;
		out->dest[moves] = outcome[i].dest;
		out->node[moves] = outcome[i].node;
		out->order[moves] = outcome[i].order;
		out->fate[moves] = outcome[i].fate;
		out->direction[moves++] = outcome[i].direction;
	}
	return moves;
}

void tierd_move_outcomes(const struct tierd_moves *moves, size_t first, size_t n, uint64_t time_ns,
			 struct tierd_outcome *out)
{
	for (size_t i = first; i < first + n; i++) {
		const uint8_t direction = moves->direction[i];

		*out++ = (struct tierd_outcome){
		    .page = moves->page[i],
		    .time_ns = time_ns,
		    .heat = moves->heat[i],
		    .bar = NAN,
		    .source = moves->source[i],
		    .dest = moves->dest[i],
		    .node = moves->node[i],
		    .order = moves->order[i],
		    .fate = moves->fate[i],
		    .direction = direction,
		    .reason = direction == TIERD_PROMOTE ? TIERD_HOTTER : TIERD_MAKES_ROOM,
		};
	}
}

size_t tierd_outcome_pages(const struct tierd_outcome *outcome, size_t n, int direction,
			   uint64_t *page, size_t room)
{
	size_t pages = 0;

	for (size_t i = 0; i < n; i++) {
		const size_t size = (size_t)1 << outcome[i].order;

		if (outcome[i].fate != TIERD_MOVED || outcome[i].direction != direction)
			continue;
		for (size_t k = 0; k < size && pages + k < room; k++)
			page[pages + k] = outcome[i].page + k;
		pages += size;
	}
	return pages;
}

static bool same_way(const struct tierd_flow *flow, const struct tierd_moves *moves, size_t i)
{
	return flow->target == key_target(moves->page[i]) && flow->source == moves->source[i] &&
	       flow->dest == moves->dest[i] && flow->direction == moves->direction[i];
}

size_t tierd_flows(const struct tierd_moves *moves, size_t first, size_t n, struct tierd_flow *flow,
		   size_t room, size_t *flows)
{
	size_t last = 0, found = 0, i;

	for (i = first; i < n; i++) {
		if (moves->fate[i] != TIERD_MOVED)
			continue;
		/* Mostly it goes where the one before went. */
		if (found == 0 || !same_way(&flow[last], moves, i)) {
			for (last = 0; last < found && !same_way(&flow[last], moves, i); last++)
				;
			if (last == room)
				break;
			if (last == found)
				flow[found++] = (struct tierd_flow){
				    .target = key_target(moves->page[i]),
				    .source = moves->source[i],
				    .dest = moves->dest[i],
				    .direction = moves->direction[i],
				};
		}
		flow[last].bytes += (uint64_t)PAGE_BYTES << moves->order[i];
	}
	*flows = found;
	return i;
}
