// SPDX-License-Identifier: GPL-2.0-only
/*
 * The scanner's settings, and its CPU time as a token bucket: tokens come in at the
 * budget's rate and are taken for what the scheduler says the thread has run.
 */
#include "compat.h"
#include "tierd.h"

#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/sched.h>
#include <linux/spinlock.h>

#define CREDIT_NS (2 * NSEC_PER_SEC) /* of budget that an idle scanner may save up */

static struct tierd_settings tierd_settings_now;
static DEFINE_SPINLOCK(tierd_settings_lock);

/**
 * tierd_settings_get() - the settings in force
 * @settings: where they go
 */
void tierd_settings_get(struct tierd_settings *settings)
{
	spin_lock(&tierd_settings_lock);
	*settings = tierd_settings_now;
	spin_unlock(&tierd_settings_lock);
}

/* Why settings are refused, or NULL; `error` gets the errno. */
static const char *tierd_budget_refused(const struct tierd_settings *settings, int *error)
{
	*error = -ERANGE;
	if (settings->period_us < 1000)
		return "period-us is 1000 or more";
	if (settings->budget_ppm < 100 || settings->budget_ppm > USEC_PER_SEC)
		return "budget-ppm is from 100 to 1000000";
	if (!settings->hot_scans || settings->hot_scans > TIERD_HISTORY)
		return "hot-scans is from 1 to 8";
	if (settings->cold_scans >= settings->hot_scans)
		return "cold-scans is less than hot-scans";
	if (!settings->report_scans || settings->report_scans > TIERD_HISTORY)
		return "report-scans is from 1 to 8";
	if (settings->sampling_interval_us &&
	    (settings->sampling_interval_us < TIERD_SAMPLING_INTERVAL_MIN_US ||
	     settings->sampling_interval_us > settings->period_us))
		return "sampling-interval-us is 0, or from 100 to period-us";
	*error = -EINVAL;
	if (settings->flags & ~TIERD_SCAN_FLAGS_ALL)
		return "no such flag";
	*error = -EOPNOTSUPP;
	if (settings->flags & (TIERD_SCAN_DIRTY | TIERD_SCAN_FLUSH) && !tierd_can_flush())
		return "dirty and flush: a module cannot flush the TLB here (no INVPCID)";
	/* Translations that CPUs keep would leave used pages' bits clear: all would look colder. */
	if (settings->sampling_interval_us && !tierd_can_flush())
		return "sampling-interval-us: a module cannot flush the TLB here (no INVPCID)";
	*error = 0;
	return NULL;
}

/**
 * tierd_settings_set() - put settings into force
 * @settings: the settings
 * @why: the reason of a refusal
 *
 * All or none.
 *
 * Return: 0 or a negative errno.
 */
int tierd_settings_set(const struct tierd_settings *settings, const char **why)
{
	int ret;

	*why = tierd_budget_refused(settings, &ret);
	if (ret)
		return ret;
	spin_lock(&tierd_settings_lock);
	tierd_settings_now = *settings;
	spin_unlock(&tierd_settings_lock);
	return 0;
}

/**
 * tierd_bucket_wait() - how long to sleep before the next slice may run
 * @bucket: the budget and what is owed to it
 * @budget_ppm: millionths of a CPU
 *
 * Until what is owed is paid. What waking up itself took is owed after that. To wait for it as
 * well would not end with a small budget: each wait brings in no more than the next waking up
 * takes.
 *
 * Return: Nanoseconds, 0 if it may run now.
 */
u64 tierd_bucket_wait(struct tierd_bucket *bucket, u32 budget_ppm)
{
	u64 now = ktime_get_ns(), spent = current->se.sum_exec_runtime;
	s64 most = div_u64((u64)CREDIT_NS * budget_ppm, USEC_PER_SEC);
	u64 passed = min_t(u64, now - bucket->seen_ns, 10 * NSEC_PER_SEC);

	bucket->tokens += div_u64(passed * budget_ppm, USEC_PER_SEC);
	bucket->tokens = min(bucket->tokens, most);
	bucket->tokens -= spent - bucket->spent_ns;
	bucket->seen_ns = now;
	bucket->spent_ns = spent;
	WRITE_ONCE(tierd_stats.cpu_ns, spent);
	if (bucket->budget_ppm != budget_ppm)
		bucket->paid_ns = 0;
	bucket->budget_ppm = budget_ppm;
	if (bucket->tokens >= 0 || (bucket->paid_ns && now >= bucket->paid_ns)) {
		bucket->paid_ns = 0;
		return 0;
	}
	if (!bucket->paid_ns)
		bucket->paid_ns =
			now + 1 + div_u64((u64)-bucket->tokens * USEC_PER_SEC, budget_ppm);
	return bucket->paid_ns - now;
}
