/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of the module's scanner and of cards to pages and accesses; sources/scan_records.py
 * and sources/hotlist.py say why so.
 */
#include "pagekey.h"
#include "tierd_records.h"

#include <stdbool.h>
#include <stddef.h>

enum { DEEPEST = TIERD_DEPTHS - 1 };

/* Of a huge folio the whole moves: where it is and that it is one is for residency to tell. */
static int16_t met_on(const struct tierd_hot_record *record)
{
	return record->order < HUGE_ORDER ? record->node : -1;
}

/* `plain`: all are kept, and nobody asks what was written. */
__attribute__((always_inline)) static inline size_t
scan_records(const struct tierd_hot_record *record, size_t n, const uint8_t *keep,
	     const float *stays, const float *becomes, uint64_t *page, float *count, uint8_t *dirty,
	     int16_t *node, bool plain)
{
	size_t found = 0;

	for (size_t i = 0; i < n; i++) {
		const struct tierd_hot_record *each = &record[i];
		const float *table = each->flags & TIERD_RECORD_CHANGED ? becomes : stays;
		size_t depth;
		float accesses;

		if (each->kind != TIERD_KIND_PAGE || !(each->flags & TIERD_RECORD_HOT) ||
		    (!plain && keep && !keep[i]))
			continue;
		depth = each->count < DEEPEST ? each->count : DEEPEST;
		/* In this kind the history stands where a hot record has its card. */
		accesses = table[depth * TIERD_HISTORIES + each->card];
		if (each->flags & TIERD_RECORD_PMD)
			accesses *= (float)(UINT64_C(1) << (each->order & 63));
		page[found] = each->page;
		count[found] = accesses;
		if (!plain && dirty)
			dirty[found] = (each->flags & TIERD_RECORD_DIRTY) != 0;
		node[found++] = met_on(each);
	}
	return found;
}

size_t tierd_scan_records(const struct tierd_hot_record *record, size_t n, const uint8_t *keep,
			  const float *stays, const float *becomes, uint64_t *page, float *count,
			  uint8_t *dirty, int16_t *node)
{
	if (keep == NULL && dirty == NULL)
		return scan_records(record, n, NULL, stays, becomes, page, count, NULL, node, true);
	return scan_records(record, n, keep, stays, becomes, page, count, dirty, node, false);
}

size_t tierd_scan_ended(const struct tierd_hot_record *record, size_t n, size_t at)
{
	while (at < n && record[at].kind != TIERD_KIND_ROUND)
		at++;
	return at;
}

size_t tierd_hot_records(const struct tierd_hot_record *record, size_t n, const uint8_t *copied,
			 const struct tierd_hot_epochs *epochs, uint64_t *page, float *count,
			 float *rate, uint64_t *told_ns, uint8_t *current, int16_t *node)
{
	const double least_ns = epochs->least_age_s * 1e9;
	size_t found = 0;

	for (size_t i = 0; i < n; i++) {
		const struct tierd_hot_record *each = &record[i];
		const uint64_t start = epochs->start_ns[each->card];
		/* Counted before the counters were cleared, drained after. */
		const int late = each->time_ns < start;
		/* Signed, for that is one instruction; not beyond 292 years. */
		double age = late ? (double)(int64_t)(start - epochs->before_ns[each->card])
				  : (double)(int64_t)(each->time_ns - start);
		double requests = each->count > 0 ? each->count : 1;
		double a_second;

		if (each->kind != TIERD_KIND_HOT)
			continue;
		if (epochs->scale[each->card] > 0.0F)
			requests *= (double)epochs->scale[each->card];
		if (copied && copied[i])
			requests -= epochs->copy_requests;
		if (!(requests > 0.0))
			continue;
		requests *= epochs->visits;
		age = age > least_ns ? age * 1e-9 : epochs->least_age_s;
		a_second = requests / age < epochs->rate_cap ? requests / age : epochs->rate_cap;
		page[found] = each->page;
		count[found] = (float)(a_second * age);
		rate[found] = (float)a_second;
		told_ns[found] = each->time_ns;
		current[found] = !late;
		node[found++] = met_on(each);
	}
	return found;
}
