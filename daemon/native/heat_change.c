/* SPDX-License-Identifier: Apache-2.0 */
/* When the hot set moves: how new accesses are to the table, and how it forgets. */
#include <math.h>

#include "heat_table.h"

/*
 * Let all heat decay at once as if `half_lives` half-lives had passed (or grow as if so many had
 * not, where that is negative). Stored heats stay;
 * the origin of time that they refer to moves into the past.
 */
void tierd_heat_fade(struct tierd_heat *heat, double half_lives)
{
	double back = half_lives * heat->half_life_ns;

	if (!heat->started || half_lives == 0.0 || !(half_lives >= -30.0))
		return;
	if (half_lives < 0.0 || half_lives > 30.0 || back > (double)heat->origin_ns) {
		/* So much that nothing is left, time would begin before its beginning, or more. */
		const float factor = (float)tierd_heat_power_of_two(-half_lives);

		for (uint64_t i = 0; i < slot_count(heat); i++) {
			if (heat->tags.warmth[i] == 0)
				continue;
			heat->slots[i].heat *= factor;
			tag_slot(heat, &heat->slots[i]);
		}
	} else {
		heat->origin_ns -= (uint64_t)back;
		heat->gain *= (float)tierd_heat_power_of_two(half_lives);
		heat->inverse_gain = 1.0F / heat->gain;
	}
	heat->hist_valid = false;
}

/*
 * The share of the accesses `count` that went to pages whose heat is below `least`, so
 * far; `*total` is their sum. Counts that the table would not take are left out.
 */
double tierd_heat_novelty(const struct tierd_heat *heat, const uint64_t *page, const float *count,
			  size_t n, float least, double *total)
{
	double fresh = 0.0, sum = 0.0;

	for (size_t i = 0; i < n; i++) {
		const struct slot *slot = NULL;

		if (!(count[i] > 0.0F) || isinf(count[i]))
			continue;
		if (heat->huge != 0 && filter_hit(heat, page[i])) {
			uint64_t head = key_head(page[i]);

			slot = table_find(heat, head, hash_key(head));
		}
		if (slot == NULL || !slot_huge(slot))
			slot = table_probe(heat, page[i], home_slot(heat, hash_key(page[i])));
		sum += (double)count[i];
		if (slot->heat * heat->inverse_gain < least || !slot_used(slot))
			fresh += (double)count[i];
	}
	*total = sum;
	return sum > 0.0 ? fresh / sum : 0.0;
}
