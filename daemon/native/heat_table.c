/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "heat_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
	FIRST_LINES = 4096,
	/* Of 4 MiB: what a table with fewer may have too many costs less than to grow often. */
	SMALL_LINES = 1 << 16,
	FILTER_BITS_PER_SLOT = 2,
	/* Of the bits of a float: what eviction tells apart. */
	BIN_SHIFT = 20,
	BINS = 1 << (31 - BIN_SHIFT),
	/* Of the old table, so much is given back at a time while a larger one fills. */
	GIVE_BACK_BYTES = 1 << 21,
	/* Of the coldest sixteenth, so many give way at a time: a tick does not wait for all. */
	SWEPT_AT_ONCE = 4096,
};

/* Four fifths of the slots, or the bound if that comes first. */
static uint64_t grow_threshold(const struct tierd_heat *heat, uint64_t lines)
{
	uint64_t at = lines * SLOTS_PER_LINE / 5 * 4;

	return lines >= heat->max_lines || at > heat->stats.capacity ? heat->stats.capacity : at;
}

/* False without memory for it. */
static bool set_lines(struct tierd_heat *heat, uint64_t lines)
{
	const size_t slots = lines * SLOTS_PER_LINE;
	/* Passes read tags beyond the last slot. */
	const size_t tags = (slots + TAGS_AT_ONCE - 1) / TAGS_AT_ONCE * TAGS_AT_ONCE;
	const size_t words = (slots * FILTER_BITS_PER_SLOT + 63) / 64;
	const size_t bytes =
	    slots * sizeof(*heat->slots) + 2 * tags + words * sizeof(*heat->filter);
	uint8_t *memory =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return false;
	/* In 2 MiB pages where the kernel has them: probes are random. */
	if (bytes >= HUGE_BYTES)
		(void)madvise(memory, bytes, MADV_HUGEPAGE);
	heat->slots = (struct slot *)(void *)memory;
	heat->tags.node = memory + slots * sizeof(*heat->slots);
	heat->tags.warmth = heat->tags.node + tags;
	heat->filter = (uint64_t *)(void *)(heat->tags.warmth + tags);
	memset(heat->tags.node, NO_TAG, tags);
	heat->filter_bits = words * 64;
	heat->lines = lines;
	heat->table_bytes = bytes;
	heat->stats.memory_bytes = bytes + sizeof(*heat);
	heat->grow_at = grow_threshold(heat, lines);
	return true;
}

int tierd_heat_new(uint64_t capacity, double half_life_s, double refresh_s, struct tierd_heat **out)
{
	const uint64_t slots = capacity + capacity / 4 + SLOTS_PER_LINE;
	struct tierd_heat *heat;

	if (capacity == 0 || capacity > UINT32_MAX / 2 || !(half_life_s > 0.0) ||
	    !(refresh_s >= 1e-3) || refresh_s > 1e6)
		return -EINVAL;
	heat = calloc(1, sizeof(*heat));
	if (heat == NULL)
		return -ENOMEM;
	heat->stats.capacity = capacity;
	heat->max_lines = (slots + SLOTS_PER_LINE - 1) / SLOTS_PER_LINE;
	if (!set_lines(heat, heat->max_lines < FIRST_LINES ? heat->max_lines : FIRST_LINES)) {
		free(heat);
		return -ENOMEM;
	}
	heat->half_life_ns = half_life_s * 1e9;
	heat->refresh_ns = (uint64_t)(refresh_s * 1e9);
	heat->gain = heat->inverse_gain = 1.0F;
	set_epoch(heat, 0);
	*out = heat;
	return 0;
}

void tierd_heat_free(struct tierd_heat *heat)
{
	munmap(heat->slots, heat->table_bytes);
	free(heat);
}

static bool grow(struct tierd_heat *heat)
{
	struct slot *old = heat->slots;
	const struct tags old_tags = heat->tags;
	const uint64_t old_lines = heat->lines;
	const size_t old_bytes = heat->table_bytes;
	const uint64_t slots_at_once = GIVE_BACK_BYTES / sizeof(*old);
	size_t given_back = 0;
	uint64_t lines = old_lines < SMALL_LINES ? 2 * old_lines : old_lines + old_lines / 5 + 1;

	if (lines > heat->max_lines)
		lines = heat->max_lines;
	if (!set_lines(heat, lines))
		return false;
	heat->stats.passed += old_lines * SLOTS_PER_LINE;
	/*
	 * Slots lie in the order of their hashes in both tables: reads and writes stream. What was
	 * read is given back at once, so that both together take hardly more than the new one.
	 */
	for (uint64_t i = 0; i < old_lines * SLOTS_PER_LINE; i++) {
		struct slot *slot;

		if (i % slots_at_once == 0 && i > 0 &&
		    munmap((uint8_t *)old + given_back, GIVE_BACK_BYTES) == 0)
			given_back += GIVE_BACK_BYTES;
		if (!slot_used(&old[i]))
			continue;
		slot = table_probe(heat, slot_key(&old[i]));
		*slot = old[i];
		/* As many of each node and warmth as before. */
		heat->tags.node[slot - heat->slots] = old_tags.node[i];
		heat->tags.warmth[slot - heat->slots] = old_tags.warmth[i];
	}
	munmap((uint8_t *)old + given_back, old_bytes - given_back);
	table_rebuild_filter(heat);
	return true;
}

/* Whether a slot is used, and its node is one of the kept. */
static bool is_of(const struct tierd_heat *heat, const struct slot *slot, bool kept)
{
	return slot_used(slot) && heat->keep_node[slot->node] == kept;
}

/* Exponent of stored heat and three bits of its mantissa. */
static unsigned int bin_of(float stored)
{
	uint32_t bits;

	memcpy(&bits, &stored, sizeof(bits));
	return bits >> BIN_SHIFT;
}

/*
 * Remove up to `wanted` of the coldest slots whose node is kept, or is not. Where not all of
 * the last bin go, every nth does: taken from one end, they would leave the other so full that
 * probes there become searches.
 */
static uint64_t evict_group(struct tierd_heat *heat, bool kept, uint64_t wanted)
{
	uint64_t in_bin[BINS] = {0}, gone = 0, before = 0, from_edge, due = 0;
	unsigned int edge = 0;

	heat->stats.passed += 2 * slot_count(heat);
	for (uint64_t i = 0; i < slot_count(heat); i++)
		in_bin[bin_of(heat->slots[i].heat)] += is_of(heat, &heat->slots[i], kept);
	while (edge < BINS - 1 && before + in_bin[edge] < wanted)
		before += in_bin[edge++];
	from_edge = wanted - before;
	for (uint64_t i = 0; i < slot_count(heat);) {
		struct slot *slot = &heat->slots[i];
		const unsigned int bin = bin_of(slot->heat);

		if (!is_of(heat, slot, kept) || bin > edge ||
		    (bin == edge && (due += from_edge) < in_bin[edge])) {
			i++;
			continue;
		}
		if (bin == edge)
			due -= in_bin[edge];
		/* The slot that moves here is checked next. */
		table_remove(heat, slot);
		gone++;
	}
	heat->stats.evicted += gone;
	return gone;
}

/* Slots of nodes that are kept, or are not, by warmth; returns their number. */
static uint64_t count_group(const struct tierd_heat *heat, bool kept, uint64_t of_warmth[WARMTHS])
{
	uint64_t sum = 0;

	memset(of_warmth, 0, WARMTHS * sizeof(*of_warmth));
	for (unsigned int row = 0; row < COUNTED; row++) {
		if (heat->keep_node[(uint8_t)(row - 1)] != kept)
			continue;
		for (unsigned int warmth = 0; warmth < WARMTHS; warmth++) {
			of_warmth[warmth] += heat->warm[row][warmth];
			sum += heat->warm[row][warmth];
		}
	}
	return sum;
}

uint64_t table_kept(const struct tierd_heat *heat)
{
	uint64_t of_warmth[WARMTHS];

	return count_group(heat, true, of_warmth);
}

/*
 * Remove some of the coldest sixteenth, which slots are counted well enough to know. The sweep goes
 * on where the last one ended. Of the last warmth every nth goes, for the reason that evict_group
 * has. Returns how many are gone; 0 where the coldest are not known, or all go at once.
 */
static uint64_t sweep(struct tierd_heat *heat, bool may_evict_kept)
{
	const uint64_t wanted = heat->stats.capacity / 16 + 1, count = slot_count(heat);
	uint64_t of_warmth[WARMTHS], before = 0, from_edge, due = 0, gone = 0, seen;
	unsigned int edge = 0;
	bool kept = false;

	if (wanted <= SWEPT_AT_ONCE)
		return 0;
	if (count_group(heat, false, of_warmth) < wanted) {
		kept = true;
		if (!may_evict_kept || count_group(heat, true, of_warmth) < wanted)
			return 0;
	}
	while (before + of_warmth[edge] < wanted)
		before += of_warmth[edge++];
	from_edge = wanted - before;
	for (seen = 0; seen < count && gone < SWEPT_AT_ONCE; seen++) {
		const uint64_t at = heat->hand < count ? heat->hand : 0;
		const uint8_t node = heat->tags.node[at], warmth = heat->tags.warmth[at];

		heat->hand = at + 1;
		if (node == NO_TAG || heat->keep_node[node] != kept || warmth > edge ||
		    (warmth == edge && (due += from_edge) < of_warmth[edge]))
			continue;
		if (warmth == edge)
			due -= of_warmth[edge];
		/* The slot that moves here is seen next. */
		table_remove(heat, &heat->slots[at]);
		heat->hand = at;
		gone++;
	}
	heat->stats.evicted += gone;
	heat->stats.compared += seen;
	return gone;
}

/* False where less than a sixteenth of the table could go. */
static bool evict(struct tierd_heat *heat, bool may_evict_kept)
{
	const uint64_t wanted = heat->stats.capacity / 16 + 1;
	uint64_t gone;

	if (sweep(heat, may_evict_kept) > 0)
		return true;
	gone = evict_group(heat, false, wanted);

	if (may_evict_kept && gone < wanted)
		gone += evict_group(heat, true, wanted - gone);
	return gone >= wanted;
}

struct slot *table_insert(struct tierd_heat *heat, uint64_t key, bool may_evict_kept)
{
	struct slot *slot;

	if (heat->stats.tracked >= heat->grow_at && heat->grow_at < heat->stats.capacity) {
		/* Without memory for more, what is there now is the bound. */
		if (!grow(heat))
			heat->stats.capacity = heat->grow_at;
	}
	if (heat->stats.tracked >= heat->stats.capacity) {
		if (may_evict_kept || !heat->nothing_to_evict)
			heat->nothing_to_evict = !evict(heat, may_evict_kept);
		if (heat->stats.tracked >= heat->stats.capacity) {
			heat->stats.dropped_full++;
			return NULL;
		}
	}
	slot = table_probe(heat, key);
	*slot = (struct slot){.inverted = ~key, .node = TIERD_NODE_UNKNOWN};
	tag_slot(heat, slot);
	heat->stats.tracked++;
	heat->of_epoch[0]++;
	++*count_of(heat, key_target(key));
	return slot;
}

void table_remove(struct tierd_heat *heat, struct slot *slot)
{
	const uint64_t count = slot_count(heat);
	uint64_t hole = (uint64_t)(slot - heat->slots);

	if (slot_huge(slot))
		table_clear_huge(heat, slot);
	heat->of_epoch[slot->flags & EPOCH_MASK]--;
	--*count_of(heat, key_target(slot_key(slot)));
	/* Backward shift: a later slot fills the hole unless its home lies after the hole. */
	for (uint64_t i = next_slot(hole, count); slot_used(&heat->slots[i]);
	     i = next_slot(i, count)) {
		uint64_t home = home_of(heat, slot_key(&heat->slots[i]));
		bool home_after_hole =
		    hole <= i ? hole < home && home <= i : hole < home || home <= i;

		if (!home_after_hole) {
			heat->slots[hole] = heat->slots[i];
			tag_slot(heat, &heat->slots[hole]);
			hole = i;
		}
	}
	heat->slots[hole] = (struct slot){0};
	tag_slot(heat, &heat->slots[hole]);
	heat->stats.tracked--;
}

static void filter_set(struct tierd_heat *heat, const struct slot *slot)
{
	uint64_t bit = filter_bit(heat, slot_key(slot));

	heat->filter[bit / 64] |= UINT64_C(1) << (bit % 64);
}

void table_set_huge(struct tierd_heat *heat, struct slot *slot)
{
	slot->flags |= FLAG_HUGE;
	filter_set(heat, slot);
	heat->stats.huge++;
}

void table_clear_huge(struct tierd_heat *heat, struct slot *slot)
{
	slot->flags &= (uint8_t)~FLAG_HUGE;
	heat->stats.huge--;
	/* The bit stays until a rebuild, because another folio may share it. */
	heat->filter_stale++;
}

void table_rebuild_filter(struct tierd_heat *heat)
{
	memset(heat->filter, 0, heat->filter_bits / 8);
	heat->filter_stale = 0;
	if (heat->stats.huge == 0)
		return;
	for (uint64_t i = 0; i < slot_count(heat); i++)
		if (slot_used(&heat->slots[i]) && slot_huge(&heat->slots[i]))
			filter_set(heat, &heat->slots[i]);
}
