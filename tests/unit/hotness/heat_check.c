/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a heat table's counters and probe sequences are sound: 0, or a negative errno. */
#include <errno.h>

#include "heat_table.h"

int heat_check(const struct tierd_heat *heat);

/* At four fifths full, runs of used slots are hundreds long; a probe passes all of one. */
static uint64_t longest_run_allowed(const struct tierd_heat *heat)
{
	uint64_t part = slot_count(heat) / 16;

	return part < 4096 ? 4096 : part;
}

/* Whether the slots counted by node and warmth are those that the tags tell of. */
static bool warm_counts_hold(const struct tierd_heat *heat)
{
	int64_t left[COUNTED][WARMTHS];

	for (unsigned int row = 0; row < COUNTED; row++)
		for (unsigned int warmth = 0; warmth < WARMTHS; warmth++)
			left[row][warmth] = heat->warm[row][warmth];
	for (uint64_t i = 0; i < slot_count(heat); i++) {
		unsigned int row = counted_at(heat->tags.node[i]);

		if (row < COUNTED)
			left[row][heat->tags.warmth[i]]--;
	}
	for (unsigned int row = 0; row < COUNTED; row++)
		for (unsigned int warmth = 0; warmth < WARMTHS; warmth++)
			if (left[row][warmth] != 0)
				return false;
	return true;
}

int heat_check(const struct tierd_heat *heat)
{
	uint64_t tracked = 0, huge = 0, unplaced = 0, run = 0;

	if (!warm_counts_hold(heat))
		return -EBADR;

	for (uint64_t i = 0; i < slot_count(heat); i++) {
		const struct slot *slot = &heat->slots[i];
		const bool found = slot_used(slot) && (slot->flags & FLAG_HELD) == 0;

		if (heat->tags.node[i] != (found ? slot->node : NO_TAG) ||
		    heat->tags.warmth[i] != warmth_of(slot->heat))
			return -EBADMSG;
		run = slot_used(slot) ? run + 1 : 0;
		if (run > longest_run_allowed(heat))
			return -ELOOP;
		if (run == 0)
			continue;
		tracked++;
		huge += slot_huge(slot);
		unplaced += slot_unplaced(heat, slot);
		if ((slot->node == TIERD_NODE_UNKNOWN) && (slot->flags & EPOCH_MASK) != 0)
			return -EILSEQ;
		if (table_find(heat, slot_key(slot)) != slot)
			return -EUCLEAN;
		if (slot_huge(slot) && !filter_hit(heat, slot_key(slot)))
			return -EBADF;
		if (!(slot->heat >= 0.0F))
			return -ERANGE;
	}
	return tracked == heat->stats.tracked && huge == heat->stats.huge &&
		       unplaced == table_unplaced(heat)
		   ? 0
		   : -EPROTO;
}
