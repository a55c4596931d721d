/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of the module's scanner and of cards to pages and accesses; sources/scan_records.py
 * and sources/hotlist.py say why so.
 */
#include <math.h>

#include "pagekey.h"
#include "records.h"
#include "tierd.h"

enum { DEEPEST = TIERD_DEPTHS - 1 };

/* Of a huge folio the whole moves: where it is and that it is one is for residency to tell. */
static int16_t met_on(const struct tierd_hot_record *record)
{
	return record->order < HUGE_ORDER ? record->node : -1;
}

size_t tierd_scan_records(const struct tierd_hot_record *record, size_t n, const uint8_t *keep,
			  const float *stays, const float *becomes, uint64_t *page, float *count,
			  uint8_t *dirty, int16_t *node)
{
	size_t found = 0;

	for (size_t i = 0; i < n; i++) {
		const struct tierd_hot_record *each = &record[i];
		const float *table = each->flags & TIERD_PAGE_CHANGED ? becomes : stays;
		size_t depth;
		float accesses;

		if (each->kind != TIERD_RECORD_PAGE || !(each->flags & TIERD_PAGE_HOT) ||
		    (keep && !keep[i]))
			continue;
		depth = each->count < DEEPEST ? each->count : DEEPEST;
		/* In this kind the history stands where a hot record has its card. */
		accesses = table[depth * TIERD_HISTORIES + each->card];
		if (each->flags & TIERD_PAGE_PMD)
			accesses *= (float)(UINT64_C(1) << (each->order & 63));
		page[found] = each->page;
		count[found] = accesses;
		if (dirty)
			dirty[found] = (each->flags & TIERD_PAGE_DIRTY) != 0;
		node[found++] = met_on(each);
	}
	return found;
}

size_t tierd_hot_records(const struct tierd_hot_record *record, size_t n, const uint8_t *copied,
			 const struct tierd_hot_epochs *epochs, uint64_t *page, float *count,
			 float *rate, uint64_t *told_ns, uint8_t *current, int16_t *node)
{
	size_t found = 0;

	for (size_t i = 0; i < n; i++) {
		const struct tierd_hot_record *each = &record[i];
		const float scale = epochs->scale[each->card];
		struct counted counted =
		    record_count(each, epochs->start_ns[each->card], epochs->before_ns[each->card],
				 scale > 0.0F ? scale : 1.0F, epochs->least_age_ns);

		if (each->kind != TIERD_RECORD_HOT)
			continue;
		if (copied && copied[i])
			counted.requests -= epochs->copy_requests;
		if (counted.requests <= 0.0F)
			continue;
		page[found] = each->page;
		rate[found] =
		    fminf(counted.requests * epochs->visits / counted.age_s, epochs->rate_cap);
		count[found] = rate[found] * counted.age_s;
		told_ns[found] = each->time_ns;
		current[found] = !counted.late;
		node[found++] = met_on(each);
	}
	return found;
}
