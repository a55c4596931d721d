/* SPDX-License-Identifier: Apache-2.0 */
/* Samples to heat. */
#include "heat_table.h"

enum { LOOKAHEAD = 24 };

/* With a gain of at most 2^60, stored heats stay well below what a float can hold. */
static const float HEAT_MAX = 0x1p60F;

/* Whether the table takes it: above 0, and no more than that; the bits of these are in order. */
static inline bool counts(float count)
{
	uint32_t bits, most;

	memcpy(&bits, &count, sizeof(bits));
	memcpy(&most, &HEAT_MAX, sizeof(most));
	return bits - 1 < most;
}

/*
 * A source has met a page on `node`. What is known otherwise is not changed by that: pages that
 * moved since then are known, and a source's report may be older than the move.
 */
static inline void met_on(struct tierd_heat *heat, struct slot *slot, int16_t node)
{
	if ((slot->flags & EPOCH_MASK) == heat->epoch_now || (uint16_t)node > TIERD_NODE_MAX ||
	    slot_huge(slot))
		return;
	if (slot_unplaced(heat, slot))
		slot->node = (uint8_t)node;
	if (slot->node == node)
		slot_set_epoch(heat, slot, heat->epoch_now);
}

/* Where the search for a page's folio begins. */
static inline const struct slot *first_slot(const struct tierd_heat *heat, uint64_t page)
{
	const bool huge = heat->huge != 0 && filter_hit(heat, page);

	return &heat->slots[home_of(heat, huge ? key_head(page) : page)];
}

/* False if there is no space for the page. */
static inline bool add_sample(struct tierd_heat *heat, uint64_t page, float amount, float most,
			      int16_t node)
{
	struct slot *slot = table_folio(heat, page);

	if (slot == NULL)
		slot = table_insert(heat, page, true);
	if (slot == NULL)
		return false;
	if (slot_huge(slot))
		amount *= 1.0F / (float)HUGE_PAGES;
	amount += slot->heat;
	slot->heat = amount < most ? amount : most;
	met_on(heat, slot, node);
	tag_slot(heat, slot);
	return true;
}

int tierd_heat_ingest(struct tierd_heat *heat, const uint64_t *page, const float *count,
		      const int16_t *node, size_t n, uint64_t time_ns)
{
	float gain, most;

	tierd_heat_advance(heat, time_ns);
	gain = heat_gain_at(heat, time_ns);
	most = HEAT_MAX * heat->gain;
	/* Before, too: a new page may find the table full, and what goes is counted by then. */
	heat->hist_valid = false;
	for (size_t i = 0; i < n && i < LOOKAHEAD; i++)
		__builtin_prefetch(first_slot(heat, page[i]), 1);
	for (size_t i = 0; i < n; i++) {
		if (n - i > LOOKAHEAD)
			__builtin_prefetch(first_slot(heat, page[i + LOOKAHEAD]), 1);
		if (counts(count[i]) && ~page[i] != 0)
			heat->ingested += add_sample(heat, page[i], count[i] * gain, most,
						     node == NULL ? -1 : node[i]);
		else
			heat->dropped_invalid += count[i] != 0.0F || ~page[i] == 0;
	}
	heat->hist_valid = false;
	return 0;
}
