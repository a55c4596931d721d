// SPDX-License-Identifier: GPL-2.0-only
/* The vendor block of a NeoProf card: histogram, bandwidth, error bound, counters. */
#include "neoprof_chmu.h"

#define SNAPSHOT_WORDS ((NEOPROF_SNAPSHOT_SKIPPED_RUN - NEOPROF_SNAPSHOT_SEQUENCE) / 8 + 1)
#define VENDOR_MAJOR NEOPROF_VENDOR_ID_MAJOR_VALUE

/**
 * neoprof_vendor_identify() - find the vendor block
 * @card: the card
 *
 * It follows the first CHMU of our card, and of no other.
 *
 * Return: 0 or a negative errno.
 */
int neoprof_vendor_identify(struct neoprof_card *card)
{
	struct tierd_card_geometry *geometry = &card->geometry;
	u64 id, sketch, timebase;
	int ret;

	if (card->instance || NEOPROF_CHMU_AT(card, CAP0) != NEOPROF_CHMU0_CAP0)
		return 0;
	/* Another card may refuse to tell. */
	if (card->bus->read(card, NEOPROF_VENDOR_ID, 8, &id) ||
	    FIELD_GET(NEOPROF_VENDOR_ID_MAGIC_MASK, id) != NEOPROF_VENDOR_ID_MAGIC_VALUE)
		return 0;
	if (FIELD_GET(NEOPROF_VENDOR_ID_MAJOR_MASK, id) != VENDOR_MAJOR)
		return neoprof_chmu_refuse(card, "a NeoProf card of another major version");
	ret = neoprof_wait(card, NEOPROF_VENDOR_STATUS, 8, NEOPROF_VENDOR_STATUS_INITIALISING_MASK,
			   "the card's initialisation");
	ret = ret ?: neoprof_read(card, NEOPROF_VENDOR_GEOMETRY, 8, &sketch);
	ret = ret ?: neoprof_read(card, NEOPROF_VENDOR_TIMEBASE, 8, &timebase);
	if (ret)
		return ret;
	if (FIELD_GET(NEOPROF_VENDOR_GEOMETRY_LOG2_WIDTH_MASK, sketch) > 31 ||
	    FIELD_GET(NEOPROF_VENDOR_GEOMETRY_LOG2_CAPACITY_MASK, sketch) > 63)
		return neoprof_chmu_refuse(card, "a sketch of impossible geometry");
	geometry->depth = FIELD_GET(NEOPROF_VENDOR_GEOMETRY_DEPTH_MASK, sketch);
	geometry->width = 1u << FIELD_GET(NEOPROF_VENDOR_GEOMETRY_LOG2_WIDTH_MASK, sketch);
	geometry->channels = FIELD_GET(NEOPROF_VENDOR_GEOMETRY_CHANNELS_MASK, sketch);
	geometry->capacity = 1ull << FIELD_GET(NEOPROF_VENDOR_GEOMETRY_LOG2_CAPACITY_MASK, sketch);
	geometry->cycles_100us = timebase & NEOPROF_VENDOR_TIMEBASE_CYCLES_PER_100US_MASK;
	geometry->features |= TIERD_CARD_HAS_BANDWIDTH | TIERD_CARD_HAS_COUNTERS |
			      TIERD_CARD_HAS_CONSERVATIVE | TIERD_CARD_HAS_CLEAR;
	if (FIELD_GET(NEOPROF_VENDOR_GEOMETRY_HISTOGRAM_BINS_MASK, sketch) == TIERD_CARD_BINS) {
		geometry->bins = TIERD_CARD_BINS;
		geometry->features |= TIERD_CARD_HAS_HISTOGRAM | TIERD_CARD_HAS_ERROR_BOUND;
	}
	if (FIELD_GET(NEOPROF_VENDOR_GEOMETRY_LOG2_RUNS_MASK, sketch))
		geometry->features |= TIERD_CARD_HAS_COALESCE;
	return 0;
}

/* Lets the card copy its counters to where they can be read. */
static int neoprof_vendor_snapshot(struct neoprof_card *card)
{
	int ret;

	if (!neoprof_chmu_has_vendor(card)) {
		strscpy(card->why, "a CHMU without a vendor block has no counters to tell",
			sizeof(card->why));
		return -EOPNOTSUPP;
	}
	ret = neoprof_write(card, NEOPROF_VENDOR_COMMAND, 8, NEOPROF_VENDOR_COMMAND_SNAPSHOT_MASK);
	return ret
		       ?: neoprof_wait(card, NEOPROF_VENDOR_STATUS, 8,
				       NEOPROF_VENDOR_STATUS_SNAPSHOT_PENDING_MASK, "a snapshot");
}

/**
 * neoprof_vendor_requests() - reads and writes since the reset
 * @card: the card
 * @requests: how many
 *
 * Return: 0, -EOPNOTSUPP without a vendor block, or another negative errno.
 */
int neoprof_vendor_requests(struct neoprof_card *card, u64 *requests)
{
	u64 reads, writes;
	int ret = neoprof_vendor_snapshot(card);

	ret = ret ?: neoprof_read(card, NEOPROF_SNAPSHOT_READ_BEATS, 8, &reads);
	ret = ret ?: neoprof_read(card, NEOPROF_SNAPSHOT_WRITE_BEATS, 8, &writes);
	if (!ret)
		*requests = reads + writes;
	return ret;
}

/**
 * neoprof_vendor_profile() - counters and histogram of one moment
 * @card: the card
 * @profile: the counters
 *
 * Return: 0, -EOPNOTSUPP without a vendor block, or another negative errno.
 */
int neoprof_vendor_profile(struct neoprof_card *card, struct tierd_profile *profile)
{
	/* A card that does not coalesce has no count of it, nor a register. */
	const unsigned int count =
		SNAPSHOT_WORDS - !(card->geometry.features & TIERD_CARD_HAS_COALESCE);
	u64 words[SNAPSHOT_WORDS] = {}, bound, rank, threshold;
	int ret = neoprof_vendor_snapshot(card);

	ret = ret ?: neoprof_read_block(card, NEOPROF_SNAPSHOT_SEQUENCE, 8, count, words);
	if (card->geometry.features & TIERD_CARD_HAS_HISTOGRAM)
		ret = ret
			      ?: neoprof_read_block(card, NEOPROF_HISTOGRAM_BIN, 8, TIERD_CARD_BINS,
						    profile->histogram);
	ret = ret ?: neoprof_read(card, NEOPROF_VENDOR_ERROR_BOUND, 8, &bound);
	ret = ret ?: neoprof_read(card, NEOPROF_VENDOR_ERROR_RANK, 8, &rank);
	ret = ret ?: neoprof_read(card, NEOPROF_VENDOR_THRESHOLD_IN_FORCE, 8, &threshold);
	if (ret)
		return ret;
#define WORD(name) words[(NEOPROF_SNAPSHOT_##name - NEOPROF_SNAPSHOT_SEQUENCE) / 8]
	profile->sequence = WORD(SEQUENCE);
	profile->cycles = WORD(CYCLES);
	profile->read_beats = WORD(READ_BEATS);
	profile->write_beats = WORD(WRITE_BEATS);
	profile->busy_cycles = WORD(BUSY_CYCLES);
	profile->offered = WORD(OFFERED);
	profile->counted = WORD(COUNTED);
	profile->skipped_type = WORD(SKIPPED_TYPE);
	profile->skipped_range = WORD(SKIPPED_RANGE);
	profile->skipped_sample = WORD(SKIPPED_SAMPLE);
	profile->reports = WORD(REPORTS);
	profile->reports_refused = WORD(REPORTS_REFUSED);
	profile->saturated = WORD(SATURATED);
	profile->epoch = WORD(EPOCH);
	profile->epoch_start = WORD(EPOCH_START);
	profile->applied_at = WORD(APPLIED_AT);
	profile->skipped_run = WORD(SKIPPED_RUN);
#undef WORD
	profile->valid =
		card->geometry.features & (TIERD_CARD_HAS_HISTOGRAM | TIERD_CARD_HAS_BANDWIDTH |
					   TIERD_CARD_HAS_COUNTERS | TIERD_CARD_HAS_ERROR_BOUND);
	if (!(bound & NEOPROF_VENDOR_ERROR_BOUND_VALID_MASK))
		profile->valid &= ~TIERD_CARD_HAS_ERROR_BOUND;
	profile->error_low = FIELD_GET(NEOPROF_VENDOR_ERROR_BOUND_LOW_MASK, bound);
	profile->error_high = FIELD_GET(NEOPROF_VENDOR_ERROR_BOUND_HIGH_MASK, bound);
	profile->error_bin = FIELD_GET(NEOPROF_VENDOR_ERROR_BOUND_BIN_MASK, bound);
	profile->error_rank = rank;
	profile->threshold = threshold;
	profile->bins = card->geometry.bins;
	return 0;
}
