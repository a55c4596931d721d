/* SPDX-License-Identifier: Apache-2.0 */
/* Phase changes: accesses to pages that were not hot, and cooling of all heat. */
#include <math.h>

#include "heat_table.h"

/* So many of a batch tell how new it is to a few hundredths, what chance adds included. */
enum { LOOKED_AT = 2048 };

/*
 * Let all heat decay at once as if `half_lives` half-lives had passed (or grow as if so many had
 * not, where that is negative). Stored heats stay;
 * the origin of time that they refer to moves into the past.
 */
void tierd_heat_fade(struct tierd_heat *heat, double half_lives)
{
	const double back = half_lives * heat->half_life_ns;

	if (!heat->started || half_lives == 0.0 || !(half_lives >= -30.0))
		return;
	if (half_lives > 30.0 || back > (double)heat->origin_ns ||
	    -back > (double)(heat->now_ns - heat->origin_ns)) {
		/*
		 * So much that nothing is left, time would begin before its beginning, or heat
		 * would be stored in less than its own size.
		 */
		const float factor = (float)tierd_heat_power_of_two(-half_lives);

		for (uint64_t i = 0; i < slot_count(heat); i++) {
			if (heat->tags.warmth[i] == 0)
				continue;
			heat->slots[i].heat *= factor;
			tag_slot(heat, &heat->slots[i]);
		}
	} else {
		heat->origin_ns = back > 0.0 ? heat->origin_ns - (uint64_t)back
					     : heat->origin_ns + (uint64_t)-back;
		heat->gain *= (float)tierd_heat_power_of_two(half_lives);
		heat->inverse_gain = 1.0F / heat->gain;
	}
	heat->hist_valid = false;
}

/*
 * How many of the accesses `count` went to pages whose heat is below `least`, so far. Of thousands
 * every second, third and so on is checked, and stands for the ones between. Counts that the
 * table would not take are left out.
 */
double tierd_heat_novel(const struct tierd_heat *heat, const uint64_t *page, const float *count,
			size_t n, float least)
{
	const size_t stride = (n + LOOKED_AT - 1) / LOOKED_AT;
	double fresh = 0.0;
	size_t looked = 0;

	for (size_t i = 0; i < n; i += stride) {
		const struct slot *slot = NULL;

		looked++;
		if (!(count[i] > 0.0F) || isinf(count[i]))
			continue;
		if (heat->huge != 0 && filter_hit(heat, page[i])) {
			uint64_t head = key_head(page[i]);

			slot = table_find(heat, head, hash_key(head));
		}
		if (slot == NULL || !slot_huge(slot))
			slot = table_probe(heat, page[i], home_slot(heat, hash_key(page[i])));
		if (slot->heat * heat->inverse_gain < least || !slot_used(slot))
			fresh += (double)count[i];
	}
	return looked > 0 ? fresh * ((double)n / (double)looked) : 0.0;
}
