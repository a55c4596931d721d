/* SPDX-License-Identifier: Apache-2.0 */
/* What a card's record says of its page, for the tick and for the fast path. */
#ifndef TIERD_RECORDS_INLINE_H
#define TIERD_RECORDS_INLINE_H

#include <stdbool.h>

#include "tierd_promoter.h"

/* What was counted, and in which epoch. */
struct counted {
	uint64_t start_ns;
	bool late; /* counted before the counters were cleared, drained after */
	float requests;
	float age_s;
};

/*
 * A card reports a page when its count since the epoch's start passes the threshold, so count and
 * age give its rate. `scale`: requests that a count stands for.
 */
static inline struct counted record_count(const struct tierd_hot_record *record, uint64_t start_ns,
					  uint64_t before_ns, float scale, uint64_t least_age_ns)
{
	const bool late = record->time_ns < start_ns;
	const uint64_t start = late ? before_ns : start_ns;
	const uint64_t age = (late ? start_ns : record->time_ns) - start;

	return (struct counted){
	    .start_ns = start,
	    .late = late,
	    .requests = scale * (record->count > 0 ? (float)record->count : 1.0F),
	    .age_s = (float)(age > least_age_ns ? age : least_age_ns) * 1e-9F,
	};
}

#endif
