/* SPDX-License-Identifier: Apache-2.0 */
/* The rule of tierd_rule.h, for C that asks it for page after page. */
#ifndef TIERD_RULE_INLINE_H
#define TIERD_RULE_INLINE_H

#include <math.h>
#include <stdbool.h>

#include "tierd_rule.h"

/*
 * The hotness that a page must pass. If the victim's hotness is a posterior mean, only the page's
 * own error counts, by one standard deviation. A promotion by chance loses the cost of two moves,
 * which the price covers.
 */
static inline float rule_bar(const struct tierd_rule *rule, float variance, float victim)
{
	float bar = victim * (1.0F + rule->margin);

	if (rule->posterior && victim > 0.0F)
		return bar + sqrtf(variance);
	bar += rule->sigmas * sqrtf(variance + victim);
	return bar > rule->least ? bar : rule->least;
}

/* The hotness above which a page saves more than its victim loses and both moves cost. */
static inline float rule_price(const struct tierd_rule *rule, float victim)
{
	return victim * (1.0F + rule->margin) + rule->cost;
}

static inline bool rule_promotes(const struct tierd_rule *rule, const struct tierd_estimate *page,
				 float victim)
{
	return page->heat > rule_bar(rule, page->variance, victim) &&
	       page->uncapped >= rule_price(rule, victim);
}

#endif
