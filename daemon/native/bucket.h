/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Token bucket. In any window of t seconds at most rate x t + burst bytes are
 * taken. Tokens must be there before the work starts, and are subtracted when it
 * ends, so that the bucket does not refill while the work is under way.
 */
#ifndef TIERD_BUCKET_H
#define TIERD_BUCKET_H

#include <stdint.h>

struct bucket {
	double rate_per_ns;
	double burst;
	double tokens;
	uint64_t filled_ns;
};

static inline void bucket_fill(struct bucket *bucket, uint64_t now_ns)
{
	if (now_ns > bucket->filled_ns)
		bucket->tokens += bucket->rate_per_ns * (double)(now_ns - bucket->filled_ns);
	bucket->filled_ns = now_ns;
	if (bucket->tokens > bucket->burst)
		bucket->tokens = bucket->burst;
}

static inline void bucket_set(struct bucket *bucket, double rate_per_s, double burst,
			      uint64_t now_ns)
{
	bucket_fill(bucket, now_ns);
	bucket->rate_per_ns = rate_per_s / 1e9;
	bucket->burst = burst;
	if (bucket->tokens > burst)
		bucket->tokens = burst;
}

/* Nanoseconds until `amount` is there; 0 if it is. */
static inline uint64_t bucket_wait_ns(const struct bucket *bucket, double amount)
{
	double missing = amount - bucket->tokens;

	if (missing <= 0.0)
		return 0;
	missing = missing / bucket->rate_per_ns + 1.0;
	return missing < 1e18 ? (uint64_t)missing : (uint64_t)1e18;
}

static inline void bucket_take(struct bucket *bucket, double amount, uint64_t now_ns)
{
	bucket_fill(bucket, now_ns);
	bucket->tokens -= amount;
}

#endif
