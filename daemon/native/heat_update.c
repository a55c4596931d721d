/* SPDX-License-Identifier: Apache-2.0 */
/* What changes the table: samples, placement, moves, and removal of pages. */
#include "heat_table.h"

enum {
	LOOKAHEAD = 24,
	/* Slots that a pass has seen in the time of a search for a key. */
	PASS_OF_A_SEARCH = 16,
};

/* With a gain of at most 2^60, stored heats stay well below what a float can hold. */
static const float HEAT_MAX = 0x1p60F;

/* Of a folio of less heat, no pages are made when it is split. */
static const float SPLIT_MIN = 0x1p-14F;

static void set_place(struct tierd_heat *heat, struct slot *slot, uint8_t node)
{
	slot->node = node;
	slot_set_epoch(heat, slot, node <= TIERD_NODE_MAX ? heat->epoch_now : 0);
	tag_slot(heat, slot);
}

static uint8_t node_or_unknown(int16_t node)
{
	return node >= 0 && node <= TIERD_NODE_MAX ? (uint8_t)node : TIERD_NODE_UNKNOWN;
}

/* A block that was one folio is 4 KiB pages now: each inherits its heat and history. */
static void split_folio(struct tierd_heat *heat, struct slot *slot)
{
	const uint64_t head = slot_key(slot);
	struct slot parent;

	table_clear_huge(heat, slot);
	heat->stats.split++;
	parent = *slot;
	if (parent.heat * heat->inverse_gain < SPLIT_MIN && !heat->keep_node[parent.node])
		return;
	for (uint64_t i = 1; i < HUGE_PAGES; i++) {
		uint64_t key = head + i;

		slot = table_find(heat, key);
		if (slot == NULL)
			slot = table_insert(heat, key, false);
		if (slot == NULL)
			return;
		slot->heat += parent.heat;
		slot->moved = parent.moved;
		slot->node = parent.node;
		slot_set_epoch(heat, slot, parent.flags & EPOCH_MASK);
		tag_slot(heat, slot);
	}
}

/* 4 KiB pages of a block that turns out to be one folio become its one entry. */
static void place_huge(struct tierd_heat *heat, uint64_t head, uint8_t node, bool insert)
{
	struct slot *slot = table_find(heat, head);
	uint16_t moved = 0;
	float sum = 0.0F;
	bool found = false;

	if (slot != NULL && slot_huge(slot)) {
		set_place(heat, slot, node);
		return;
	}
	for (uint64_t i = 1; i < HUGE_PAGES; i++)
		__builtin_prefetch(&heat->slots[home_of(heat, head + i)]);
	for (uint64_t i = 0; i < HUGE_PAGES; i++) {
		slot = table_find(heat, head + i);
		if (slot == NULL)
			continue;
		found = true;
		sum += slot->heat;
		if (slot->moved != 0 &&
		    (moved == 0 || (uint16_t)(slot->moved - moved) < TICKS_REMEMBERED))
			moved = slot->moved;
		table_remove(heat, slot);
	}
	if (!found && !insert)
		return;
	slot = table_insert(heat, head, found);
	if (slot == NULL)
		return;
	heat->stats.folded += found;
	slot->heat = sum * (1.0F / (float)HUGE_PAGES);
	slot->moved = moved;
	table_set_huge(heat, slot);
	set_place(heat, slot, node);
}

static void place_page(struct tierd_heat *heat, uint64_t key, uint8_t node, bool insert)
{
	struct slot *slot = table_folio(heat, key);

	if (slot != NULL && slot_huge(slot)) {
		split_folio(heat, slot);
		slot = table_find(heat, key);
	}
	if (slot == NULL && insert)
		slot = table_insert(heat, key, false);
	if (slot != NULL)
		set_place(heat, slot, node);
}

static void place(struct tierd_heat *heat, uint64_t page, uint8_t node, uint8_t order, bool insert)
{
	if (order >= HUGE_ORDER)
		place_huge(heat, key_head(page), node, insert);
	else
		place_page(heat, page, node, insert);
}

/* Have the cache get what a sample of a page will read and write. */
static inline void fetch(const struct tierd_heat *heat, uint64_t page)
{
	const bool huge = heat->stats.huge != 0 && filter_hit(heat, page);
	const uint64_t at = home_of(heat, huge ? key_head(page) : page);

	__builtin_prefetch(&heat->slots[at], 1);
	__builtin_prefetch(&heat->tags.node[at], 1);
	__builtin_prefetch(&heat->tags.warmth[at], 1);
}

void tierd_heat_place(struct tierd_heat *heat, const uint64_t *page, const int16_t *node,
		      const uint8_t *order, size_t n, const uint8_t *insert_on)
{
	/* Who tracks no cold pages says nothing of what is evicted last. */
	if (memchr(insert_on, 1, TIERD_NODE_MAX + 1) != NULL)
		for (int i = 0; i < 256; i++)
			heat->keep_node[i] = i <= TIERD_NODE_MAX && insert_on[i] != 0;
	/* An eighth of a table stays for others: those that are to be promoted are among them. */
	heat->nothing_to_evict =
	    table_kept(heat) >= heat->stats.capacity - heat->stats.capacity / 8;
	for (size_t i = 0; i < n; i++) {
		uint64_t key = order[i] >= HUGE_ORDER ? key_head(page[i]) : page[i];
		uint8_t on = node_or_unknown(node[i]);

		if (i + LOOKAHEAD < n)
			fetch(heat, page[i + LOOKAHEAD]);
		if (~key == 0) {
			heat->stats.dropped_invalid++;
			continue;
		}
		if (node[i] < -1) {
			struct slot *slot = table_find(heat, key);

			if (slot != NULL)
				table_remove(heat, slot);
			continue;
		}
		place(heat, key, on, order[i], on <= TIERD_NODE_MAX && insert_on[on] != 0);
	}
}

/*
 * A page that moved before any heat of it came in. It is tracked from now on, because a source's
 * next report may be older than the move, and would set the former node again.
 */
static struct slot *meet_moved(struct tierd_heat *heat, uint64_t page, int16_t node, uint8_t order)
{
	uint64_t key = order >= HUGE_ORDER ? key_head(page) : page;

	if (~key == 0)
		return NULL;
	place(heat, key, node_or_unknown(node), order, true);
	return table_find(heat, key);
}

void tierd_heat_moved(struct tierd_heat *heat, const uint64_t *page, const uint8_t *fate,
		      const int16_t *node, const uint8_t *order, size_t n)
{
	heat->nothing_to_evict = false;
	for (size_t i = 0; i < n; i++) {
		struct slot *slot;

		if (fate[i] == TIERD_JOINED) {
			place_huge(heat, key_head(page[i]), node_or_unknown(node[i]), false);
			continue;
		}
		slot = table_find(heat, page[i]);
		if (slot == NULL && fate[i] == TIERD_MOVED)
			slot = meet_moved(heat, page[i], node[i], order[i]);
		if (slot == NULL || fate[i] == TIERD_NOT_TRIED)
			continue;
		if (fate[i] == TIERD_GONE) {
			table_remove(heat, slot);
			continue;
		}
		if (node[i] >= 0 && node[i] <= TIERD_NODE_MAX)
			set_place(heat, slot, (uint8_t)node[i]);
		if (fate[i] == TIERD_MOVED)
			slot->moved = moved_tick(heat);
	}
}

void tierd_heat_keep(struct tierd_heat *heat, uint32_t target, const struct tierd_span *span,
		     size_t n)
{
	for (uint64_t i = 0; i < slot_count(heat) && *count_of(heat, target) > 0;) {
		struct slot *slot = &heat->slots[i];
		const uint64_t key = slot_key(slot);
		bool keeps = !slot_used(slot) || key_target(key) != target;

		if (!keeps) {
			const size_t at = span_at(span, n, key_vpn(key));

			keeps = at < n && span[at].start <= key_vpn(key);
		}
		heat->stats.passed++;
		/* The slot that moves into the place of a removed one is checked next. */
		if (keeps)
			i++;
		else
			table_remove(heat, slot);
	}
}

static void set_held(struct tierd_heat *heat, struct slot *slot, bool held)
{
	slot->flags = (uint8_t)(held ? slot->flags | FLAG_HELD : slot->flags & ~FLAG_HELD);
	tag_slot(heat, slot);
}

void tierd_heat_hold(struct tierd_heat *heat, const struct tierd_span *span, size_t n, int held)
{
	uint64_t pages = 0, rest;

	for (size_t i = 0; i < n; i++)
		pages += span[i].end - span[i].start;
	/* Few pages are found by their keys. */
	rest = pages < slot_count(heat) / PASS_OF_A_SEARCH ? 0 : slot_count(heat);
	for (size_t i = 0; rest == 0 && i < n; i++) {
		for (uint64_t page = span[i].start; page < span[i].end; page++) {
			struct slot *slot = table_find(heat, page);

			if (slot != NULL)
				set_held(heat, slot, held != 0);
		}
	}
	heat->stats.passed += rest;
	for (uint64_t i = 0; i < rest; i++) {
		struct slot *slot = &heat->slots[i];
		const size_t at = slot_used(slot) ? span_at(span, n, slot_key(slot)) : n;

		if (at < n && span[at].start <= slot_key(slot))
			set_held(heat, slot, held != 0);
	}
}

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

void tierd_heat_ingest(struct tierd_heat *heat, const uint64_t *page, const float *count,
		       const int16_t *node, size_t n, uint64_t time_ns)
{
	float gain, most;

	tierd_heat_advance(heat, time_ns);
	gain = heat_gain_at(heat, time_ns);
	most = HEAT_MAX * heat->gain;
	for (size_t i = 0; i < n && i < LOOKAHEAD; i++)
		fetch(heat, page[i]);
	for (size_t i = 0; i < n; i++) {
		if (n - i > LOOKAHEAD)
			fetch(heat, page[i + LOOKAHEAD]);
		if (counts(count[i]) && ~page[i] != 0)
			heat->stats.ingested += add_sample(heat, page[i], count[i] * gain, most,
							   node == NULL ? -1 : node[i]);
		else
			heat->stats.dropped_invalid += count[i] != 0.0F || ~page[i] == 0;
	}
}
