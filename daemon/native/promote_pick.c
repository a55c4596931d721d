/* SPDX-License-Identifier: Apache-2.0 */
/* Picks moves: the hottest candidates first, into free memory or over colder pages. */
#include <math.h>
#include <string.h>

#include "promote.h"

/* MemFree, and what has moved in since the orders came: it need not be read at each change. */
static void ask(struct tierd_promoter *promoter, int node, uint64_t now_ns)
{
	promoter->free_said[node] =
	    (int64_t)tap_node_free(promoter, node) + promoter->moved_in[node];
	promoter->asked_ns[node] = now_ns;
}

/* Free bytes when new orders come. */
void note_free(struct tierd_promoter *promoter)
{
	const struct tierd_orders *orders = &promoter->orders;
	uint64_t now_ns = tap_now(promoter);

	for (int node = 0; node < TIERD_NODES; node++) {
		promoter->free_then[node] = promoter->moved_in[node] = promoter->left[node] = 0;
		if (orders->free_fd[node] < 0)
			continue;
		ask(promoter, node, now_ns);
		promoter->free_then[node] = promoter->free_said[node] + (int64_t)orders->held[node];
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
	uint64_t now_ns = tap_now(promoter);

	memset(promoter->room, 0, sizeof(promoter->room));
	for (int node = 0; node < TIERD_NODES; node++) {
		int64_t free, known, most;

		if (orders->free_fd[node] < 0)
			continue;
		if (now_ns - promoter->asked_ns[node] >= promoter->settings.free_read_ns)
			ask(promoter, node, now_ns);
		free = promoter->free_said[node] - promoter->moved_in[node];
		known = promoter->free_then[node] - promoter->moved_in[node];
		most = free + (int64_t)orders->held[node] + promoter->left[node];
		if (known > most)
			known = most;
		promoter->room[node] = (known > free ? known : free) - (int64_t)orders->low[node];
	}
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
	struct candidate leaves = {.page = victim->page,
				   .seen_ns = now_ns,
				   .hot = {.heat = victim->heat},
				   .bar = NAN,
				   .node = victim->node};
	uint64_t bytes = folio_bytes(victim->order);
	int dest = with_room(promoter->room, promoter->orders.down[victim->node], bytes);

	if (dest < 0 || promoter->down.n == MOVES_MAX)
		return false;
	promoter->next_victim++;
	leaves.dest = (int16_t)dest;
	plan_move(&promoter->down, &leaves, victim->order);
	promoter->room[dest] -= (int64_t)bytes;
	promoter->room[victim->node] += (int64_t)bytes;
	return true;
}

/* A place for a candidate: 0, or the reason why there is none now. */
static enum tierd_reason place(struct tierd_promoter *promoter, struct candidate *candidate,
			       uint64_t now_ns)
{
	const int16_t *ways = promoter->orders.up[candidate->node];
	int dest = with_room(promoter->room, ways, PAGE_BYTES);
	const struct tierd_victim *victim = dest < 0 ? next_victim(promoter, ways) : NULL;
	struct tierd_terms terms;

	tierd_rule_terms(&promoter->rule, &candidate->hot, victim == NULL ? 0.0F : victim->heat,
			 &terms);
	candidate->bar = candidate->hot.heat > terms.bar ? terms.price : terms.bar;
	if (!terms.promotes)
		return TIERD_NOT_HOTTER;
	candidate->bar = terms.bar;
	if (dest < 0) {
		if (victim == NULL || !demote(promoter, victim, now_ns))
			return TIERD_NO_PLACE;
		/* Below the watermark, too: what leaves makes room for what comes. */
		dest = with_room(promoter->room, ways, PAGE_BYTES);
		if (dest < 0)
			dest = victim->node;
	}
	candidate->dest = (int16_t)dest;
	promoter->room[dest] -= (int64_t)PAGE_BYTES;
	return TIERD_HOTTER;
}

static void promote(struct tierd_promoter *promoter, const struct candidate *candidate)
{
	plan_move(&promoter->up, candidate, 0);
	if (!(promoter->coldest_promoted <= candidate->hot.heat))
		promoter->coldest_promoted = candidate->hot.heat;
}

/* Whether some candidate waits on a node that is not closed. */
static bool any_open(const struct tierd_promoter *promoter, const bool *closed)
{
	const struct waiting *waiting = &promoter->waiting;
	size_t shut = 0;

	for (int node = 0; node < TIERD_NODES; node++)
		shut += closed[node] ? waiting->of_node[node] : 0;
	return waiting->n > shut;
}

/*
 * Reject candidates that had waited too long when the orders came, or that are too many. Late
 * orders reject none: a page is reported once an epoch, and the loop, which gives the orders,
 * ends epochs too.
 */
static void give_up(struct tierd_promoter *promoter, enum tierd_reason reason, uint64_t now_ns)
{
	struct waiting *waiting = &promoter->waiting;
	uint64_t patience_ns = promoter->settings.patience_ns, since_ns = promoter->ordered_ns;
	size_t n;

	if (promoter->swept_ns < since_ns && since_ns > patience_ns) {
		promoter->swept_ns = since_ns;
		n = waiting_since(waiting, since_ns - patience_ns, promoter->aside);
		for (size_t i = 0; i < n; i++)
			hold_back(promoter, &promoter->aside[i], reason, now_ns);
	}
	/* Not one by one: to put thousands in order costs much. */
	if (waiting->n <= WAITING_MAX + WAITING_MAX / 2)
		return;
	for (n = 0; n < WAITING_MAX; n++)
		promoter->aside[n] = waiting_pop(waiting);
	for (size_t i = 0; i < waiting->n; i++)
		hold_back(promoter, &waiting->pool[waiting->heap[i].index], TIERD_OVERFLOW, now_ns);
	waiting_clear(waiting);
	for (size_t i = 0; i < n; i++)
		waiting_add(waiting, &promoter->aside[i]);
}

/*
 * Fill `up` and `down`, the hottest first. Once a candidate of a node finds no place, none of
 * that node does in this interval: they wait, and are skipped.
 */
void pick(struct tierd_promoter *promoter, uint64_t now_ns)
{
	struct waiting *waiting = &promoter->waiting;
	enum tierd_reason waits_for = TIERD_OVER_QUOTA;
	bool closed[TIERD_NODES] = {false};
	size_t affordable, put_aside = 0;
	double tokens;

	promoter->coldest_promoted = NAN;
	bucket_fill(&promoter->quota, now_ns);
	tokens = promoter->quota.tokens > 0.0 ? promoter->quota.tokens : 0.0;
	affordable = (size_t)(tokens / (double)PAGE_BYTES);
	if (affordable > MOVES_MAX)
		affordable = MOVES_MAX;
	while (promoter->up.n < affordable && waiting->n > 0) {
		struct candidate candidate = waiting_pop(waiting);
		enum tierd_reason reason = TIERD_NO_PLACE;

		if (!closed[candidate.node])
			reason = place(promoter, &candidate, now_ns);
		if (reason == TIERD_HOTTER) {
			promote(promoter, &candidate);
		} else if (reason == TIERD_NOT_HOTTER) {
			hold_back(promoter, &candidate, reason, now_ns);
		} else {
			waits_for = reason;
			promoter->aside[put_aside++] = candidate;
			if (!closed[candidate.node]) {
				closed[candidate.node] = true;
				if (!any_open(promoter, closed))
					break;
			}
		}
	}
	for (size_t i = 0; i < put_aside; i++)
		waiting_add(waiting, &promoter->aside[i]);
	give_up(promoter, waits_for, now_ns);
}

/*
 * Room for what the next interval is likely to bring, over pages that are colder than the
 * coldest that was promoted just now.
 */
void pick_ahead(struct tierd_promoter *promoter)
{
	const struct tierd_estimate sure = {0};
	const struct tierd_victim *victim;
	uint64_t now_ns = tap_now(promoter);

	if (!(promoter->demand >= (double)PAGE_BYTES) || isnan(promoter->coldest_promoted))
		return;
	while ((victim = next_victim(promoter, NULL)) != NULL) {
		struct tierd_terms terms;

		tierd_rule_terms(&promoter->rule, &sure, victim->heat, &terms);
		if ((double)promoter->room[victim->node] >= promoter->demand ||
		    !(promoter->coldest_promoted > terms.bar) || !demote(promoter, victim, now_ns))
			return;
	}
}
