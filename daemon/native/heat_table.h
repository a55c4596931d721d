/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hash table under heat: open addressing, 16-byte slots, four to a cache line.
 *
 * A page's probe sequence starts at the first slot of the line that its hash names,
 * so that most searches touch one line. The table has any number of lines
 * (multiply-shift in place of a power of two) and grows up to its bound: to twice as many
 * while it is small, then by a fifth at a time, so that it stays between two thirds and four
 * fifths full.
 */
#ifndef TIERD_HEAT_TABLE_H
#define TIERD_HEAT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "pagekey.h"
#include "tierd_native.h"

/* Inverted keys make an all-zero slot empty; the key of all ones is refused. */
struct slot {
	uint64_t inverted;
	float heat;
	uint16_t moved;
	uint8_t node;
	uint8_t flags;
};

_Static_assert(sizeof(struct slot) == 16, "a slot is a quarter of a cache line");

enum {
	SLOTS_PER_LINE = 4,
	FLAG_HUGE = 0x80,
	/* No query of a node's pages finds it. */
	FLAG_HELD = 0x40,
	EPOCH_MASK = 0x07,
	EPOCHS = 7,
	/* A move more ticks ago than this (68 min) counts as never. */
	TICKS_REMEMBERED = 1 << 15,
	/* Node number of a free slot, or of one that is held; no node has it. */
	NO_TAG = TIERD_NODE_UNPLACED,
	TAGS_AT_ONCE = 64,
	/* Of the bits of a float; the least value that differs from 0 is 2^-30. */
	WARMTH_SHIFT = 22,
	WARMTH_BASE = (127 - 30) << 1,
	WARMTHS = 256,
	/* Of the unknown node, and of the first sixteen, slots are counted by warmth. */
	COUNTED = 17,
	/* Slots are counted by so many last bits of their target. */
	TARGETS = 1 << 13,
	/* The unit in which a slot remembers its last move: 1/8 s. */
	TICK_NS = 125000000,
};

/*
 * What a scan compares, a byte a slot, so that many are compared at once. In a free slot both are
 * what no question is about. `warmth` rises with the stored heat.
 */
struct tags {
	uint8_t *node;
	uint8_t *warmth;
};

struct tierd_heat {
	struct slot *slots;
	struct tags tags;
	/* Slots by the place of their node (`counted_at`) and warmth: what a pass need not find. */
	uint32_t warm[COUNTED][WARMTHS];
	uint64_t lines;
	uint64_t max_lines;
	uint64_t grow_at;
	size_t table_bytes;

	/* One bit per hashed 2 MiB block that may hold a huge folio. */
	uint64_t *filter;
	uint64_t filter_bits;
	uint64_t filter_stale;

	/* Forward decay: a stored heat is the true one times 2^((now - origin) / half life). */
	bool started;
	uint64_t origin_ns;
	uint64_t now_ns;
	uint64_t born_ns;
	double half_life_ns;
	/* Half-lives by which heat had decayed, or was faded, up to the origin. */
	double aged;
	float gain;
	float inverse_gain;

	uint64_t refresh_ns;
	/* Of slots that were confirmed now, and in the refresh before: 1 to EPOCHS. */
	uint8_t epoch_now;
	uint8_t epoch_before;
	/* Used slots by the epoch in their flags, and by the last bits of their target. */
	uint64_t of_epoch[EPOCH_MASK + 1];
	uint32_t of_target[TARGETS];
	uint64_t maintained_ns;

	/* Nodes whose pages are evicted last, of the latest tierd_heat_place. */
	bool keep_node[256];
	/* Nothing more can be evicted in this tierd_heat_place; each try would scan all slots. */
	bool nothing_to_evict;
	/* The slot where the next sweep for cold ones begins. */
	uint64_t hand;
	struct tierd_heat_stats stats;
};

static inline uint64_t scale(uint64_t hash, uint64_t buckets)
{
	return (uint64_t)(((unsigned __int128)hash * buckets) >> 64);
}

static inline uint64_t slot_count(const struct tierd_heat *heat)
{
	return heat->lines * SLOTS_PER_LINE;
}

/* Where the search for a key begins. */
static inline uint64_t home_of(const struct tierd_heat *heat, uint64_t key)
{
	return scale(hash_key(key), heat->lines) * SLOTS_PER_LINE;
}

static inline bool slot_used(const struct slot *slot)
{
	return slot->inverted != 0;
}

static inline uint64_t slot_key(const struct slot *slot)
{
	return ~slot->inverted;
}

static inline bool slot_huge(const struct slot *slot)
{
	return (slot->flags & FLAG_HUGE) != 0;
}

/* Exponent and first bit of a stored heat, 0 or more; what is beyond shares the last step. */
static inline uint8_t warmth_of(float stored)
{
	uint32_t bits;
	int step;

	memcpy(&bits, &stored, sizeof(bits));
	step = (int)(bits >> WARMTH_SHIFT) - (WARMTH_BASE - 1);
	if (step < 1)
		return stored > 0.0F;
	return step < UINT8_MAX ? (uint8_t)step : UINT8_MAX;
}

/* Row of a node in `warm`, or beyond its last. */
static inline unsigned int counted_at(uint8_t node)
{
	return (uint8_t)(node + 1);
}

/* How many slots there are of a target, and of those that share its count. */
static inline uint32_t *count_of(struct tierd_heat *heat, uint32_t target)
{
	return &heat->of_target[target % TARGETS];
}

/* Call it after a slot was added, removed or moved, or its node, heat or FLAG_HELD changed. */
static inline void tag_slot(struct tierd_heat *heat, const struct slot *slot)
{
	const uint64_t at = (uint64_t)(slot - heat->slots);
	const bool seen = slot->inverted != 0 && (slot->flags & FLAG_HELD) == 0;
	const uint8_t node = seen ? slot->node : NO_TAG;
	const uint8_t warmth = warmth_of(slot->heat);
	const uint8_t old_node = heat->tags.node[at], old_warmth = heat->tags.warmth[at];

	if (node == old_node && warmth == old_warmth)
		return;
	if (counted_at(old_node) < COUNTED)
		heat->warm[counted_at(old_node)][old_warmth]--;
	if (counted_at(node) < COUNTED)
		heat->warm[counted_at(node)][warmth]++;
	heat->tags.node[at] = node;
	heat->tags.warmth[at] = warmth;
}

static inline void set_epoch(struct tierd_heat *heat, uint64_t serial)
{
	heat->epoch_now = (uint8_t)(serial % EPOCHS + 1);
	heat->epoch_before = (uint8_t)((serial + EPOCHS - 1) % EPOCHS + 1);
}

/* When a slot's node was confirmed; 0: it is not known, or long ago. */
static inline void slot_set_epoch(struct tierd_heat *heat, struct slot *slot, uint8_t epoch)
{
	heat->of_epoch[slot->flags & EPOCH_MASK]--;
	heat->of_epoch[epoch]++;
	slot->flags = (uint8_t)((slot->flags & ~EPOCH_MASK) | epoch);
}

/* Node unknown (of no epoch then), or not confirmed since the refresh before this one began. */
static inline bool slot_unplaced(const struct tierd_heat *heat, const struct slot *slot)
{
	const uint8_t epoch = slot->flags & EPOCH_MASK;

	return epoch != heat->epoch_now && epoch != heat->epoch_before;
}

static inline uint64_t filter_bit(const struct tierd_heat *heat, uint64_t key)
{
	return scale(hash_key(key >> HUGE_ORDER), heat->filter_bits);
}

/* Whether the 2 MiB block of `key` may be tracked as one folio. */
static inline bool filter_hit(const struct tierd_heat *heat, uint64_t key)
{
	uint64_t bit = filter_bit(heat, key);

	return (heat->filter[bit / 64] >> (bit % 64)) & 1;
}

/* The present time in ticks; never 0, which means that a page was never moved. */
static inline uint16_t moved_tick(const struct tierd_heat *heat)
{
	uint16_t tick = (uint16_t)((heat->now_ns - heat->born_ns) / TICK_NS + 1);

	return tick == 0 ? 1 : tick;
}

/* What a true heat of this time is stored times. */
float heat_gain_at(const struct tierd_heat *heat, uint64_t time_ns);

static inline uint64_t next_slot(uint64_t index, uint64_t count)
{
	return index + 1 == count ? 0 : index + 1;
}

/* The slot of a key, or the free one where its search ends. */
static inline struct slot *table_probe(const struct tierd_heat *heat, uint64_t key)
{
	const uint64_t home = home_of(heat, key);
	const uint64_t inverted = ~key;
	struct slot *slot = &heat->slots[home];

	if (slot->inverted == inverted)
		return slot;
	for (uint64_t i = home; slot_used(slot) && slot->inverted != inverted;) {
		i = next_slot(i, slot_count(heat));
		slot = &heat->slots[i];
	}
	return slot;
}

/* A key's slot, NULL if there is none. */
static inline struct slot *table_find(const struct tierd_heat *heat, uint64_t key)
{
	struct slot *slot = table_probe(heat, key);

	return slot_used(slot) ? slot : NULL;
}

/* The slot of the folio that a page is in, or NULL. */
static inline struct slot *table_folio(const struct tierd_heat *heat, uint64_t page)
{
	if (heat->stats.huge != 0 && filter_hit(heat, page)) {
		struct slot *slot = table_find(heat, key_head(page));

		if (slot != NULL && slot_huge(slot))
			return slot;
	}
	return table_find(heat, page);
}

/*
 * A new, zeroed slot for a key that is not there; NULL if the table is full.
 * `may_evict_kept`: whether cold pages on the kept nodes may give way as well.
 * Other slots may move.
 */
struct slot *table_insert(struct tierd_heat *heat, uint64_t key, bool may_evict_kept);
/* Take a slot out; later slots move back, so the same index may be used again. */
void table_remove(struct tierd_heat *heat, struct slot *slot);
void table_set_huge(struct tierd_heat *heat, struct slot *slot);
void table_clear_huge(struct tierd_heat *heat, struct slot *slot);
void table_rebuild_filter(struct tierd_heat *heat);
/* Slots whose node is one of the kept, as far as they are counted. */
uint64_t table_kept(const struct tierd_heat *heat);

/* Slots of which slot_unplaced is true. */
static inline uint64_t table_unplaced(const struct tierd_heat *heat)
{
	return heat->stats.tracked - heat->of_epoch[heat->epoch_now] -
	       heat->of_epoch[heat->epoch_before];
}

#endif
