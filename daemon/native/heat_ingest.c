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

/* In whose home a record's search begins: with huge folios about, in that of its 2 MiB. */
static inline uint64_t first_key(const struct tierd_heat *heat, uint64_t page, bool huge)
{
	return huge && filter_hit(heat, page) ? key_head(page) : page;
}

/* As table_probe. Most keys are in the line of their home, and a line is looked at at once. */
static inline struct slot *probe(const struct tierd_heat *heat, uint64_t key)
{
	const uint64_t home = home_of(heat, key), inverted = ~key;
	struct slot *slot = &heat->slots[home];

	_Static_assert(SLOTS_PER_LINE == 4, "all slots of a line are compared here");
	if (slot[0].inverted == inverted)
		return slot;
	if (slot[1].inverted == inverted)
		return slot + 1;
	if (slot[2].inverted == inverted)
		return slot + 2;
	if (slot[3].inverted == inverted)
		return slot + 3;
	return table_probe(heat, key);
}

/* A few of many: not to be in the way of the others. */
__attribute__((noinline)) static void tag_moved(struct tierd_heat *heat, const struct slot *slot)
{
	tag_slot(heat, slot);
}

/* Tags and counts of a used slot whose heat has changed, and its node from `old_node`, maybe. */
__attribute__((always_inline)) static inline void
retag(struct tierd_heat *heat, const struct slot *slot, float stored, uint8_t old_node)
{
	uint8_t *const tag = &heat->tags.warmth[slot - heat->slots];
	const uint8_t warmth = warmth_of(stored), old_warmth = *tag;

	if (slot->node != old_node) {
		tag_moved(heat, slot);
	} else if (warmth != old_warmth) {
		const unsigned int row = counted_at(old_node);

		*tag = warmth;
		if (row < COUNTED) {
			heat->warm[row][old_warmth]--;
			heat->warm[row][warmth]++;
		}
	}
}

/* False if there is no room for the page. */
__attribute__((always_inline)) static inline bool add_sample(struct tierd_heat *heat, uint64_t page,
							     float amount, float most, int16_t node,
							     bool huge)
{
	uint64_t key = first_key(heat, page, huge);
	struct slot *slot = probe(heat, key);
	uint8_t old_node;

	if (huge && key != page && !slot_huge(slot)) {
		/* The filter's guess was wrong: the page stands for itself. */
		slot = probe(heat, page);
		key = page;
	}
	if (!slot_used(slot)) {
		slot = table_insert_at(heat, slot, key);
		if (slot == NULL)
			return false;
	}
	if (huge && slot_huge(slot))
		amount *= 1.0F / (float)HUGE_PAGES;
	old_node = slot->node;
	amount += slot->heat;
	amount = amount < most ? amount : most;
	slot->heat = amount;
	met_on(heat, slot, node);
	retag(heat, slot, amount, old_node);
	return true;
}

/* `huge`: whether there are huge folios. None comes to be here. */
__attribute__((always_inline)) static inline void
add_samples(struct tierd_heat *heat, const uint64_t *page, const float *count, const int16_t *node,
	    size_t n, float gain, bool huge)
{
	const float most = HEAT_MAX * heat->gain;
	uint64_t added = 0;

	for (size_t i = 0; i < n && i < LOOKAHEAD; i++)
		__builtin_prefetch(&heat->slots[home_of(heat, first_key(heat, page[i], huge))], 1);
	for (size_t i = 0; i < n; i++) {
		if (n - i > LOOKAHEAD) {
			const uint64_t key = first_key(heat, page[i + LOOKAHEAD], huge);

			__builtin_prefetch(&heat->slots[home_of(heat, key)], 1);
		}
		if (!counts(count[i]) || ~page[i] == 0) {
			heat->dropped_invalid += count[i] != 0.0F || ~page[i] == 0;
			continue;
		}
		added += add_sample(heat, page[i], count[i] * gain, most,
				    node == NULL ? -1 : node[i], huge);
	}
	heat->ingested += added;
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
