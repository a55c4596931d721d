/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run-length posterior that hotness/change_point.py documents. Vector code would be slower,
 * because there are only a few dozen runs.
 */
#include "tierd_native.h"

#include <math.h>

static const double PI = 0x1.921fb54442d18p+1;
/* A run so much less likely than the likeliest is forgotten. */
static const double FORGOTTEN = 30.0;

static double add_logs(double a, double b)
{
	if (a == b)
		return a + log(2.0);
	return a > b ? a + log1p(exp(b - a)) : b + log1p(exp(a - b));
}

static double sum_of_logs(const struct tierd_run *run, size_t n)
{
	double sum = run[0].log_p;

	for (size_t i = 1; i < n; i++)
		sum = add_logs(sum, run[i].log_p);
	return sum;
}

static size_t likeliest(const struct tierd_run *run, size_t n)
{
	size_t best = 0;

	for (size_t i = 1; i < n; i++)
		if (run[i].log_p > run[best].log_p)
			best = i;
	return best;
}

/* A run goes on with `value`; how likely that was of it, as a logarithm. */
static double go_on(struct tierd_run *run, const struct tierd_change_words *words, double value)
{
	const double noise = words->noise, floor = noise / 2 * (noise / 2);
	const double alpha = words->alpha + run->n / 2, kappa = words->kappa + run->n;
	const double beta = words->alpha * (noise * noise) + run->squares / 2;
	const double scale = fmax(beta / alpha, floor) * (kappa + 1) / kappa;
	const double step = value - run->mean, distance = step * step;
	const size_t known = run->n < TIERD_RUN_MAX ? (size_t)run->n : TIERD_RUN_MAX;
	const double log_t = words->gamma_ratio[known] - 0.5 * log(2 * PI * alpha * scale) -
			     (alpha + 0.5) * log1p(distance / (2 * alpha * scale));

	run->n += 1;
	run->mean += step / (kappa + 1);
	run->squares += distance * kappa / (kappa + 1);
	return log_t;
}

/* What is left of the runs, behind the empty one; the posterior sums to 1. */
static size_t prune(struct tierd_run *run, size_t n, double prior_mean)
{
	const double least = run[likeliest(run, n)].log_p - FORGOTTEN;
	struct tierd_run before = run[0], next;
	size_t kept = 0;
	double sum;

	/* One place on: what is read is one ahead of what is written at most. */
	for (size_t i = 0; i < n && kept < TIERD_RUN_MAX; i++, before = next) {
		if (i + 1 < n)
			next = run[i + 1];
		else
			next = before;
		if (before.log_p > least)
			run[++kept] = before;
	}
	sum = sum_of_logs(run + 1, kept);
	for (size_t i = 1; i <= kept; i++) {
		run[i].log_p -= sum;
		/* A run that counts as the longest forgets as much as it takes in. */
		if (run[i].n >= TIERD_RUN_MAX) {
			run[i].n = TIERD_RUN_MAX;
			run[i].squares = run[i].squares * (TIERD_RUN_MAX - 1) / TIERD_RUN_MAX;
		}
	}
	/* Its weight is the whole posterior's, through the hazard, so it needs none of its own. */
	run[0] = (struct tierd_run){.log_p = -INFINITY, .mean = prior_mean};
	return kept + 1;
}

size_t tierd_change_observe(struct tierd_run *run, size_t n, double value,
			    const struct tierd_change_words *words, struct tierd_change_seen *seen)
{
	const struct tierd_run before = run[likeliest(run, n)];
	const double step = value - words->prior_mean, kappa = words->kappa;
	const double begun = step * step * kappa / (kappa + 1);
	/* A new run begins with this value: the prior judges it, whatever ended before. */
	const double ended = sum_of_logs(run, n) + log(words->hazard) + go_on(run, words, value);
	double fresh = 0.0;
	size_t best;

	for (size_t i = 1; i < n; i++) {
		const double log_t = go_on(&run[i], words, value);

		run[i].log_p = run[i].log_p + log_t + log1p(-words->hazard);
	}
	run[0] = (struct tierd_run){.log_p = ended,
				    .n = 1,
				    .mean = words->prior_mean + step / (kappa + 1),
				    .squares = fmin(begun, words->noise * words->noise)};
	n = prune(run, n, words->prior_mean);
	best = likeliest(run, n);
	*seen = (struct tierd_change_seen){
	    .length_before = before.n, .mean_before = before.mean, .length = run[best].n};
	for (size_t i = 1; i < n; i++) {
		if (run[i].n >= 2 && run[i].n <= words->short_run) {
			const double weight = exp(run[i].log_p);

			seen->probability += weight;
			fresh += weight * run[i].mean;
		}
	}
	seen->fresh_mean = seen->probability > 0.0 ? fresh / seen->probability : 0.0;
	return n;
}
