/* SPDX-License-Identifier: Apache-2.0 */
/* The rule of tierd_rule.h, as Python asks it. */
#include "rule.h"

void tierd_rule_terms(const struct tierd_rule *rule, const struct tierd_estimate *page,
		      float victim, struct tierd_terms *out)
{
	out->bar = rule_bar(rule, page->variance, victim);
	out->price = rule_price(rule, victim);
	out->promotes = rule_promotes(rule, page, victim);
}

size_t tierd_rule_winners(const struct tierd_rule *rule, const float *heat, const float *victim,
			  size_t n)
{
	size_t i = 0;

	while (i < n) {
		struct tierd_estimate page = {heat[i], heat[i], heat[i]};

		if (!rule_promotes(rule, &page, victim[i]))
			break;
		i++;
	}
	return i;
}

float tierd_rule_least(const struct tierd_rule *rule, float victim)
{
	/* h = victim (1 + margin) + sigmas * sqrt(h + victim), solved for h. */
	double sigmas = rule->sigmas, v = victim;
	double root = (sigmas + sqrt(sigmas * sigmas + 4.0 * v * (2.0 + rule->margin))) / 2.0;

	return (float)(root * root - v);
}
