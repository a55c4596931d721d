/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to the table: histogram, hottest and coldest. */
#include "heat_table.h"

#include <errno.h>
#include <math.h>
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

/* Node unknown, or not confirmed since the refresh before the present one began. */
bool slot_unplaced(const struct tierd_heat *heat, const struct slot *slot)
{
	uint8_t epoch = slot->flags & EPOCH_MASK;
	uint8_t now = (uint8_t)(heat->epoch_serial % EPOCHS + 1);
	uint8_t before = (uint8_t)((heat->epoch_serial + EPOCHS - 1) % EPOCHS + 1);

	return slot->node == TIERD_NODE_UNKNOWN || (epoch != now && epoch != before);
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
	/* The first row exists always, so that a pointer into rows is never null. */
	if (row_for(heat, TIERD_NODE_UNPLACED) == NULL)
		return -ENOMEM;
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
		if (slot_unplaced(heat, slot)) {
			row = &heat->rows[heat->row_of[TIERD_NODE_UNPLACED]];
			row->folios[bin]++;
			row->huge[bin] += slot_huge(slot);
		}
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

/*
 * What is selected beyond the threshold bin goes straight into the answer; the
 * threshold bin's own members compete in a heap for the places that are left.
 */
/* Whether `a` is asked for before `b`; equal heat goes by key, so that replays agree. */
static bool better(bool hottest, const struct rank *a, const struct rank *b)
{
	if (a->heat != b->heat)
		return hottest ? a->heat > b->heat : a->heat < b->heat;
	return a->key < b->key;
}

static void sift_down(bool hottest, struct rank *heap, size_t n, size_t at)
{
	for (;;) {
		size_t worst = at;

		for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < n; child++) {
			if (better(hottest, &heap[worst], &heap[child]))
				worst = child;
		}
		if (worst == at)
			return;
		struct rank swap = heap[at];
		heap[at] = heap[worst];
		heap[worst] = swap;
		at = worst;
	}
}

/* Put `item` into a heap whose root is its worst member; at `room` the worst gives way. */
static size_t heap_offer(bool hottest, struct rank *heap, size_t n, size_t room, struct rank item)
{
	if (n < room) {
		size_t at = n;

		while (at > 0 && better(hottest, &heap[(at - 1) / 2], &item)) {
			heap[at] = heap[(at - 1) / 2];
			at = (at - 1) / 2;
		}
		heap[at] = item;
		return n + 1;
	}
	if (room > 0 && better(hottest, &item, &heap[0])) {
		heap[0] = item;
		sift_down(hottest, heap, n, 0);
	}
	return n;
}

/* The bin in which the n-th folio lies, and how many lie before that bin. */
static int threshold_bin(const struct hist_row *row, bool hottest, int lowest, size_t n,
			 size_t *before)
{
	int bin = hottest ? TIERD_HEAT_BINS - 1 : 0;

	*before = 0;
	while (*before + row->folios[bin] < n &&
	       (hottest ? bin > lowest : bin < TIERD_HEAT_BINS - 1)) {
		*before += row->folios[bin];
		bin += hottest ? -1 : 1;
	}
	return bin;
}

static float idle_seconds(const struct tierd_heat *heat, const struct slot *slot)
{
	if (slot->moved == 0)
		return INFINITY;
	return (float)(uint16_t)(moved_tick(heat) - slot->moved) * (TICK_NS * 1e-9F);
}

static bool selectable(const struct tierd_heat *heat, const struct slot *slot, int node,
		       const uint8_t *among)
{
	if (!slot_used(slot))
		return false;
	if (node == TIERD_NODE_UNPLACED ? !slot_unplaced(heat, slot) : slot->node != node)
		return false;
	return among == NULL || among[key_target(slot_key(slot))] != 0;
}

/* The folios of a node by heat, of some targets only. */
static struct hist_row count_among(const struct tierd_heat *heat, int node, const uint8_t *among)
{
	struct hist_row row = {{0}, {0}};

	for (uint64_t i = 0; i < slot_count(heat); i++) {
		const struct slot *slot = &heat->slots[i];

		if (selectable(heat, slot, node, among))
			row.folios[heat_bin(slot->heat * heat->inverse_gain)]++;
	}
	return row;
}

/* Whether a bin from `lowest` on has a folio. */
static bool any_from(const struct hist_row *row, int lowest)
{
	for (int bin = lowest; bin < TIERD_HEAT_BINS; bin++)
		if (row->folios[bin] != 0)
			return true;
	return false;
}

int64_t tierd_heat_select(struct tierd_heat *heat, int node, int hottest, float min_heat,
			  const uint8_t *among, size_t n, uint64_t *page, float *value, int16_t *on,
			  uint8_t *order, float *idle_s)
{
	const struct hist_row *row;
	struct hist_row some;
	struct rank *rank;
	size_t before, taken = 0, competing = 0, room;
	bool all;
	int lowest = hottest && min_heat > 0.0F ? heat_bin(min_heat) : 0, edge_bin;
	int err = hist_update(heat);

	if (err != 0)
		return err;
	row = hist_row(heat, node);
	if (row == NULL || n == 0)
		return 0;
	if (among != NULL) {
		some = count_among(heat, node, among);
		row = &some;
	}
	if (!any_from(row, lowest))
		return 0;
	if (n > heat->tracked)
		n = heat->tracked;
	edge_bin = threshold_bin(row, hottest != 0, lowest, n, &before);
	room = n - before;
	all = row->folios[edge_bin] <= room;
	rank = malloc((n + 1) * sizeof(*rank));
	if (rank == NULL)
		return -ENOMEM;
	for (uint64_t i = 0; i < slot_count(heat); i++) {
		const struct slot *slot = &heat->slots[i];
		struct rank item;
		int bin;

		if (!selectable(heat, slot, node, among))
			continue;
		item = (struct rank){
		    .heat = slot->heat * heat->inverse_gain, .key = slot_key(slot), .slot = i};
		if (hottest && !(item.heat > min_heat))
			continue;
		bin = heat_bin(item.heat);
		if (bin == edge_bin && !all)
			competing = heap_offer(hottest != 0, rank + before, competing, room, item);
		else if (bin == edge_bin || (hottest ? bin > edge_bin : bin < edge_bin))
			rank[taken++] = item;
	}
	/* With a least heat inside the last bin, fewer may come before the heap than counted. */
	memmove(rank + taken, rank + before, competing * sizeof(*rank));
	taken += competing;
	err = heat_rank_sort(hottest != 0, rank, taken);
	if (err != 0) {
		free(rank);
		return err;
	}
	for (size_t i = 0; i < taken; i++) {
		const struct slot *slot = &heat->slots[rank[i].slot];

		page[i] = slot_key(slot);
		value[i] = rank[i].heat;
		on[i] = slot->node == TIERD_NODE_UNKNOWN ? -1 : slot->node;
		order[i] = slot_huge(slot) ? HUGE_ORDER : 0;
		idle_s[i] = idle_seconds(heat, slot);
	}
	free(rank);
	return (int64_t)taken;
}

int tierd_heat_lookup(struct tierd_heat *heat, uint64_t page, float *value, int16_t *node,
		      uint8_t *order, float *idle_s)
{
	const struct slot *slot = table_find(heat, page, hash_key(page));

	if (slot == NULL)
		return -ENOENT;
	*value = slot->heat * heat->inverse_gain;
	*node = slot->node == TIERD_NODE_UNKNOWN ? -1 : slot->node;
	*order = slot_huge(slot) ? HUGE_ORDER : 0;
	*idle_s = idle_seconds(heat, slot);
	return 0;
}

void tierd_heat_where(struct tierd_heat *heat, const uint64_t *page, size_t n, int16_t *node)
{
	for (size_t i = 0; i < n; i++) {
		const struct slot *slot = NULL;
		uint64_t head = key_head(page[i]);

		if (heat->huge != 0 && filter_hit(heat, page[i]))
			slot = table_find(heat, head, hash_key(head));
		if (slot == NULL || !slot_huge(slot))
			slot = table_find(heat, page[i], hash_key(page[i]));
		node[i] = slot == NULL || slot->node == TIERD_NODE_UNKNOWN ? -1 : slot->node;
	}
}
