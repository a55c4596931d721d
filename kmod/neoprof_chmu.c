// SPDX-License-Identifier: GPL-2.0-only
/*
 * The layout of a CXL hotness monitoring unit (CXL r3.2, 8.2.8). neoprof_vendor.c has the block
 * that a NeoProf card has beside it.
 */
#include "neoprof_chmu.h"

#include <linux/ktime.h>

#define MODE_ALWAYS_ON 1
/* In 100 us: lines near each other, used again and again, are up to 1000 uses a second. */
#define RUN_WINDOW 10
/* Bytes behind an instance that its range bitmap and hot list may begin at. */
#define BLOCK_OFFSET_MAX (16u << 20)
#define RANGE_SHIFT 28 /* a bit of the range bitmap stands for 256 MiB */

static int neoprof_chmu_settled(struct neoprof_card *card, const char *what)
{
	return neoprof_wait(card, NEOPROF_CHMU_AT(card, STATUS), 8,
			    NEOPROF_CHMU0_STATUS_OPERATION_MASK, what);
}

static int neoprof_chmu_identify(struct neoprof_card *card)
{
	struct tierd_card_geometry *geometry = &card->geometry;
	u64 common, length, cap0, cap1, status, bitmap, hotlist;
	int ret;

	*geometry = (struct tierd_card_geometry){};
	ret = neoprof_read(card, NEOPROF_CHMU_CAP0, 8, &common);
	ret = ret ?: neoprof_read(card, NEOPROF_CHMU_CAP1, 8, &length);
	if (ret)
		return ret;
	if (FIELD_GET(NEOPROF_CHMU_CAP0_VERSION_MASK, common) != NEOPROF_CHMU_CAP0_VERSION_VALUE)
		return neoprof_chmu_refuse(card, "no CHMU registers of version 1");
	if (card->instance >= FIELD_GET(NEOPROF_CHMU_CAP0_INSTANCES_MASK, common))
		return neoprof_chmu_refuse(card, "no such CHMU instance");
	card->base = NEOPROF_CHMU0_CAP0 +
		     card->instance * FIELD_GET(NEOPROF_CHMU_CAP1_INSTANCE_LENGTH_MASK, length);
	ret = neoprof_read(card, NEOPROF_CHMU_AT(card, CAP0), 8, &cap0);
	ret = ret ?: neoprof_read(card, NEOPROF_CHMU_AT(card, CAP1), 8, &cap1);
	ret = ret ?: neoprof_read(card, NEOPROF_CHMU_AT(card, RANGE_BITMAP_OFFSET), 8, &bitmap);
	ret = ret ?: neoprof_read(card, NEOPROF_CHMU_AT(card, HOTLIST_OFFSET), 8, &hotlist);
	ret = ret ?: neoprof_read(card, NEOPROF_CHMU_AT(card, STATUS), 8, &status);
	if (ret)
		return ret;
	geometry->slots = FIELD_GET(NEOPROF_CHMU0_CAP0_HOTLIST_SIZE_MASK, cap0);
	geometry->unit_sizes = FIELD_GET(NEOPROF_CHMU0_CAP1_UNIT_SIZES_MASK, cap1) << 8;
	geometry->counter_bits = FIELD_GET(NEOPROF_CHMU0_STATUS_COUNTER_WIDTH_MASK, status);
	if (geometry->slots < 2 || !geometry->counter_bits || geometry->counter_bits > 32 ||
	    bitmap > BLOCK_OFFSET_MAX || hotlist > BLOCK_OFFSET_MAX ||
	    !IS_ALIGNED(card->base | bitmap | hotlist, sizeof(u64)))
		return neoprof_chmu_refuse(card, "CHMU capabilities that make no sense");
	card->bitmap = card->base + bitmap;
	card->hotlist = card->base + hotlist;
	geometry->threshold_max = (1ull << geometry->counter_bits) - 1;
	geometry->capacity = 1ull << 40; /* until the vendor block says better */
	geometry->channels = 1;
	geometry->features = TIERD_CARD_HAS_COUNT;
	/* Reads alone, writes alone, both: all or none of it, to keep the choice simple. */
	if ((FIELD_GET(NEOPROF_CHMU0_CAP0_TRACKABLE_MASK, cap0) & 7) == 7)
		geometry->features |= TIERD_CARD_HAS_TRACK;
	if (FIELD_GET(NEOPROF_CHMU0_CAP1_EPOCH_MODE_MASK, cap1))
		geometry->features |= TIERD_CARD_HAS_EPOCH;
	if (FIELD_GET(NEOPROF_CHMU0_CAP1_DOWNSAMPLING_MASK, cap1) == 0xffff)
		geometry->features |= TIERD_CARD_HAS_DOWNSAMPLE;
	if (card->interrupt && FIELD_GET(NEOPROF_CHMU0_CAP0_FILL_INT_MASK, cap0))
		geometry->features |= TIERD_CARD_HAS_INTERRUPT;
	return neoprof_vendor_identify(card);
}

/* One bit for each 256 MiB of device memory that the ranges have, written whole. */
static int neoprof_chmu_write_bitmap(struct neoprof_card *card)
{
	u32 words = NEOPROF_RANGE_BITMAP_BYTES / 8, word, i;
	int ret = 0;

	if (!neoprof_chmu_has_vendor(
		    card)) /* no longer than to the hot list, if that is behind it */
		words = card->hotlist > card->bitmap
				? min(words, (card->hotlist - card->bitmap) / 8)
				: words;
	for (word = 0; word < words && !ret; word++) {
		u64 start = (u64)word << (6 + RANGE_SHIFT), bits = 0;

		for (i = 0; i < card->range_count * 64; i++) {
			const struct tierd_card_range *range = &card->ranges[i / 64];
			u64 low = start + ((u64)(i % 64) << RANGE_SHIFT);

			if (low < range->device + neoprof_range_length(range) &&
			    low + (1ull << RANGE_SHIFT) > range->device)
				bits |= 1ull << i % 64;
		}
		ret = neoprof_write(card, card->bitmap + 8 * word, 8, bits);
	}
	return ret;
}

/* 1: 100 us, 2: 1 ms, ... 5: 1 s, times up to 4095. netlink lets only such epochs pass. */
static u64 neoprof_chmu_epoch_bits(u32 epoch_us)
{
	u32 unit = 100, scale = 1;

	while (scale < 5 && (epoch_us % unit || epoch_us / unit > 4095)) {
		unit *= 10;
		scale++;
	}
	return FIELD_PREP(NEOPROF_CHMU0_CFG1_EPOCH_SCALE_MASK, scale) |
	       FIELD_PREP(NEOPROF_CHMU0_CFG1_EPOCH_MULTIPLIER_MASK, epoch_us / unit);
}

static int neoprof_chmu_refused(struct neoprof_card *card)
{
	u64 errors = 0;
	int ret = 0;

	if (neoprof_chmu_has_vendor(card)) {
		ret = neoprof_read(card, NEOPROF_VENDOR_CONFIG_ERROR, 8, &errors);
		ret = ret ?: neoprof_write(card, NEOPROF_VENDOR_CONFIG_ERROR, 8, errors);
	}
	if (ret)
		return ret;
	scnprintf(card->why, sizeof(card->why),
		  "the card refused its configuration (CONFIG_ERROR 0x%llx)", errors);
	return -EINVAL;
}

static u64 neoprof_chmu_vendor_config(const struct neoprof_settings *settings)
{
	u64 config = 0;

	if (settings->flags & TIERD_CARD_CONSERVATIVE)
		config |= NEOPROF_VENDOR_CONFIG_CONSERVATIVE_MASK;
	if (settings->flags & TIERD_CARD_COALESCE)
		config |= NEOPROF_VENDOR_CONFIG_COALESCE_MASK |
			  FIELD_PREP(NEOPROF_VENDOR_CONFIG_RUN_WINDOW_MASK, RUN_WINDOW);
	return config;
}

static int neoprof_chmu_start(struct neoprof_card *card)
{
	const struct neoprof_settings *settings = &card->settings;
	u64 cfg0 = FIELD_PREP(NEOPROF_CHMU0_CFG0_THRESHOLD_MASK, settings->threshold), cfg1, status;
	u32 rank = settings->error_rank ?: card->geometry.width / 2;
	int ret;

	cfg0 |= card->geometry.features & TIERD_CARD_HAS_TRACK ? settings->track : TIERD_TRACK_BOTH;
	if (settings->flags & TIERD_CARD_RANDOM)
		cfg0 |= NEOPROF_CHMU0_CFG0_RANDOM_DOWNSAMPLING_MASK;
	if (card->geometry.features & TIERD_CARD_HAS_INTERRUPT)
		cfg0 |= NEOPROF_CHMU0_CFG0_OVERFLOW_INT_ENABLE_MASK |
			NEOPROF_CHMU0_CFG0_FILL_INT_ENABLE_MASK;
	cfg1 = FIELD_PREP(NEOPROF_CHMU0_CFG1_UNIT_SIZE_MASK, settings->unit_log2) |
	       FIELD_PREP(NEOPROF_CHMU0_CFG1_DOWNSAMPLING_MASK, settings->downsample);
	if (settings->epoch_us && card->geometry.features & TIERD_CARD_HAS_EPOCH)
		cfg1 |= neoprof_chmu_epoch_bits(settings->epoch_us);
	else
		cfg1 |= FIELD_PREP(NEOPROF_CHMU0_CFG1_MODE_MASK, MODE_ALWAYS_ON) |
			neoprof_chmu_epoch_bits(100);

	ret = neoprof_write(card, NEOPROF_CHMU_AT(card, CFG0), 8, NEOPROF_CHMU0_CFG0_RESET_MASK);
	ret = ret ?: neoprof_chmu_settled(card, "the card's reset");
	ret = ret ?: neoprof_write(card, NEOPROF_CHMU_AT(card, CFG1), 8, cfg1);
	ret = ret ?: neoprof_chmu_write_bitmap(card);
	ret = ret ?: neoprof_write(card, NEOPROF_CHMU_AT(card, CFG2), 8, card->geometry.slots / 2);
	if (neoprof_chmu_has_vendor(card)) {
		ret = ret
			      ?: neoprof_write(card, NEOPROF_VENDOR_CONFIG, 8,
					       neoprof_chmu_vendor_config(settings));
		ret = ret ?: neoprof_write(card, NEOPROF_VENDOR_ERROR_RANK, 8, rank);
	}
	ret = ret
		      ?: neoprof_write(card, NEOPROF_CHMU_AT(card, CFG0), 8,
				       cfg0 | NEOPROF_CHMU0_CFG0_ENABLE_MASK);
	ret = ret ?: neoprof_chmu_settled(card, "the card's start");
	ret = ret ?: neoprof_read(card, NEOPROF_CHMU_AT(card, STATUS), 8, &status);
	if (ret)
		return ret;
	return status & NEOPROF_CHMU0_STATUS_ENABLED_MASK ? 0 : neoprof_chmu_refused(card);
}

static int neoprof_chmu_stop(struct neoprof_card *card)
{
	int ret = neoprof_write(
		card, NEOPROF_CHMU_AT(card, CFG0), 8,
		FIELD_PREP(NEOPROF_CHMU0_CFG0_THRESHOLD_MASK, card->settings.threshold));

	return ret ?: neoprof_chmu_settled(card, "the card's stop");
}

static int neoprof_chmu_clear(struct neoprof_card *card)
{
	/* A reset empties the hot list too, and stops: for those that know no other way. */
	if (!neoprof_chmu_has_vendor(card))
		return neoprof_chmu_start(card);
	return neoprof_write(card, NEOPROF_VENDOR_COMMAND, 8, NEOPROF_VENDOR_COMMAND_CLEAR_MASK);
}

static int neoprof_chmu_set_threshold(struct neoprof_card *card)
{
	return neoprof_write(card,
			     NEOPROF_CHMU_AT(card, CFG0) + NEOPROF_CHMU0_CFG0_THRESHOLD_SHIFT / 8,
			     4, card->settings.threshold);
}

static int neoprof_chmu_level(struct neoprof_card *card, unsigned int *level, bool *overflow)
{
	u64 indices, status;
	int ret = neoprof_read(card, NEOPROF_CHMU_AT(card, HOTLIST), 4, &indices);

	*overflow = false;
	if (ret)
		return ret;
	card->head = FIELD_GET(NEOPROF_CHMU0_HOTLIST_HEAD_MASK, indices);
	card->tail = FIELD_GET(NEOPROF_CHMU0_HOTLIST_TAIL_MASK, indices);
	if (card->head >= card->geometry.slots || card->tail >= card->geometry.slots) {
		scnprintf(card->why, sizeof(card->why), "hot list indices %u and %u of %u slots",
			  card->head, card->tail, card->geometry.slots);
		card->stats.errors++;
		return -EIO;
	}
	*level = (card->tail + card->geometry.slots - card->head) % card->geometry.slots;
	/* An idle card costs one access: a list that was full has entries. */
	if (!*level)
		return 0;
	ret = neoprof_read(card, NEOPROF_CHMU_AT(card, STATUS), 8, &status);
	if (!ret && status & NEOPROF_CHMU0_STATUS_OVERFLOW_MASK) {
		*overflow = true;
		ret = neoprof_write(card, NEOPROF_CHMU_AT(card, STATUS), 8,
				    NEOPROF_CHMU0_STATUS_OVERFLOW_MASK);
	}
	return ret;
}

/* Entries in a row, fewer than asked for at the end of the ring. */
static int neoprof_chmu_take(struct neoprof_card *card, struct neoprof_entry *entries,
			     unsigned int count)
{
	u64 *words = (u64 *)entries;
	unsigned int width = card->geometry.counter_bits, i;
	u64 word;
	int ret;

	BUILD_BUG_ON(sizeof(*entries) < sizeof(*words));
	count = min(count, card->geometry.slots - card->head);
	ret = neoprof_read_block(card, card->hotlist + 8 * card->head, 8, count, words);
	if (ret)
		return ret;
	/* From the last to the first, for a word is shorter than what it becomes. */
	for (i = count; i--;) {
		word = words[i];
		entries[i] = (struct neoprof_entry){
			.unit = word >> width,
			.count = word & ((1ull << width) - 1),
		};
	}
	card->head = (card->head + count) % card->geometry.slots;
	ret = neoprof_write(card, NEOPROF_CHMU_AT(card, HOTLIST), 2, card->head);
	return ret ?: count;
}

static int neoprof_chmu_taken(struct neoprof_card *card)
{
	if (!(card->geometry.features & TIERD_CARD_HAS_INTERRUPT))
		return 0;
	return neoprof_write(card, NEOPROF_CHMU_AT(card, STATUS), 8,
			     NEOPROF_CHMU0_STATUS_FILL_MASK);
}

const struct neoprof_layout neoprof_chmu = {
	.identify = neoprof_chmu_identify,
	.start = neoprof_chmu_start,
	.stop = neoprof_chmu_stop,
	.clear = neoprof_chmu_clear,
	.set_threshold = neoprof_chmu_set_threshold,
	.level = neoprof_chmu_level,
	.take = neoprof_chmu_take,
	.taken = neoprof_chmu_taken,
	.profile = neoprof_vendor_profile,
	.requests = neoprof_vendor_requests,
};
EXPORT_SYMBOL_GPL(neoprof_chmu);
