/* SPDX-License-Identifier: Apache-2.0 */
/* How heat is distributed, by node, and eviction of the coldest pages. */
#include "heat_table.h"

#include <string.h>

/* The top 12 bits of a float: sign, exponent, 3 bits of mantissa; bin 1 starts at 2^-14. */
enum { BIN_SHIFT = 20, BIN_BASE = ((127 - 14) << 3) - 1 };

int heat_bin(float value)
{
	uint32_t bits;
	int bin;

	memcpy(&bits, &value, sizeof(bits));
	bin = (int)(bits >> BIN_SHIFT) - BIN_BASE;
	if (bin < 0)
		return 0;
	return bin < TIERD_HEAT_BINS ? bin : TIERD_HEAT_BINS - 1;
}

float tierd_heat_bin_edge(int bin)
{
	uint32_t bits = (uint32_t)(bin + BIN_BASE) << BIN_SHIFT;
	float edge;

	if (bin <= 0)
		return 0.0F;
	memcpy(&edge, &bits, sizeof(edge));
	return edge;
}

/* Count every slot once; kept until something changes. */
static void hist_update(struct tierd_heat *heat)
{
	if (heat->hist_valid)
		return;
	for (int node = 0; node < 256; node++) {
		if (heat->row_used[node])
			memset(&heat->rows[node], 0, sizeof(heat->rows[node]));
	}
	for (uint64_t i = 0; i < slot_count(heat); i++) {
		const struct slot *slot = &heat->slots[i];
		int bin;

		if (!slot_used(slot))
			continue;
		bin = heat_bin(slot->heat * heat->inverse_gain);
		heat->row_used[slot->node] = true;
		heat->rows[slot->node].folios[bin]++;
		heat->rows[slot->node].huge[bin] += slot_huge(slot);
	}
	heat->hist_valid = true;
}

void tierd_heat_histogram(struct tierd_heat *heat, int node, int64_t *pages)
{
	const struct hist_row *row = &heat->rows[node];

	hist_update(heat);
	for (int bin = 0; bin < TIERD_HEAT_BINS; bin++)
		pages[bin] = row->folios[bin] + (int64_t)(HUGE_PAGES - 1) * row->huge[bin];
}

/*
 * Remove up to `wanted` of the coldest slots whose node is kept, or is not. Where not all of
 * the last bin go, every nth does: taken from one end, they would leave the other so full that
 * probes there become searches.
 */
static void evict_group(struct tierd_heat *heat, bool kept, uint64_t wanted)
{
	uint64_t in_bin[TIERD_HEAT_BINS] = {0};
	uint64_t before = 0, from_edge, due = 0;
	int edge_bin = 0;

	hist_update(heat);
	for (int node = 0; node < 256; node++) {
		if (!heat->row_used[node] || heat->keep_node[node] != kept)
			continue;
		for (int bin = 0; bin < TIERD_HEAT_BINS; bin++)
			in_bin[bin] += heat->rows[node].folios[bin];
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
}

bool table_evict(struct tierd_heat *heat, bool may_evict_kept)
{
	const uint64_t wanted = heat->capacity / 16 + 1, before = heat->evicted;

	evict_group(heat, false, wanted);
	if (may_evict_kept && heat->evicted - before < wanted)
		evict_group(heat, true, wanted - (heat->evicted - before));
	return heat->evicted - before >= wanted;
}
