/* SPDX-License-Identifier: Apache-2.0 */
/* Eviction of the coldest pages, those outside the kept nodes first. */
#include "heat_table.h"

/*
 * Remove up to `wanted` of the coldest slots whose node is kept, or is not. Where not all of
 * the last bin go, every nth does: taken from one end, they would leave the other so full that
 * probes there become searches.
 */
static int evict_group(struct tierd_heat *heat, bool kept, uint64_t wanted)
{
	uint64_t in_bin[TIERD_HEAT_BINS] = {0};
	uint64_t before = 0, from_edge, due = 0;
	int edge_bin = 0;
	int err = hist_update(heat);

	if (err != 0)
		return err;
	for (int node = 0; node < 256; node++) {
		const struct hist_row *row = hist_row(heat, node);

		if (row == NULL || node == TIERD_NODE_UNPLACED || heat->keep_node[node] != kept)
			continue;
		for (int bin = 0; bin < TIERD_HEAT_BINS; bin++)
			in_bin[bin] += row->folios[bin];
	}
	while (edge_bin < TIERD_HEAT_BINS - 1 && before + in_bin[edge_bin] < wanted)
		before += in_bin[edge_bin++];
	from_edge = wanted - before;
	for (uint64_t i = 0; i < slot_count(heat);) {
		struct slot *slot = &heat->slots[i];
		int bin;

		if (!slot_used(slot) || heat->keep_node[slot->node] != kept) {
			i++;
			continue;
		}
		bin = heat_bin(slot->heat * heat->inverse_gain);
		if (bin == edge_bin)
			due += from_edge;
		if (bin > edge_bin || (bin == edge_bin && due < in_bin[edge_bin])) {
			i++;
			continue;
		}
		if (bin == edge_bin)
			due -= in_bin[edge_bin];
		/* The slot that moves here is checked next. */
		table_remove(heat, slot);
		heat->evicted++;
	}
	return 0;
}

bool table_evict(struct tierd_heat *heat, bool may_evict_kept)
{
	const uint64_t wanted = heat->capacity / 16 + 1, before = heat->evicted;

	if (evict_group(heat, false, wanted) != 0)
		return false;
	if (may_evict_kept && heat->evicted - before < wanted &&
	    evict_group(heat, true, wanted - (heat->evicted - before)) != 0)
		return false;
	return heat->evicted - before >= wanted;
}
