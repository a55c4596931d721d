// SPDX-License-Identifier: GPL-2.0-only
/* What is begun with each scan of a whole target, and told of it at its end. */
#include "tierd.h"

#include <linux/math64.h>
#include <linux/numa.h>

/**
 * tierd_round_start() - begin a round of a target
 * @target: the target
 * @settings: the settings
 * @now_ns: now
 *
 * Called with the target's lock.
 */
void tierd_round_start(struct tierd_target *target, const struct tierd_settings *settings,
		       u64 now_ns)
{
	tierd_set_sampling_interval(target, settings->sampling_interval_us);
	if (target->stats.rounds)
		target->stats.period_ns = now_ns - target->round_start_ns;
	target->in_round = true;
	target->cursor = 0;
	target->round_start_ns = now_ns;
	target->round_cpu_ns = target->round_pages = target->round_accessed = 0;
	target->chunks_seen = 0;
	target->turnover = (struct tierd_turnover){};
}

/* `part` of `whole`, of 255. */
static u8 tierd_round_share(u32 part, u32 whole)
{
	return whole ? div_u64(part * 255ull, whole) : 0;
}

/**
 * tierd_round_end() - end a round of a target
 * @walk: the pass
 *
 * Called with the target's lock. Adds the record of its end to those of the walk that came to
 * it, and settles statistics.
 */
void tierd_round_end(struct tierd_walk *walk)
{
	struct tierd_target *target = walk->target;
	const struct tierd_turnover *turnover = &target->turnover;

	tierd_history_sweep(target);
	target->in_round = false;
	target->stats.rounds++;
	target->stats.round_ns = walk->now_ns - target->round_start_ns;
	target->stats.round_cpu_ns = target->round_cpu_ns;
	target->stats.round_pages = target->round_pages;
	target->stats.round_accessed = target->round_accessed;
	target->stats.sampling_interval_ns =
		target->sampling.parts ? div_u64(target->sampling.sum_ns, target->sampling.parts)
				       : 0;
	target->age = min(target->age + 1, TIERD_HISTORY);
	tierd_stats.rounds++;
	walk->records[walk->found++] = (struct tierd_record){
		.page = (u64)target->number << TIERD_KEY_SHIFT | target->round_accessed,
		.newcomers = turnover->newcomers,
		.silent = turnover->silent,
		.time_ns = walk->now_ns,
		.kind = TIERD_RECORD_ROUND,
		.order = tierd_round_share(turnover->newcomers, turnover->became),
		.history = tierd_round_share(turnover->silent, turnover->steady),
		.node = NUMA_NO_NODE,
		.value = (u16)target->stats.rounds,
	};
}
