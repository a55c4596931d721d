/* SPDX-License-Identifier: Apache-2.0 */
/* What time does to heat. */
#include <errno.h>
#include <math.h>

#include "heat_table.h"

static const float HEAT_MIN = 0x1p-30F;

/*
 * 2^x for |x| up to 1000, to within a few units in the last place. Not libm's, whose last
 * bits depend on the CPU and its version: a recording must give the same heat anywhere.
 * Taylor's series of e^(f ln 2) for f within a half of 0; the terms left out are below 2^-60.
 */
static double power_of_two(double x)
{
	static const double ln2 = 0x1.62e42fefa39efp-1;
	double whole = floor(x + 0.5);
	double y = (x - whole) * ln2;
	double sum = 1.0;

	for (int term = 15; term > 0; term--)
		sum = 1.0 + sum * y / term;
	return ldexp(sum, (int)whole);
}

float heat_gain_at(const struct tierd_heat *heat, uint64_t time_ns)
{
	double since = time_ns >= heat->origin_ns ? (double)(time_ns - heat->origin_ns)
						  : -(double)(heat->origin_ns - time_ns);

	return (float)power_of_two(fmax(since / heat->half_life_ns, -120.0));
}

static uint64_t maintain_every(const struct tierd_heat *heat)
{
	uint64_t ticks = (uint64_t)TICK_NS * (TICKS_REMEMBERED / 2);
	uint64_t epochs = heat->refresh_ns * (EPOCHS - 3);

	return ticks < epochs ? ticks : epochs;
}

/*
 * One pass over all slots: heats times a factor, moves and placements that are too old for their
 * few bits become "never", the filter of huge folios exact. After a pause longer than these bits
 * can count, all are that old.
 */
static void maintain(struct tierd_heat *heat, float factor)
{
	const uint64_t since_ns = heat->now_ns - heat->maintained_ns;
	const bool places = since_ns > maintain_every(heat) + heat->refresh_ns;
	const bool moves = since_ns / TICK_NS > TICKS_REMEMBERED;
	const uint16_t tick = moved_tick(heat);

	heat->stats.passed += slot_count(heat);
	for (uint64_t i = 0; i < slot_count(heat); i++) {
		struct slot *slot = &heat->slots[i];

		if (!slot_used(slot))
			continue;
		slot->heat *= factor;
		if (slot->heat < HEAT_MIN * heat->gain)
			slot->heat = 0.0F;
		if (slot->moved != 0 &&
		    (moves || (uint16_t)(tick - slot->moved) >= TICKS_REMEMBERED))
			slot->moved = 0;
		if (places || slot_unplaced(heat, slot))
			slot_set_epoch(heat, slot, 0);
		tag_slot(heat, slot);
	}
	if (heat->filter_stale > 0)
		table_rebuild_filter(heat);
	heat->maintained_ns = heat->now_ns;
}

/* Stored heats become true ones, with now as the origin. */
static void rebase(struct tierd_heat *heat)
{
	double exponent = (double)(heat->now_ns - heat->origin_ns) / heat->half_life_ns;

	heat->gain = heat->inverse_gain = 1.0F;
	maintain(heat, exponent > 140.0 ? 0.0F : (float)power_of_two(-exponent));
	heat->aged += exponent;
	heat->origin_ns = heat->now_ns;
}

int tierd_heat_set_half_life(struct tierd_heat *heat, double half_life_s)
{
	if (!(half_life_s > 0.0))
		return -EINVAL;
	if (heat->started)
		rebase(heat);
	heat->half_life_ns = half_life_s * 1e9;
	return 0;
}

/* Stored heats stay; the origin of time that they refer to moves. */
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
		maintain(heat, (float)power_of_two(-half_lives));
		heat->aged += half_lives;
	} else {
		heat->origin_ns = back > 0.0 ? heat->origin_ns - (uint64_t)back
					     : heat->origin_ns + (uint64_t)-back;
		heat->gain *= (float)power_of_two(half_lives);
		heat->inverse_gain = 1.0F / heat->gain;
	}
}

double tierd_heat_aged(const struct tierd_heat *heat)
{
	const double since_ns = heat->now_ns >= heat->origin_ns
				    ? (double)(heat->now_ns - heat->origin_ns)
				    : -(double)(heat->origin_ns - heat->now_ns);

	return heat->aged + since_ns / heat->half_life_ns;
}

void tierd_heat_advance(struct tierd_heat *heat, uint64_t time_ns)
{
	double exponent;

	if (!heat->started) {
		heat->started = true;
		heat->born_ns = heat->origin_ns = heat->now_ns = heat->maintained_ns = time_ns;
		return;
	}
	if (time_ns <= heat->now_ns)
		return;
	heat->now_ns = time_ns;
	set_epoch(heat, (time_ns - heat->born_ns) / heat->refresh_ns);
	exponent = (double)(time_ns - heat->origin_ns) / heat->half_life_ns;
	if (exponent >= 60.0) {
		rebase(heat);
		return;
	}
	heat->gain = heat_gain_at(heat, time_ns);
	heat->inverse_gain = 1.0F / heat->gain;
	if (time_ns - heat->maintained_ns >= maintain_every(heat))
		maintain(heat, 1.0F);
}

const struct tierd_heat_stats *tierd_heat_stats(const struct tierd_heat *heat)
{
	return &heat->stats;
}
