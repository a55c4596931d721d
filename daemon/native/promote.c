/* SPDX-License-Identifier: Apache-2.0 */
/* The promoter's thread, its orders, and its queries. */
#define _GNU_SOURCE
#include "promote.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "sys.h"
#include "tierd.h"

static bool valid(const struct tierd_promoter_settings *settings)
{
	return settings->interval_ns >= 1000000 && settings->quota_bytes_per_s > 0 &&
	       settings->margin >= 0.0F && settings->confidence >= 0.0F &&
	       settings->heat_s > 0.0F && settings->rate_cap > 0.0F && settings->visits > 0.0F &&
	       settings->copy_requests >= 0.0F && settings->least_rate >= 0.0F &&
	       settings->return_rate >= 0.0F && settings->slice_ns > 0 &&
	       settings->min_epoch_age_ns > 0 && settings->demand_weight > 0.0 &&
	       settings->demand_weight <= 1.0;
}

static void apply(struct tierd_promoter *promoter, const struct tierd_promoter_settings *settings)
{
	double quota = (double)settings->quota_bytes_per_s;
	double burst =
	    fmin(fmax(quota * settings->burst_fraction, settings->min_burst_bytes), quota / 2.0);

	/* Rate and burst together: so much in any second, not only on average. */
	promoter->settings = *settings;
	promoter->rule = (struct tierd_rule){
	    .margin = settings->margin,
	    .sigmas = settings->confidence,
	    .least = settings->confidence * settings->confidence * settings->visits,
	    .cost = settings->least_rate * settings->visits * settings->heat_s,
	    .posterior = settings->expected,
	};
	bucket_set(&promoter->quota, quota - burst, burst, tap_now(promoter));
}

int tierd_promoter_new(struct tierd_mover *mover, const struct tierd_promoter_settings *settings,
		       struct tierd_promoter **out)
{
	struct tierd_promoter *promoter;

	if (mover == NULL || !valid(settings))
		return -EINVAL;
	promoter = calloc(1, sizeof(*promoter));
	if (promoter == NULL)
		return -ENOMEM;
	promoter->outcome = malloc(OUTCOMES_MAX * sizeof(*promoter->outcome));
	if (promoter->outcome == NULL || pthread_mutex_init(&promoter->lock, NULL) != 0) {
		free(promoter->outcome);
		free(promoter);
		return -ENOMEM;
	}
	promoter->mover = mover;
	waiting_clear(&promoter->waiting);
	promoter->quota.filled_ns = sys_monotonic_ns();
	apply(promoter, settings);
	memset(promoter->orders.up, 0xff, sizeof(promoter->orders.up));
	memset(promoter->orders.down, 0xff, sizeof(promoter->orders.down));
	memset(promoter->orders.free_fd, 0xff, sizeof(promoter->orders.free_fd));
	*out = promoter;
	return 0;
}

void tierd_promoter_free(struct tierd_promoter *promoter)
{
	if (promoter == NULL)
		return;
	tierd_promoter_stop(promoter);
	pthread_mutex_destroy(&promoter->lock);
	free((void *)promoter->orders.span);
	free(promoter->outcome);
	free(promoter->tap);
	free(promoter);
}

int tierd_promoter_set(struct tierd_promoter *promoter,
		       const struct tierd_promoter_settings *settings)
{
	if (!valid(settings))
		return -EINVAL;
	enter(promoter, TIERD_TAP_SET);
	apply(promoter, settings);
	leave(promoter, 0);
	return 0;
}

int tierd_promoter_set_ring(struct tierd_promoter *promoter, void *memory, size_t bytes)
{
	const struct tierd_ring_info *info = memory;
	struct ring ring = {0};

	if (memory != NULL) {
		if (bytes < TIERD_RING_DATA || info->capacity == 0 ||
		    info->record_size != sizeof(struct tierd_hot_record) ||
		    (bytes - TIERD_RING_DATA) / info->record_size < info->capacity)
			return -EINVAL;
		ring.memory = memory;
		ring.capacity = info->capacity;
		memcpy(&ring.head, ring.memory + TIERD_RING_HEAD, sizeof(ring.head));
	}
	pthread_mutex_lock(&promoter->lock);
	promoter->ring = ring;
	pthread_mutex_unlock(&promoter->lock);
	return 0;
}

/* Copy an array to where `*at` points, which goes on behind it. */
static const void *copy(char **at, const void *array, size_t bytes)
{
	char *copied = *at;

	if (bytes > 0)
		memcpy(copied, array, bytes);
	*at += bytes;
	return copied;
}

int tierd_promoter_steer(struct tierd_promoter *promoter, const struct tierd_orders *orders)
{
	const size_t spans = orders->spans * sizeof(*orders->span);
	const size_t victims = orders->victims * sizeof(*orders->victim);
	const size_t processes = orders->processes * sizeof(*orders->process);
	struct tierd_orders fresh = *orders;
	char *at = malloc(spans + victims + processes + 1);
	const void *old;

	if (at == NULL)
		return -ENOMEM;
	/* The spans begin the block that has all three. */
	fresh.span = copy(&at, orders->span, spans);
	fresh.victim = copy(&at, orders->victim, victims);
	fresh.process = copy(&at, orders->process, processes);
	enter(promoter, TIERD_TAP_STEER);
	old = promoter->orders.span;
	promoter->orders = fresh;
	promoter->ordered_ns = tap_now(promoter);
	promoter->next_victim = promoter->last_span = 0;
	promoter->rest_until_ns = 0;
	note_free(promoter);
	leave(promoter, 0);
	free((void *)old);
	return 0;
}

int64_t tierd_promoter_step(struct tierd_promoter *promoter)
{
	int64_t pages;

	enter(promoter, TIERD_TAP_STEP);
	pages = promote_work(promoter);
	leave(promoter, (uint64_t)pages);
	return pages;
}

static void *run(void *argument)
{
	struct tierd_promoter *promoter = argument;
	uint64_t due = sys_monotonic_ns();
	sigset_t all;

	/* Signals are for the threads that Python knows. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	while (atomic_load(&promoter->stop) == 0) {
		unsigned int wake = atomic_load(&promoter->wake);
		uint64_t now, interval;

		tierd_promoter_step(promoter);
		pthread_mutex_lock(&promoter->lock);
		interval = promoter->settings.interval_ns;
		pthread_mutex_unlock(&promoter->lock);
		now = sys_monotonic_ns();
		due = due + interval > now ? due + interval : now + interval / 4;
		if (atomic_load(&promoter->stop) == 0)
			sys_wait(&promoter->wake, wake, due - now);
	}
	return NULL;
}

int tierd_promoter_start(struct tierd_promoter *promoter)
{
	int err;

	if (promoter->running)
		return -EALREADY;
	atomic_store(&promoter->stop, 0);
	err = pthread_create(&promoter->thread, NULL, run, promoter);
	promoter->running = err == 0;
	return -err;
}

void tierd_promoter_stop(struct tierd_promoter *promoter)
{
	if (!promoter->running)
		return;
	atomic_store(&promoter->stop, 1);
	atomic_fetch_add(&promoter->wake, 1);
	sys_wake(&promoter->wake);
	pthread_join(promoter->thread, NULL);
	promoter->running = false;
	atomic_store(&promoter->stop, 0);
}

void tierd_promoter_hold(struct tierd_promoter *promoter)
{
	atomic_fetch_add(&promoter->holds, 1);
	/* Work that had begun notices, and gives the lock back. */
	pthread_mutex_lock(&promoter->lock);
	pthread_mutex_unlock(&promoter->lock);
}

void tierd_promoter_release(struct tierd_promoter *promoter)
{
	atomic_fetch_sub(&promoter->holds, 1);
}

int64_t tierd_promoter_take(struct tierd_promoter *promoter, struct tierd_outcome *out, size_t room)
{
	size_t n;

	pthread_mutex_lock(&promoter->lock);
	n = promoter->outcomes < room ? promoter->outcomes : room;
	memcpy(out, promoter->outcome, n * sizeof(*out));
	promoter->outcomes -= n;
	if (promoter->outcomes > 0)
		memmove(promoter->outcome, promoter->outcome + n,
			promoter->outcomes * sizeof(*out));
	pthread_mutex_unlock(&promoter->lock);
	return (int64_t)n;
}

uint64_t tierd_promoter_quota_left(struct tierd_promoter *promoter)
{
	uint64_t quota, spent, left;

	enter(promoter, TIERD_TAP_QUOTA);
	quota = promoter->settings.quota_bytes_per_s;
	spent = promoted_lately(promoter);
	left = quota > spent ? quota - spent : 0;
	leave(promoter, left);
	return left;
}

void tierd_promoter_note(struct tierd_promoter *promoter, const uint64_t *page,
			 const uint8_t *order, const uint8_t *fate, const uint8_t *direction,
			 size_t n, uint64_t time_ns)
{
	uint64_t bytes = 0;

	enter(promoter, TIERD_TAP_NOTE);
	for (size_t i = 0; i < n; i++) {
		if (fate[i] != TIERD_MOVED)
			continue;
		if (direction[i] == TIERD_PROMOTE) {
			bytes += folio_bytes(order[i]);
			/* It need not wait to be promoted any more. */
			if (promoter->waiting.n > 0)
				promoter->stats.stale +=
				    waiting_remove(&promoter->waiting, page[i]);
		}
		promoter->stats.bounced += recent_add(promoter, page[i], direction[i], time_ns);
	}
	spend_quota(promoter, bytes);
	leave(promoter, 0);
}

void tierd_promoter_get_stats(struct tierd_promoter *promoter, struct tierd_promoter_stats *stats)
{
	pthread_mutex_lock(&promoter->lock);
	*stats = promoter->stats;
	stats->pending = promoter->waiting.n;
	stats->victims = promoter->orders.victims - promoter->next_victim;
	if (promoter->ring.memory != NULL) {
		const struct tierd_ring_info *info = (const void *)promoter->ring.memory;

		stats->ring_dropped = info->dropped;
		stats->ring_closing = info->closing;
	}
	pthread_mutex_unlock(&promoter->lock);
}
