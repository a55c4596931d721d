// SPDX-License-Identifier: GPL-2.0-only
/*
 * The layout "neoprof-v1": the registers of the design published with the NeoMem paper
 * (MICRO 2024). 32-bit registers that are popped by reading; nothing identifies it, so it is
 * only used where it is asked for. What it cannot do:
 *
 *	count writes, conservative update, other units than 4 KiB
 *	report counts: entries say the threshold + 1
 *	keep its counters when the threshold changes
 *	clear by itself, or without losing requests: the module's clock resets it
 *	say what it dropped
 *
 * It cannot be stopped; a stopped card has the greatest threshold and is not drained.
 */
#include "neoprof.h"

#include <linux/delay.h>
#include <linux/ktime.h>

enum {
	V1_RESET = 0x200,	   /* write */
	V1_THRESHOLD = 0x300,	   /* write */
	V1_STATE_INTERVAL = 0x400, /* write: cycles between two samples of the state */
	V1_PAGE_INTERVAL = 0x500,  /* write: requests of which one is counted */
	V1_HISTOGRAM = 0x600,	   /* write: start one */
	V1_HOT_PAGES = 0x200,	   /* read: entries of the hot list */
	V1_HOT_PAGE = 0x300,	   /* read: pop one */
	V1_CYCLES = 0x500,	   /* read: sampled cycles, reads, writes */
	V1_READS = 0x600,
	V1_WRITES = 0x700,
	V1_WORD = 0x800,  /* read: pop a bin of the histogram */
	V1_WORDS = 0x900, /* read: bins that are ready */
};

/* The published size; it has no registers that tell. */
#define V1_WIDTH (512u << 10)
#define V1_DEPTH 2
#define V1_COUNTER_BITS 16
#define V1_SLOTS (16u << 10)
#define V1_UNIT_LOG2 12
#define V1_PAGE_BITS 32
#define V1_THRESHOLD_MAX 0xffff
#define V1_SAMPLE_CYCLES 1

static int neoprof_v1_put(struct neoprof_card *card, u32 offset, u32 value)
{
	return neoprof_write(card, offset, 4, value);
}

static int neoprof_v1_get(struct neoprof_card *card, u32 offset, u32 *value)
{
	u64 wide;
	int ret = neoprof_read(card, offset, 4, &wide);

	*value = wide;
	return ret;
}

static int neoprof_v1_identify(struct neoprof_card *card)
{
	u32 level;
	int ret = neoprof_v1_get(card, V1_HOT_PAGES, &level);

	if (ret)
		return ret;
	if (level > V1_SLOTS) {
		scnprintf(card->why, sizeof(card->why), "no NeoProf card: %u entries in its list",
			  level);
		return -ENODEV;
	}
	card->geometry = (struct tierd_card_geometry){
		.capacity = 1ull << (V1_PAGE_BITS + V1_UNIT_LOG2),
		.features = TIERD_CARD_HAS_HISTOGRAM | TIERD_CARD_HAS_BANDWIDTH |
			    TIERD_CARD_HAS_DOWNSAMPLE,
		.depth = V1_DEPTH,
		.width = V1_WIDTH,
		.counter_bits = V1_COUNTER_BITS,
		.channels = 2,
		.bins = TIERD_CARD_BINS,
		.slots = V1_SLOTS,
		.unit_sizes = 1u << V1_UNIT_LOG2,
		.threshold_max = V1_THRESHOLD_MAX,
	};
	return 0;
}

static int neoprof_v1_start(struct neoprof_card *card)
{
	int ret = neoprof_v1_put(card, V1_RESET, 1);

	ret = ret ?: neoprof_v1_put(card, V1_STATE_INTERVAL, V1_SAMPLE_CYCLES);
	ret = ret ?: neoprof_v1_put(card, V1_PAGE_INTERVAL, 1u << card->settings.downsample);
	ret = ret ?: neoprof_v1_put(card, V1_THRESHOLD, card->settings.threshold);
	memset(card->seen, 0, sizeof(card->seen));
	return ret;
}

static int neoprof_v1_stop(struct neoprof_card *card)
{
	return neoprof_v1_put(card, V1_THRESHOLD, V1_THRESHOLD_MAX);
}

static int neoprof_v1_level(struct neoprof_card *card, unsigned int *level, bool *overflow)
{
	int ret = neoprof_v1_get(card, V1_HOT_PAGES, level);

	if (ret)
		return ret;
	/* It drops what finds the list full, and does not say so. */
	*overflow = *level >= V1_SLOTS;
	*level = min(*level, V1_SLOTS);
	return 0;
}

static int neoprof_v1_take(struct neoprof_card *card, struct neoprof_entry *entries,
			   unsigned int count)
{
	unsigned int i;
	u32 page;
	int ret;

	for (i = 0; i < count; i++) {
		ret = neoprof_v1_get(card, V1_HOT_PAGE, &page);
		if (ret)
			return ret;
		entries[i] = (struct neoprof_entry){
			.unit = page,
			.count = card->settings.threshold + 1,
		};
	}
	return count;
}

static int neoprof_v1_taken(struct neoprof_card *card)
{
	return 0;
}

/* Lower edge of a bin: eight bins of each step, which doubles. */
static u32 neoprof_v1_bin_low(unsigned int bin)
{
	return (8u << (bin / 8)) - 8 + (bin % 8 << (bin / 8));
}

/* The rank-th largest counter of row 0 lies in the bin at which so many are in it or above. */
static void neoprof_v1_error_bound(struct neoprof_card *card, struct tierd_profile *profile)
{
	u64 above = 0;
	unsigned int bin = TIERD_CARD_BINS;

	profile->error_rank = card->settings.error_rank ?: V1_WIDTH / 2;
	while (bin-- && above < profile->error_rank) {
		above += profile->histogram[bin];
		profile->error_bin = bin;
	}
	if (above < profile->error_rank)
		return; /* more than there are counters */
	profile->error_low = neoprof_v1_bin_low(profile->error_bin);
	profile->error_high = profile->error_bin + 1 < TIERD_CARD_BINS
				      ? neoprof_v1_bin_low(profile->error_bin + 1) - 1
				      : V1_THRESHOLD_MAX;
	profile->valid |= TIERD_CARD_HAS_ERROR_BOUND;
}

static int neoprof_v1_ready_words(struct neoprof_card *card, u32 *ready)
{
	int ret = neoprof_v1_get(card, V1_WORDS, ready);

	if (!ret && *ready > TIERD_CARD_BINS) {
		scnprintf(card->why, sizeof(card->why), "%u words of a histogram", *ready);
		ret = -EIO;
	}
	return ret;
}

/* A histogram without a reset since the last one is added to that: `seen` is taken off. */
static int neoprof_v1_read_histogram(struct neoprof_card *card, struct tierd_profile *profile)
{
	u64 end = ktime_get_ns() + (u64)neoprof_timeout_ms * NSEC_PER_MSEC;
	u32 ready, word, left;
	unsigned int bin;
	int ret = neoprof_v1_ready_words(card, &left);

	/* What an earlier one left. */
	while (!ret && left--)
		ret = neoprof_v1_get(card, V1_WORD, &word);
	ret = ret ?: neoprof_v1_put(card, V1_HISTOGRAM, 1);
	for (;;) {
		ret = ret ?: neoprof_v1_ready_words(card, &ready);
		if (ret)
			return ret;
		if (ready == TIERD_CARD_BINS)
			break;
		if (ktime_get_ns() > end) {
			scnprintf(card->why, sizeof(card->why),
				  "the histogram had %u of 64 words after %u ms", ready,
				  neoprof_timeout_ms);
			return -ETIMEDOUT;
		}
		usleep_range(200, 1000);
	}
	for (bin = 0; bin < TIERD_CARD_BINS; bin++) {
		ret = neoprof_v1_get(card, V1_WORD, &word);
		if (ret)
			return ret;
		profile->histogram[bin] = word - card->seen[bin];
		card->seen[bin] = word;
	}
	return 0;
}

static int neoprof_v1_profile(struct neoprof_card *card, struct tierd_profile *profile)
{
	u32 cycles, reads, writes;
	int ret = neoprof_v1_get(card, V1_CYCLES, &cycles);

	ret = ret ?: neoprof_v1_get(card, V1_READS, &reads);
	ret = ret ?: neoprof_v1_get(card, V1_WRITES, &writes);
	ret = ret ?: neoprof_v1_read_histogram(card, profile);
	if (ret)
		return ret;
	profile->sequence = ++card->snapshots;
	profile->cycles = cycles;
	profile->read_beats = reads;
	profile->write_beats = writes;
	profile->threshold = card->state == TIERD_CARD_STATE_COUNTING ? card->settings.threshold
								      : V1_THRESHOLD_MAX;
	profile->bins = TIERD_CARD_BINS;
	profile->valid = TIERD_CARD_HAS_HISTOGRAM | TIERD_CARD_HAS_BANDWIDTH;
	neoprof_v1_error_bound(card, profile);
	return 0;
}

const struct neoprof_layout neoprof_v1 = {
	.name = "neoprof-v1",
	.identify = neoprof_v1_identify,
	.start = neoprof_v1_start,
	.stop = neoprof_v1_stop,
	.clear = neoprof_v1_start,
	.set_threshold =
		neoprof_v1_start, /* it clears the sketch in any case: then the rest, too */
	.level = neoprof_v1_level,
	.take = neoprof_v1_take,
	.taken = neoprof_v1_taken,
	.profile = neoprof_v1_profile,
};
EXPORT_SYMBOL_GPL(neoprof_v1);
