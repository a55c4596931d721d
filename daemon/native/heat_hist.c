/* SPDX-License-Identifier: Apache-2.0 */
/* How heat is distributed, by node; and how many slots' nodes are not known for sure. */
#include "heat_table.h"

#include <errno.h>
#include <stdlib.h>
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

uint64_t table_unplaced(const struct tierd_heat *heat)
{
	return heat->tracked - heat->of_epoch[heat->epoch_now] - heat->of_epoch[heat->epoch_before];
}

static struct hist_row *row_for(struct tierd_heat *heat, int node)
{
	if (heat->row_of[node] == NO_ROW) {
		if (heat->rows_used == heat->rows_room) {
			uint32_t room = heat->rows_room == 0 ? 4 : heat->rows_room * 2;
			struct hist_row *rows = realloc(heat->rows, room * sizeof(*rows));

			if (rows == NULL)
				return NULL;
			heat->rows = rows;
			heat->rows_room = room;
		}
		memset(&heat->rows[heat->rows_used], 0, sizeof(*heat->rows));
		heat->row_of[node] = (uint16_t)heat->rows_used++;
	}
	return &heat->rows[heat->row_of[node]];
}

/* Count every slot once; kept until something changes. */
int hist_update(struct tierd_heat *heat)
{
	if (heat->hist_valid)
		return 0;
	for (uint32_t i = 0; i < heat->rows_used; i++)
		memset(&heat->rows[i], 0, sizeof(heat->rows[i]));
	for (uint64_t i = 0; i < slot_count(heat); i++) {
		const struct slot *slot = &heat->slots[i];
		struct hist_row *row;
		int bin;

		if (!slot_used(slot))
			continue;
		if (heat->row_of[slot->node] == NO_ROW && row_for(heat, slot->node) == NULL)
			return -ENOMEM;
		bin = heat_bin(slot->heat * heat->inverse_gain);
		row = &heat->rows[heat->row_of[slot->node]];
		row->folios[bin]++;
		row->huge[bin] += slot_huge(slot);
	}
	heat->hist_valid = true;
	return 0;
}

const struct hist_row *hist_row(const struct tierd_heat *heat, int node)
{
	return heat->row_of[node] == NO_ROW ? NULL : &heat->rows[heat->row_of[node]];
}

int tierd_heat_histogram(struct tierd_heat *heat, int node, int64_t *pages)
{
	const struct hist_row *row;
	int err = hist_update(heat);

	if (err != 0)
		return err;
	row = hist_row(heat, node);
	for (int bin = 0; bin < TIERD_HEAT_BINS; bin++)
		pages[bin] = row == NULL ? 0
					 : (int64_t)row->folios[bin] +
					       (int64_t)(HUGE_PAGES - 1) * row->huge[bin];
	return 0;
}
