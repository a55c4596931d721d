/* SPDX-License-Identifier: Apache-2.0 */
/* What Python sees of the module's records. As in tierd_native.h, plain declarations only. */
#ifndef TIERD_RECORDS_H
#define TIERD_RECORDS_H

#include "tierd_promoter.h"

/* ---- records of the module's scanner ---- */

/* The values of a record's history, and the most scans that it covers. */
enum { TIERD_HISTORIES = 256, TIERD_DEPTHS = 9 };

/* Kinds and flags of records, as kmod/uapi/tierd.h has them (a test compares). */
enum {
	TIERD_KIND_PAGE = 1,
	TIERD_KIND_ROUND = 2,
	TIERD_RECORD_HOT = 1,
	TIERD_RECORD_CHANGED = 2,
	TIERD_RECORD_DIRTY = 4,
	TIERD_RECORD_PMD = 32,
};

/*
 * The hot pages among records of a scan, and the accesses that each stands for.
 *
 * keep: NULL, or which records to take, by record. stays, becomes: accesses, by depth and
 * history, of a page that stays hot and of one that has become so. dirty: NULL, or room for
 * whether each page was written to. node: where each was met, -1 for one of a huge folio. Returns
 * the number of pages.
 */
size_t tierd_scan_records(const struct tierd_hot_record *record, size_t n, const uint8_t *keep,
			  const float *stays, const float *becomes, uint64_t *page, float *count,
			  uint8_t *dirty, int16_t *node);

/* The first record from `at` on that tells of a scan's end; `n` if there is none. */
size_t tierd_scan_ended(const struct tierd_hot_record *record, size_t n, size_t at);

/* What a card's records are weighed with; arrays are by card. */
struct tierd_hot_epochs {
	uint64_t start_ns[256];
	uint64_t before_ns[256];
	float scale[256];
	uint64_t least_age_ns;
	float rate_cap;
	float copy_requests;
	float visits; /* a request stands for */
};

/*
 * The hot records of cards, and the accesses since the start of their epoch that each stands
 * for. copied: NULL, or whether requests of the page's own copy are among them, by record.
 * current: whether its epoch still lasts. node: as above. Returns the number of pages.
 */
size_t tierd_hot_records(const struct tierd_hot_record *record, size_t n, const uint8_t *copied,
			 const struct tierd_hot_epochs *epochs, uint64_t *page, float *count,
			 float *rate, uint64_t *told_ns, uint8_t *current, int16_t *node);

#endif
