/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The 64-bit page key: target << 48 | virtual page number in units of 4 KiB.
 * The same layout as tierd.core.pagekey.
 */
#ifndef TIERD_PAGEKEY_H
#define TIERD_PAGEKEY_H

#include <stdbool.h>

#include "tierd_native.h"

#define PAGE_SHIFT 12
#define PAGE_BYTES (1UL << PAGE_SHIFT)
#define VPN_BITS 48
#define VPN_MASK ((UINT64_C(1) << VPN_BITS) - 1)

/* The one folio size above 4 KiB that tierd handles as a whole: 2 MiB. */
#define HUGE_ORDER 9
#define HUGE_PAGES (1UL << HUGE_ORDER)
#define HUGE_BYTES (HUGE_PAGES * PAGE_BYTES)

static inline uint64_t key_vpn(uint64_t key)
{
	return key & VPN_MASK;
}

static inline uint32_t key_target(uint64_t key)
{
	return (uint32_t)(key >> VPN_BITS);
}

/* Key of the first 4 KiB page of the 2 MiB block that `key` is in. */
static inline uint64_t key_head(uint64_t key)
{
	return key & ~(uint64_t)(HUGE_PAGES - 1);
}

static inline uint64_t folio_bytes(uint8_t order)
{
	return order >= HUGE_ORDER ? HUGE_BYTES : PAGE_BYTES;
}

/*
 * 2^64 over the golden ratio: neighbours lie as far apart as they can (Knuth, volume 3, 6.4). Its
 * upper bits alone are used.
 */
static inline uint64_t hash_key(uint64_t key)
{
	return key * UINT64_C(0x9E3779B97F4A7C15);
}

/* The first of spans, which ascend and are apart, that ends behind a page; n if there is none. */
static inline size_t span_at(const struct tierd_span *span, size_t n, uint64_t page)
{
	size_t low = 0;

	while (low < n) {
		size_t middle = low + (n - low) / 2;

		if (span[middle].end <= page)
			low = middle + 1;
		else
			n = middle;
	}
	return low;
}

#endif
