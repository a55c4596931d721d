/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "tierd_rule.h"

void tierd_rule_terms(const struct tierd_rule *rule, const struct tierd_estimate *page,
		      float victim, struct tierd_terms *out)
{
	const float loss = victim * (1.0F + rule->margin);

	if (rule->posterior && victim > 0.0F) {
		out->bar = loss + sqrtf(page->variance);
	} else {
		out->bar = loss + rule->sigmas * sqrtf(page->variance + victim);
		if (!(out->bar > rule->least))
			out->bar = rule->least;
	}
	out->price = loss + rule->cost;
	out->promotes = page->heat > out->bar && page->uncapped >= out->price;
}

size_t tierd_rule_winners(const struct tierd_rule *rule, const float *heat, const float *victim,
			  size_t n)
{
	size_t i = 0;

	for (; i < n; i++) {
		const struct tierd_estimate page = {heat[i], heat[i], heat[i]};
		struct tierd_terms terms;

		tierd_rule_terms(rule, &page, victim[i], &terms);
		if (!terms.promotes)
			break;
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
