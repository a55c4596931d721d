/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages were moved lately: a bounded table that forgets the oldest first. */
#include "promote.h"

static struct recent *set_of(const struct tierd_promoter *promoter, uint64_t page)
{
	uint64_t hash = page * UINT64_C(0x9E3779B97F4A7C15);

	hash ^= hash >> 32;
	return (struct recent *)&promoter->recent[(hash % RECENT_SETS) * RECENT_WAYS];
}

const struct recent *recent_find(const struct tierd_promoter *promoter, uint64_t page)
{
	const struct recent *set = set_of(promoter, page);

	for (int way = 0; way < RECENT_WAYS; way++) {
		/* Most of them are others: the rest is asked of few. */
		if (set[way].page == page && set[way].time_ns != 0)
			return &set[way];
	}
	return NULL;
}

bool recent_add(struct tierd_promoter *promoter, uint64_t page, int direction, uint64_t now_ns)
{
	struct recent *set = set_of(promoter, page), *oldest = &set[0];
	uint64_t keep = promoter->settings.residency_ns, bounce_ns = promoter->settings.bounce_ns;
	bool known = false, bounced;

	if (bounce_ns > keep)
		keep = bounce_ns;
	for (int way = 0; way < RECENT_WAYS; way++) {
		if (set[way].time_ns != 0 && set[way].page == page) {
			oldest = &set[way];
			known = true;
			break;
		}
		if (set[way].time_ns < oldest->time_ns)
			oldest = &set[way];
	}
	bounced = known && direction == TIERD_PROMOTE && recent_direction(oldest) == TIERD_DEMOTE &&
		  now_ns - oldest->time_ns < bounce_ns;
	if (!known && oldest->time_ns != 0 && now_ns - oldest->time_ns < keep)
		promoter->stats.recent_forgotten++;
	oldest->page = page;
	oldest->time_ns = (now_ns & ~UINT64_C(1)) | (direction == TIERD_PROMOTE);
	if (oldest->time_ns == 0)
		oldest->time_ns = 2;
	return bounced;
}
