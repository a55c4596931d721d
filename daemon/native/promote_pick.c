/* SPDX-License-Identifier: Apache-2.0 */
/* From candidates to moves: the hottest first, into free room or over what is colder. */
#include <math.h>
#include <stdlib.h>

#include "promote.h"
#include "sys.h"

/* What is free as new orders come. */
void note_free(struct tierd_promoter *promoter)
{
	const struct tierd_orders *orders = &promoter->orders;

	for (int node = 0; node < TIERD_NODES; node++) {
		promoter->free_then[node] = promoter->moved_in[node] = promoter->left[node] = 0;
		if (orders->free_fd[node] >= 0)
			promoter->free_then[node] =
			    (int64_t)(sys_node_free(orders->free_fd[node]) + orders->held[node]);
	}
}

/*
 * Bytes above what shall stay free, by node. MemFree leaves out what CPUs hold on to, and
 * they hold on to much of what a demotion frees: taken for used, it would be made room for
 * again and again. It is what was free when the orders came, less what has moved in, unless
 * somebody else took it: MemFree and all that CPUs may hold is no more than that then.
 */
void read_room(struct tierd_promoter *promoter)
{
	const struct tierd_orders *orders = &promoter->orders;

	for (int node = 0; node < TIERD_NODES; node++) {
		int64_t free, known, most;

		promoter->room[node] = 0;
		if (orders->free_fd[node] < 0)
			continue;
		free = (int64_t)sys_node_free(orders->free_fd[node]);
		known = promoter->free_then[node] - promoter->moved_in[node];
		most = free + (int64_t)orders->held[node] + promoter->left[node];
		if (known > most)
			known = most;
		promoter->room[node] = (known > free ? known : free) - (int64_t)orders->low[node];
	}
}

static int by_page(const void *a, const void *b)
{
	const struct candidate *left = a, *right = b;

	if (left->page != right->page)
		return left->page < right->page ? -1 : 1;
	return (left->heat < right->heat) - (left->heat > right->heat);
}

static int by_heat(const void *a, const void *b)
{
	const struct candidate *left = a, *right = b;

	if (left->heat != right->heat)
		return left->heat > right->heat ? -1 : 1;
	return left->page < right->page ? -1 : left->page > right->page;
}

/* One entry a page, its hottest; then the hottest first. */
static void order_candidates(struct tierd_promoter *promoter)
{
	struct candidate *candidate = promoter->candidate;
	size_t kept = 0;

	qsort(candidate, promoter->candidates, sizeof(*candidate), by_page);
	for (size_t i = 0; i < promoter->candidates; i++) {
		if (kept == 0 || candidate[kept - 1].page != candidate[i].page)
			candidate[kept++] = candidate[i];
	}
	promoter->candidates = kept;
	qsort(candidate, kept, sizeof(*candidate), by_heat);
}

static int with_room(const int64_t *room, const int16_t *ways, uint64_t bytes)
{
	for (int way = 0; way < TIERD_WAYS && ways[way] >= 0; way++) {
		if (ways[way] < TIERD_NODES && room[ways[way]] >= (int64_t)bytes)
			return ways[way];
	}
	return -1;
}

static bool leads_to(const int16_t *ways, int node)
{
	for (int way = 0; way < TIERD_WAYS && ways[way] >= 0; way++) {
		if (ways[way] == node)
			return true;
	}
	return false;
}

/* Heat that a candidate must have to push out a page of heat `victim` (0: into free room). */
static float bar_of(const struct tierd_promoter *promoter, const struct candidate *candidate,
		    float victim)
{
	return victim * (1.0F + promoter->settings.margin) +
	       promoter->settings.confidence * sqrtf(candidate->doubt + victim);
}

/* The next victim on a node of `ways` (any node without), NULL if there is none. */
static const struct tierd_victim *next_victim(struct tierd_promoter *promoter, const int16_t *ways)
{
	const struct tierd_orders *orders = &promoter->orders;

	while (promoter->next_victim < orders->victims) {
		const struct tierd_victim *victim = &orders->victim[promoter->next_victim];

		if (victim->node >= 0 && victim->node < TIERD_NODES &&
		    (ways == NULL || leads_to(ways, victim->node)))
			return victim;
		promoter->next_victim++;
	}
	return NULL;
}

/* Plan the demotion of the next victim; false if nothing below has room. */
static bool demote(struct tierd_promoter *promoter, const struct tierd_victim *victim,
		   uint64_t now_ns)
{
	struct moves *down = &promoter->down;
	uint64_t bytes = order_bytes(victim->order);
	int dest = with_room(promoter->room, promoter->orders.down[victim->node], bytes);
	size_t i = down->n;

	if (dest < 0 || i == MOVES_MAX)
		return false;
	promoter->next_victim++;
	down->page[i] = victim->page;
	down->heat[i] = victim->heat;
	down->bar[i] = NAN;
	down->doubt[i] = 0.0F;
	down->seen_ns[i] = now_ns;
	down->source[i] = victim->node;
	down->dest[i] = (int16_t)dest;
	down->order[i] = victim->order;
	down->n++;
	promoter->room[dest] -= (int64_t)bytes;
	promoter->room[victim->node] += (int64_t)bytes;
	return true;
}

/* A place for a candidate: 0, or the reason why there is none now. */
static enum tierd_reason place(struct tierd_promoter *promoter, struct candidate *candidate,
			       uint64_t now_ns)
{
	const int16_t *ways = promoter->orders.up[candidate->node];
	const struct tierd_victim *victim;
	int dest = with_room(promoter->room, ways, PAGE_BYTES);

	if (dest < 0) {
		victim = next_victim(promoter, ways);
		candidate->bar = bar_of(promoter, candidate, victim == NULL ? 0.0F : victim->heat);
		if (!(candidate->heat > candidate->bar))
			return TIERD_NOT_HOTTER;
		if (victim == NULL || !demote(promoter, victim, now_ns))
			return TIERD_NO_PLACE;
		dest = with_room(promoter->room, ways, PAGE_BYTES);
		if (dest < 0)
			return TIERD_NO_PLACE;
	} else {
		candidate->bar = bar_of(promoter, candidate, 0.0F);
		if (!(candidate->heat > candidate->bar))
			return TIERD_NOT_HOTTER;
	}
	candidate->dest = (int16_t)dest;
	promoter->room[dest] -= (int64_t)PAGE_BYTES;
	return TIERD_HOTTER;
}

static void promote(struct tierd_promoter *promoter, const struct candidate *candidate)
{
	struct moves *up = &promoter->up;
	size_t i = up->n++;

	up->page[i] = candidate->page;
	up->heat[i] = candidate->heat;
	up->doubt[i] = candidate->doubt;
	up->bar[i] = candidate->bar;
	up->seen_ns[i] = candidate->seen_ns;
	up->source[i] = candidate->node;
	up->dest[i] = candidate->dest;
	up->order[i] = 0;
	if (!(promoter->coldest_promoted <= candidate->heat))
		promoter->coldest_promoted = candidate->heat;
}

/* Pages planned in one interval at most: twice what the quota allows in it. */
static size_t at_a_time(const struct tierd_promoter *promoter)
{
	const struct tierd_promoter_settings *settings = &promoter->settings;
	double pages = 2.0 * (double)settings->quota_bytes_per_s *
		       ((double)settings->interval_ns * 1e-9) / (double)PAGE_BYTES;

	if (pages < 64.0)
		return 64;
	return pages < (double)MOVES_MAX ? (size_t)pages : MOVES_MAX;
}

/* Fill `up` and `down`; candidates that must wait stay, the others are told of. */
void pick(struct tierd_promoter *promoter, uint64_t now_ns)
{
	struct candidate *candidate = promoter->candidate;
	size_t kept = 0, affordable;
	double tokens;

	promoter->coldest_promoted = NAN;
	bucket_fill(&promoter->quota, now_ns);
	tokens = promoter->quota.tokens > 0.0 ? promoter->quota.tokens : 0.0;
	affordable = (size_t)(tokens / (double)PAGE_BYTES);
	if (affordable > at_a_time(promoter))
		affordable = at_a_time(promoter);
	/* Who waits is in order already, and sorting thousands costs more than moving some. */
	if (promoter->fresh)
		order_candidates(promoter);
	promoter->fresh = false;
	for (size_t i = 0; i < promoter->candidates; i++) {
		enum tierd_reason reason = TIERD_OVER_QUOTA;

		if (promoter->up.n < affordable)
			reason = place(promoter, &candidate[i], now_ns);
		if (reason == TIERD_HOTTER) {
			promote(promoter, &candidate[i]);
		} else if (reason != TIERD_NOT_HOTTER && kept < CANDIDATES_MAX / 2 &&
			   now_ns - candidate[i].seen_ns < promoter->settings.patience_ns) {
			candidate[kept] = candidate[i];
			candidate[kept++].reason = (uint8_t)reason;
		} else {
			if (kept == CANDIDATES_MAX / 2)
				reason = TIERD_OVERFLOW;
			hold_back(promoter, &candidate[i], reason, now_ns);
		}
	}
	promoter->candidates = kept;
}

/*
 * Room for what the next interval is likely to bring, over pages that are colder than the
 * coldest that was promoted just now.
 */
void pick_ahead(struct tierd_promoter *promoter)
{
	const struct tierd_victim *victim;
	uint64_t now_ns = sys_monotonic_ns();

	if (!(promoter->demand >= (double)PAGE_BYTES) || isnan(promoter->coldest_promoted))
		return;
	while ((victim = next_victim(promoter, NULL)) != NULL) {
		struct candidate expected = {.heat = promoter->coldest_promoted};

		if ((double)promoter->room[victim->node] >= promoter->demand ||
		    !(expected.heat > bar_of(promoter, &expected, victim->heat)) ||
		    !demote(promoter, victim, now_ns))
			return;
	}
}
