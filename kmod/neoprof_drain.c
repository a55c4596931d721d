// SPDX-License-Identifier: GPL-2.0-only
/*
 * From a card's hot list to records: device address, host address, page frame, owner. The
 * work of one drain is bounded by the frames it looks up; the rest waits for the next one.
 */
#include "compat.h"
#include "neoprof.h"
#include "trace.h"

#include <linux/ktime.h>
#include <linux/memory_hotplug.h>

#define LOCKED 64 /* frames looked up while the targets are locked at a time */

/**
 * struct neoprof_drain_run - one drain
 * @card: the card
 * @now_ns: when it began
 * @raw: some reader wants frames that are nobody's
 * @looked: frames looked up
 * @locked: of those, with the targets locked
 * @records: records of targets that wait to be handed out
 * @frames: other records that wait
 * @reported: records of targets so far
 */
struct neoprof_drain_run {
	struct neoprof_card *card;
	u64 now_ns;
	bool raw;
	unsigned int looked, locked;
	unsigned int records, frames;
	u64 reported;
};

static void neoprof_drain_publish(struct neoprof_drain_run *drain)
{
	struct neoprof_card *card = drain->card;

	if (drain->records)
		tierd_ring_publish_kind(TIERD_RECORD_HOT, card->records, drain->records);
	if (drain->frames)
		tierd_ring_publish_kind(TIERD_RECORD_FRAME, card->frames, drain->frames);
	drain->records = drain->frames = 0;
}

/* Lets others have the list of targets now and then. Called with it locked. */
static void neoprof_drain_breathe(struct neoprof_drain_run *drain)
{
	if (++drain->locked % LOCKED)
		return;
	mutex_unlock(&tierd_targets_lock);
	cond_resched();
	mutex_lock(&tierd_targets_lock);
}

static void neoprof_drain_count_owner(struct tierd_card_stats *stats,
				      const struct tierd_owner *owner)
{
	switch (owner->status) {
	case TIERD_OWNER_MAPPED:
		if (owner->target == TIERD_NO_TARGET)
			stats->not_target++;
		else
			stats->reported++;
		break;
	case TIERD_OWNER_SHARED:
		stats->shared++;
		break;
	case TIERD_OWNER_FILE:
		stats->file++;
		break;
	case TIERD_OWNER_OTHER:
		stats->other++;
		break;
	case TIERD_OWNER_BUSY:
		stats->busy++;
		break;
	default:
		stats->gone++;
	}
}

/* Looks one frame up; the number of frames from it on that the answer holds for. */
static unsigned long neoprof_drain_report_frame(struct neoprof_drain_run *drain, u64 pfn, u32 count)
{
	struct neoprof_card *card = drain->card;
	struct page *page = pfn_to_online_page(pfn);
	struct tierd_record record = {
		.pfn = pfn,
		.time_ns = drain->now_ns,
		.history = card->number,
		.node = page ? page_to_nid(page) : NUMA_NO_NODE,
		.value = min_t(u32, count, U16_MAX),
	};
	struct tierd_owner owner;
	u8 flags = 0;

	tierd_resolve_page(page, pfn, &owner, &flags);
	drain->looked++;
	neoprof_drain_count_owner(&card->stats, &owner);
	record.order = owner.order;
	if (owner.status == TIERD_OWNER_MAPPED && owner.target != TIERD_NO_TARGET) {
		record.kind = TIERD_RECORD_HOT;
		record.flags = TIERD_PAGE_HOT | flags;
		record.page = (u64)owner.target << TIERD_KEY_SHIFT | owner.vpn;
		card->records[drain->records++] = record;
		drain->reported++;
	} else if (drain->raw) {
		record.kind = TIERD_RECORD_FRAME;
		record.flags = flags;
		record.page = (u64)TIERD_NO_TARGET << TIERD_KEY_SHIFT | owner.status;
		card->frames[drain->frames++] = record;
	}
	if (drain->records == NEOPROF_TAKE || drain->frames == NEOPROF_TAKE)
		neoprof_drain_publish(drain);
	/* The rest of a folio that is mapped as a whole. */
	return flags & TIERD_PAGE_PMD ? (1ul << owner.order) - (pfn & ((1ul << owner.order) - 1))
				      : 1;
}

static void neoprof_drain_report_unit(struct neoprof_drain_run *drain,
				      const struct neoprof_entry *entry)
{
	struct neoprof_card *card = drain->card;
	unsigned int shift = card->settings.unit_log2;
	u64 device = entry->unit << shift, end = device + (1ull << shift), host, next, last;
	unsigned long frames;

	if (entry->unit >> (64 - shift)) {
		card->stats.outside++;
		return;
	}
	for (; device < end; device += (u64)frames << PAGE_SHIFT) {
		if (!neoprof_to_host(card, device, &host)) {
			card->stats.outside++;
			return;
		}
		frames = neoprof_drain_report_frame(drain, host >> PAGE_SHIFT, entry->count);
		neoprof_drain_breathe(drain);
		if (frames == 1)
			continue;
		/* Unless the card has them all, in a row. */
		last = (u64)(frames - 1) << PAGE_SHIFT;
		if (!neoprof_to_host(card, device + last, &next) || next != host + last)
			frames = 1;
	}
}

/* Takes entries until the list is empty or the frames of a drain are used up. */
static int neoprof_drain_take_all(struct neoprof_drain_run *drain, unsigned int level)
{
	struct neoprof_card *card = drain->card;
	unsigned int each = 1u << (card->settings.unit_log2 - PAGE_SHIFT), count;
	int taken, i, ret = 0;

	while (level) {
		if (drain->looked >= neoprof_drain_frames) {
			card->stats.limited++;
			break;
		}
		count = DIV_ROUND_UP(neoprof_drain_frames - drain->looked, each);
		count = min3(count, level, (unsigned int)NEOPROF_TAKE);
		taken = card->layout->take(card, card->entries, count);
		if (taken < 0) {
			ret = taken;
			break;
		}
		level -= taken;
		card->stats.entries += taken;
		mutex_lock(&tierd_targets_lock);
		for (i = 0; i < taken; i++)
			neoprof_drain_report_unit(drain, &card->entries[i]);
		mutex_unlock(&tierd_targets_lock);
		neoprof_drain_publish(drain);
		cond_resched();
	}
	return ret ?: card->layout->taken(card);
}

static int neoprof_drain_list(struct neoprof_card *card, u64 now_ns)
{
	struct neoprof_drain_run drain = { .card = card, .now_ns = now_ns };
	unsigned int level = 0;
	bool overflow;
	int ret = card->layout->level(card, &level, &overflow);

	if (ret)
		return ret;
	card->stats.drains++;
	card->stats.level = level;
	card->stats.level_max = max_t(u64, card->stats.level_max, level);
	card->stats.overflows += overflow;
	if (!level)
		return 0;
	drain.raw = tierd_ring_wanted(TIERD_RECORD_FRAME);
	ret = neoprof_drain_take_all(&drain, level);
	if (drain.looked)
		tierd_ring_wake();
	now_ns = ktime_get_ns() - now_ns;
	card->stats.drain_ns += now_ns;
	trace_neoprof_drain(card->number, level, drain.looked, drain.reported, overflow, now_ns);
	return ret;
}

/**
 * neoprof_drain() - drain the hot list once, if the card counts
 * @card: the card
 *
 * Called with the card's lock.
 *
 * Return: Nanoseconds until the next drain, U64_MAX to wait for a kick.
 */
u64 neoprof_drain(struct neoprof_card *card)
{
	u64 start = ktime_get_ns(), period = (u64)card->settings.drain_us * NSEC_PER_USEC, spent;
	int ret;

	lockdep_assert_held(&card->lock);
	if (card->state != TIERD_CARD_STATE_COUNTING)
		return U64_MAX;
	ret = neoprof_drain_list(card, start);
	if (!ret && card->settings.epoch_us && !(card->geometry.features & TIERD_CARD_HAS_EPOCH) &&
	    start - card->epoch_ns >= (u64)card->settings.epoch_us * NSEC_PER_USEC) {
		card->epoch_ns = start;
		ret = card->layout->clear(card);
	}
	if (ret) {
		neoprof_card_failed(card, ret);
		return U64_MAX;
	}
	spent = ktime_get_ns() - start;
	/* Leaves at least half of a CPU to others, however long a drain takes. */
	return spent < period / 2 ? period - spent : max(period / 2, spent);
}
