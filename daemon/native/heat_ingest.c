/* SPDX-License-Identifier: Apache-2.0 */
/* Samples to heat. */
#include "heat_table.h"

enum { LOOKAHEAD = 24, RING = 32 };

/* With a gain of at most 2^60, stored heats stay well below what a float can hold. */
static const float HEAT_MAX = 0x1p60F;

/*
 * A source has met a page on `node`. What is known otherwise is not changed by that: pages that
 * were moved since are known, and what a source tells was so when it looked.
 */
static inline void met_on(struct tierd_heat *heat, struct slot *slot, int16_t node)
{
	if ((uint16_t)node > TIERD_NODE_MAX || slot_huge(slot))
		return;
	if (slot_unplaced(heat, slot))
		slot->node = (uint8_t)node;
	if (slot->node == node && (slot->flags & EPOCH_MASK) != heat->epoch_now)
		slot_set_epoch(heat, slot, heat->epoch_now);
}

/* Where a record's search begins; with huge folios about, in the 2 MiB of which one may be. */
struct coming {
	uint64_t key;
	uint64_t home;
	bool is_head;
};

static inline struct coming look_ahead(const struct tierd_heat *heat, uint64_t page, bool huge)
{
	struct coming coming = {.key = page};

	if (huge && filter_hit(heat, page)) {
		coming.is_head = true;
		coming.key = key_head(page);
	}
	coming.home = home_slot(heat, hash_key(coming.key));
	__builtin_prefetch(&heat->slots[coming.home], 1);
	return coming;
}

__attribute__((always_inline)) static inline void add_sample(struct tierd_heat *heat,
							     const struct coming *coming,
							     uint64_t page, float amount,
							     int16_t node, bool huge)
{
	uint64_t key = huge ? coming->key : page;
	struct slot before;
	struct slot *slot = table_probe(heat, key, coming->home);

	if (huge && coming->is_head && !slot_huge(slot)) {
		/* The filter's guess was wrong: the page stands for itself. */
		if (key != page)
			slot = table_probe(heat, page, home_slot(heat, hash_key(page)));
		key = page;
	}
	if (!slot_used(slot)) {
		slot = table_insert_at(heat, slot, key);
		if (slot == NULL)
			return;
	}
	if (huge && slot_huge(slot))
		amount *= 1.0F / (float)HUGE_PAGES;
	before = *slot;
	slot->heat += amount;
	if (slot->heat > HEAT_MAX * heat->gain)
		slot->heat = HEAT_MAX * heat->gain;
	met_on(heat, slot, node);
	if (before.node != slot->node || !same_warmth(before.heat, slot->heat))
		tag_slot(heat, slot);
	heat->ingested++;
}

/* `huge`: whether there are huge folios. None comes to be here. */
__attribute__((always_inline)) static inline void
add_samples(struct tierd_heat *heat, const uint64_t *page, const float *count, const int16_t *node,
	    size_t n, float gain, bool huge)
{
	struct coming ring[RING];
	uint64_t lines = heat->lines;

	for (size_t i = 0; i < n && i < LOOKAHEAD; i++)
		ring[i] = look_ahead(heat, page[i], huge);
	for (size_t i = 0; i < n; i++) {
		if (n - i > LOOKAHEAD)
			ring[(i + LOOKAHEAD) % RING] = look_ahead(heat, page[i + LOOKAHEAD], huge);
		if (!(count[i] > 0.0F) || count[i] > HEAT_MAX || ~page[i] == 0) {
			heat->dropped_invalid += count[i] != 0.0F || ~page[i] == 0;
			continue;
		}
		if (heat->lines != lines) {
			/* The table has grown: homes lie elsewhere. */
			lines = heat->lines;
			for (size_t j = i; j < n && j <= i + LOOKAHEAD; j++)
				ring[j % RING] = look_ahead(heat, page[j], huge);
		}
		add_sample(heat, &ring[i % RING], page[i], count[i] * gain,
			   node == NULL ? -1 : node[i], huge);
	}
}

int tierd_heat_ingest(struct tierd_heat *heat, const uint64_t *page, const float *count,
		      const int16_t *node, size_t n, uint64_t time_ns)
{
	float gain;

	tierd_heat_advance(heat, time_ns);
	gain = heat_gain_at(heat, time_ns);
	/* Before, too: a new page may find the table full, and what goes is counted by then. */
	heat->hist_valid = false;
	if (heat->huge != 0)
		add_samples(heat, page, count, node, n, gain, true);
	else
		add_samples(heat, page, count, node, n, gain, false);
	heat->hist_valid = false;
	return 0;
}
