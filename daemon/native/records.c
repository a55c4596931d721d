/* SPDX-License-Identifier: Apache-2.0 */
/* Records of the module's scanner to pages and accesses; sources/_scan_records.py says why so. */
#include "tierd_native.h"

#include <stddef.h>

enum { DEEPEST = TIERD_DEPTHS - 1 };

size_t tierd_scan_records(const struct tierd_hot_record *record, size_t n, const uint8_t *keep,
			  const float *stays, const float *becomes, uint64_t *page, float *count,
			  uint8_t *dirty)
{
	size_t found = 0;

	for (size_t i = 0; i < n; i++) {
		const struct tierd_hot_record *each = &record[i];
		const uint16_t depth = each->count < DEEPEST ? each->count : DEEPEST;
		const float *table = each->flags & TIERD_RECORD_CHANGED ? becomes : stays;
		/* In this kind the history stands where a hot record has its card. */
		float accesses = table[depth * TIERD_HISTORIES + each->card];

		if (each->kind != TIERD_KIND_PAGE || !(each->flags & TIERD_RECORD_HOT) ||
		    (keep && !keep[i]))
			continue;
		if (each->flags & TIERD_RECORD_PMD)
			accesses *= (float)(UINT64_C(1) << (each->order & 63));
		page[found] = each->page;
		count[found] = accesses;
		if (dirty)
			dirty[found] = (each->flags & TIERD_RECORD_DIRTY) != 0;
		found++;
	}
	return found;
}
