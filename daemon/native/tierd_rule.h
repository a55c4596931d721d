/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule: whether a page pays for its promotion. As in tierd_native.h, plain declarations only.
 *
 * All terms are hotness: decayed accesses, of which a page that is accessed once a second for ever
 * has `heat_s`. Divided by heat_s and multiplied by the latency that an access saves, they are
 * times saved in a second:
 *
 *     bar   = max(least, victim * (1 + margin) + doubt)
 *     price = victim * (1 + margin) + cost
 *
 * A page is promoted if heat > bar and uncapped >= price. `victim` is the hotness of the page that
 * has to leave, 0 where there is free memory. `doubt` is `sigmas` standard deviations of the
 * difference. Where `victim` is a posterior mean, `doubt` is one standard deviation of the page's
 * own count, and `least` does not apply: a promotion by chance loses the cost of two moves, which
 * the price covers. The tick, the fast path and
 * `tierd explain` use the functions below and no other rule.
 */
#ifndef TIERD_RULE_H
#define TIERD_RULE_H

#include "tierd_native.h"

struct tierd_rule {
	float margin;	    /* hysteresis: by this ratio a page must be hotter than its victim */
	float sigmas;	    /* standard deviations of the difference that it must be above 0 */
	float least;	    /* hotness that a promotion into free memory needs */
	float cost;	    /* hotness that pays for both moves within the break-even time */
	uint32_t posterior; /* victims' hotness is a posterior mean (tierd.policy.rule) */
};

/* A page's hotness; the variance of a count of accesses is the count (Poisson). */
struct tierd_estimate {
	float heat;
	float uncapped; /* not bounded by what the other source of hotness can count */
	float variance;
};

/* Hotness that the page must pass, and hotness not bounded that it must reach. */
struct tierd_terms {
	float bar;
	float price;
	uint32_t promotes;
};

void tierd_rule_terms(const struct tierd_rule *rule, const struct tierd_estimate *page,
		      float victim, struct tierd_terms *out);
/*
 * How many of n counted pages, hottest first, each win against a victim of their own, coldest
 * first, up to the first page that does not.
 */
size_t tierd_rule_winners(const struct tierd_rule *rule, const float *heat, const float *victim,
			  size_t n);
/* No counted page of less hotness wins against such a victim. */
float tierd_rule_least(const struct tierd_rule *rule, float victim);

#endif
