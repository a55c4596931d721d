/* SPDX-License-Identifier: Apache-2.0 */
/* From the kernel module's ring to candidates: what was reported, and how hot that makes it. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "promote.h"
#include "records.h"
#include "tierd.h"

static uint64_t ring_waiting(const struct ring *ring)
{
	uint64_t tail;

	if (ring->memory == NULL)
		return 0;
	tail = atomic_load_explicit(
	    (_Atomic uint64_t *)(void *)(ring->memory + offsetof(struct tierd_ring_info, tail)),
	    memory_order_acquire);
	return tail - ring->head;
}

/* Recent moves are in a bounded table that forgets the oldest first. */
static inline int recent_direction(const struct recent *recent)
{
	return (int)(recent->time_ns & 1);
}

static struct recent *set_of(struct tierd_promoter *promoter, uint64_t page)
{
	const uint64_t hash = hash_key(page) ^ hash_key(page) >> 32;

	return &promoter->recent[(hash % RECENT_SETS) * RECENT_WAYS];
}

/* The page's entry in its set, NULL if there is none. */
static struct recent *recent_find(struct recent *set, uint64_t page)
{
	for (int way = 0; way < RECENT_WAYS; way++) {
		/* Most of them are others: the rest is asked of few. */
		if (set[way].page == page && set[way].time_ns != 0)
			return &set[way];
	}
	return NULL;
}

bool recent_add(struct tierd_promoter *promoter, uint64_t page, int direction, uint64_t now_ns)
{
	struct recent *set = set_of(promoter, page), *entry = recent_find(set, page);
	const uint64_t bounce_ns = promoter->settings.bounce_ns;
	const uint64_t residency_ns = promoter->settings.residency_ns;
	const uint64_t keep = bounce_ns > residency_ns ? bounce_ns : residency_ns;
	bool bounced = false;

	if (entry != NULL) {
		bounced = direction == TIERD_PROMOTE && recent_direction(entry) == TIERD_DEMOTE &&
			  now_ns - entry->time_ns < bounce_ns;
	} else {
		entry = set;
		for (int way = 1; way < RECENT_WAYS; way++)
			entry = set[way].time_ns < entry->time_ns ? &set[way] : entry;
		promoter->stats.recent_forgotten +=
		    entry->time_ns != 0 && now_ns - entry->time_ns < keep;
	}
	entry->page = page;
	entry->time_ns = (now_ns & ~UINT64_C(1)) | (direction == TIERD_PROMOTE);
	if (entry->time_ns == 0)
		entry->time_ns = 2;
	return bounced;
}

static bool movable(struct tierd_promoter *promoter, uint64_t page)
{
	const struct tierd_orders *orders = &promoter->orders;
	size_t at = promoter->last_span;

	if (at >= orders->spans || page < orders->span[at].start || page >= orders->span[at].end)
		at = promoter->last_span = span_at(orders->span, orders->spans, page);
	return at < orders->spans && orders->span[at].start <= page;
}

/*
 * Heat is what a page with the record's rate would have in the heat table in the long run. A rate
 * known from n requests has a relative error of n^-1/2, whatever part of a use a request is worth.
 * False if a page that was demoted into the card's memory in this epoch counted its own copy alone.
 */
static bool weigh(const struct tierd_promoter *promoter, const struct tierd_hot_record *record,
		  const struct recent *recent, struct candidate *candidate, float *a_second)
{
	const struct tierd_orders *orders = &promoter->orders;
	const struct tierd_promoter_settings *settings = &promoter->settings;
	const unsigned int card = record->card % TIERD_CARDS;
	const float scale = orders->scale[card];
	struct counted counted =
	    record_count(record, orders->epoch_ns[card], orders->epoch_before_ns[card], scale,
			 settings->min_epoch_age_ns);
	float rate;

	if (recent != NULL && recent_direction(recent) == TIERD_DEMOTE &&
	    recent->time_ns + settings->copy_settles_ns >= counted.start_ns) {
		counted.requests -= settings->copy_requests;
		if (counted.requests <= 0.0F)
			return false;
	}
	*a_second = counted.requests / counted.age_s;
	rate = *a_second * settings->visits;
	candidate->hot.uncapped = rate * settings->heat_s;
	candidate->hot.heat = fminf(rate, settings->rate_cap) * settings->heat_s;
	candidate->hot.variance =
	    candidate->hot.heat * candidate->hot.heat * scale / counted.requests;
	return true;
}

static bool moved_lately(struct tierd_promoter *promoter, const struct tierd_hot_record *record,
			 const struct recent *recent, const struct candidate *candidate,
			 float a_second, uint64_t now_ns)
{
	float back = promoter->settings.return_rate;
	uint64_t age;

	if (recent == NULL)
		return false;
	age = now_ns > recent->time_ns ? now_ns - recent->time_ns : 0;
	if (record->time_ns <= recent->time_ns ||
	    (recent_direction(recent) == TIERD_PROMOTE && age < promoter->settings.residency_ns)) {
		promoter->stats.stale++;
		return true;
	}
	if (age >= promoter->settings.residency_ns)
		return false;
	/* Its demotion was a mistake; if it is demoted again, both moves have paid. */
	if (back > 0.0F && a_second >= back) {
		promoter->stats.returned++;
		return false;
	}
	promoter->stats.bounce_held += age < promoter->settings.bounce_ns;
	hold_back(promoter, candidate, TIERD_MOVED_LATELY, now_ns);
	return true;
}

static void take_record(struct tierd_promoter *promoter, const struct tierd_hot_record *record,
			uint64_t now_ns)
{
	struct candidate candidate = {
	    .page = record->page,
	    .seen_ns = now_ns,
	    .node = record->node,
	    .bar = NAN,
	    .dest = -1,
	};
	const struct recent *recent;
	float a_second = 0.0F;

	promoter->stats.records++;
	if (record->node < 0 || record->node >= TIERD_NODES ||
	    promoter->orders.up[record->node][0] < 0) {
		promoter->stats.not_slow++;
		return;
	}
	recent = recent_find(set_of(promoter, record->page), record->page);
	if (!weigh(promoter, record, recent, &candidate, &a_second)) {
		promoter->stats.copied++;
		return;
	}
	if (!movable(promoter, record->page))
		hold_back(promoter, &candidate, TIERD_NOT_MOVABLE, now_ns);
	else if (record->order >= HUGE_ORDER)
		hold_back(promoter, &candidate, TIERD_PART_OF_HUGE, now_ns);
	else if (candidate.hot.uncapped < promoter->rule.cost)
		hold_back(promoter, &candidate, TIERD_NOT_WORTH, now_ns);
	else if (!moved_lately(promoter, record, recent, &candidate, a_second, now_ns))
		waiting_add(&promoter->waiting, &candidate);
}

/* What is waiting, as far as there is room for it; the rest stays in the ring. */
void read_records(struct tierd_promoter *promoter, uint64_t now_ns)
{
	struct ring *ring = &promoter->ring;
	uint64_t waiting = ring_waiting(ring), done = 0;

	if (waiting > ring->capacity)
		waiting = ring->capacity;
	if (waiting > CANDIDATES_MAX)
		waiting = CANDIDATES_MAX;
	for (; done < waiting && promoter->waiting.n < CANDIDATES_MAX; done++) {
		struct tierd_hot_record record;
		uint64_t index = (ring->head + done) % ring->capacity;

		memcpy(&record, ring->memory + TIERD_RING_DATA + index * sizeof(record),
		       sizeof(record));
		tap_record(promoter, &record);
		if (record.kind == TIERD_RECORD_HOT)
			take_record(promoter, &record, now_ns);
	}
	if (done == 0)
		return;
	ring->head += done;
	atomic_store_explicit((_Atomic uint64_t *)(void *)(ring->memory + TIERD_RING_HEAD),
			      ring->head, memory_order_release);
}
