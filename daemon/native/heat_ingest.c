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
static void met_on(struct tierd_heat *heat, struct slot *slot, int16_t node)
{
	if (node < 0 || node > TIERD_NODE_MAX || slot_huge(slot))
		return;
	if (slot_unplaced(heat, slot))
		slot->node = (uint8_t)node;
	if (slot->node == node)
		slot_set_epoch(heat, slot, epoch_now(heat));
}

static void add_sample(struct tierd_heat *heat, uint64_t key, uint64_t hash, bool is_head,
		       uint64_t page, float amount, int16_t node)
{
	struct slot *slot = table_find(heat, key, hash);

	if (is_head && (slot == NULL || !slot_huge(slot))) {
		/* The filter's guess was wrong: the page stands for itself. */
		if (key != page)
			slot = table_find(heat, page, hash_key(page));
		key = page;
	}
	if (slot == NULL) {
		slot = table_insert(heat, key, true);
		if (slot == NULL)
			return;
	}
	if (slot_huge(slot))
		amount *= 1.0F / (float)HUGE_PAGES;
	slot->heat += amount;
	if (slot->heat > HEAT_MAX * heat->gain)
		slot->heat = HEAT_MAX * heat->gain;
	met_on(heat, slot, node);
	tag_slot(heat, slot);
	heat->ingested++;
}

int tierd_heat_ingest(struct tierd_heat *heat, const uint64_t *page, const float *count,
		      const int16_t *node, size_t n, uint64_t time_ns)
{
	struct {
		uint64_t key;
		uint64_t hash;
		bool is_head;
	} ring[RING];
	float gain;

	tierd_heat_advance(heat, time_ns);
	gain = heat_gain_at(heat, time_ns);
	heat->hist_valid = false;
	for (size_t i = 0; i < n + LOOKAHEAD; i++) {
		if (i < n) {
			uint64_t key = page[i];
			bool is_head = heat->huge != 0 && filter_hit(heat, key);

			if (is_head)
				key = key_head(key);
			ring[i % RING].key = key;
			ring[i % RING].is_head = is_head;
			ring[i % RING].hash = hash_key(key);
			__builtin_prefetch(&heat->slots[home_slot(heat, ring[i % RING].hash)], 1);
		}
		if (i >= LOOKAHEAD) {
			size_t j = i - LOOKAHEAD;

			if (!(count[j] > 0.0F) || count[j] > HEAT_MAX || ~page[j] == 0) {
				heat->dropped_invalid += count[j] != 0.0F || ~page[j] == 0;
				continue;
			}
			add_sample(heat, ring[j % RING].key, ring[j % RING].hash,
				   ring[j % RING].is_head, page[j], count[j] * gain,
				   node == NULL ? -1 : node[j]);
		}
	}
	heat->hist_valid = false;
	return 0;
}
