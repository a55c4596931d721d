// SPDX-License-Identifier: GPL-2.0-only
/*
 * Changes of a card's settings by netlink: all are checked against what the card can do
 * before the first is made.
 */
#include "compat.h"
#include "neoprof.h"

#include <linux/slab.h>

#define EPOCH_STEP_US 100u
#define EPOCH_MULTIPLIER 4095u

#define REFUSE(info, error, attr, text)                                                            \
	({                                                                                         \
		NL_SET_ERR_MSG_ATTR((info)->extack, (info)->attrs[attr], text);                    \
		(error);                                                                           \
	})

/* A CHMU says an epoch as 1 to 4095 times 100 us, 1 ms, 10 ms, 100 ms or 1 s. */
static bool neoprof_set_epoch_fits(u32 epoch_us)
{
	u32 unit;

	for (unit = EPOCH_STEP_US; unit <= USEC_PER_SEC; unit *= 10)
		if (!(epoch_us % unit) && epoch_us / unit <= EPOCH_MULTIPLIER)
			return true;
	return !epoch_us;
}

static int neoprof_set_check(const struct neoprof_card *card,
			     const struct neoprof_settings *settings, struct genl_info *info)
{
	const struct tierd_card_geometry *geometry = &card->geometry;
	u64 features = geometry->features;

	if (settings->threshold > geometry->threshold_max)
		return REFUSE(info, -ERANGE, TIERD_A_THRESHOLD,
			      "the threshold is above what the card's counters reach");
	if (!neoprof_set_epoch_fits(settings->epoch_us))
		return REFUSE(info, -ERANGE, TIERD_A_EPOCH_US,
			      "an epoch is 1 to 4095 times 100 us, 1 ms, 10 ms, 100 ms or 1 s");
	if (!(geometry->unit_sizes >> settings->unit_log2 & 1))
		return REFUSE(info, -EOPNOTSUPP, TIERD_A_UNIT_LOG2,
			      "the card has no units of this size");
	if (settings->error_rank > geometry->width)
		return REFUSE(info, -ERANGE, TIERD_A_ERROR_RANK,
			      "the error rank is above the number of counters");
	if (settings->downsample && !(features & TIERD_CARD_HAS_DOWNSAMPLE))
		return REFUSE(info, -EOPNOTSUPP, TIERD_A_DOWNSAMPLE, "the card cannot down-sample");
	/* `both` stands for all that the card can see. */
	if (settings->track == TIERD_TRACK_WRITES && !(features & TIERD_CARD_HAS_TRACK))
		return REFUSE(info, -EOPNOTSUPP, TIERD_A_TRACK,
			      "the card cannot choose between reads and writes");
	if (settings->flags & TIERD_CARD_CONSERVATIVE && !(features & TIERD_CARD_HAS_CONSERVATIVE))
		return REFUSE(info, -EOPNOTSUPP, TIERD_A_CARD_FLAGS,
			      "the card has no conservative update");
	if (settings->flags & TIERD_CARD_COALESCE && !(features & TIERD_CARD_HAS_COALESCE))
		return REFUSE(info, -EOPNOTSUPP, TIERD_A_CARD_FLAGS,
			      "the card counts requests, not runs of them");
	if (settings->flags & TIERD_CARD_RANDOM &&
	    !(features & TIERD_CARD_HAS_COUNTERS)) /* our card's vendor block goes with it */
		return REFUSE(info, -EOPNOTSUPP, TIERD_A_CARD_FLAGS,
			      "the card cannot down-sample at random");
	return 0;
}

static void neoprof_set_parse(struct neoprof_settings *settings, struct nlattr **attrs)
{
	if (attrs[TIERD_A_DRAIN_US])
		settings->drain_us = nla_get_u32(attrs[TIERD_A_DRAIN_US]);
	if (attrs[TIERD_A_EPOCH_US])
		settings->epoch_us = nla_get_u32(attrs[TIERD_A_EPOCH_US]);
	if (attrs[TIERD_A_THRESHOLD])
		settings->threshold = nla_get_u32(attrs[TIERD_A_THRESHOLD]);
	if (attrs[TIERD_A_TRACK])
		settings->track = nla_get_u8(attrs[TIERD_A_TRACK]);
	if (attrs[TIERD_A_UNIT_LOG2])
		settings->unit_log2 = nla_get_u8(attrs[TIERD_A_UNIT_LOG2]);
	if (attrs[TIERD_A_DOWNSAMPLE])
		settings->downsample = nla_get_u8(attrs[TIERD_A_DOWNSAMPLE]);
	if (attrs[TIERD_A_CARD_FLAGS])
		settings->flags = nla_get_u32(attrs[TIERD_A_CARD_FLAGS]);
	if (attrs[TIERD_A_ERROR_RANK])
		settings->error_rank = nla_get_u32(attrs[TIERD_A_ERROR_RANK]);
}

/* Ranges of a message, checked; NULL for none. */
static struct tierd_card_range *neoprof_set_parse_ranges(struct genl_info *info,
							 unsigned int *count)
{
	const struct nlattr *attr = info->attrs[TIERD_A_CARD_RANGES];
	struct tierd_card_range *ranges;
	const char *why;
	int ret;

	if (!attr)
		return NULL;
	if (nla_len(attr) % sizeof(*ranges)) {
		NL_SET_ERR_MSG_ATTR(info->extack, attr, "not a whole number of ranges");
		return ERR_PTR(-EINVAL);
	}
	*count = nla_len(attr) / sizeof(*ranges);
	/* Not zero bytes: no ranges is an answer, too. */
	ranges = kcalloc(TIERD_CARD_RANGES_MAX, sizeof(*ranges), GFP_KERNEL);
	if (!ranges)
		return ERR_PTR(-ENOMEM);
	nla_memcpy(ranges, attr, *count * sizeof(*ranges));
	ret = neoprof_ranges_check(ranges, *count, &why);
	if (ret) {
		/* Its text is not one of this macro's constants. */
		if (info->extack)
			info->extack->_msg = why;
		kfree(ranges);
		return ERR_PTR(ret);
	}
	return ranges;
}

static bool neoprof_set_same_but_threshold(const struct neoprof_settings *a,
					   const struct neoprof_settings *b)
{
	u32 flags = TIERD_CARD_CONSERVATIVE | TIERD_CARD_RANDOM | TIERD_CARD_COALESCE;

	return a->epoch_us == b->epoch_us && a->track == b->track && a->unit_log2 == b->unit_log2 &&
	       a->downsample == b->downsample && a->error_rank == b->error_rank &&
	       !((a->flags ^ b->flags) & flags);
}

static void neoprof_set_ranges(struct neoprof_card *card, const struct tierd_card_range *ranges,
			       unsigned int count)
{
	if (!count) {
		neoprof_hdm_ranges(card);
		return;
	}
	memcpy(card->ranges, ranges, count * sizeof(*ranges));
	card->range_count = count;
	card->ranges_given = true;
	card->why[0] = 0;
}

/* Starts the card, or goes on with other settings; one without memory cannot. */
static int neoprof_set_start(struct neoprof_card *card, struct genl_info *info)
{
	int ret;

	if (!card->range_count) {
		NL_SET_ERR_MSG(info->extack,
			       "the host memory behind the card is not known: give ranges");
		if (card->state == TIERD_CARD_STATE_COUNTING)
			neoprof_card_stop(card);
		return -ENXIO;
	}
	ret = neoprof_card_start(card);
	if (ret == -EINVAL)
		NL_SET_ERR_MSG(info->extack, "the card refused its configuration");
	return ret;
}

static int neoprof_set_apply(struct neoprof_card *card, const struct neoprof_settings *settings,
			     bool ranges_changed, struct genl_info *info)
{
	struct nlattr **attrs = info->attrs;
	bool counting = card->state == TIERD_CARD_STATE_COUNTING;
	bool restart = ranges_changed || !neoprof_set_same_but_threshold(settings, &card->settings);
	bool threshold = settings->threshold != card->settings.threshold;
	bool clear =
		attrs[TIERD_A_CARD_DO] && nla_get_u32(attrs[TIERD_A_CARD_DO]) & TIERD_CARD_DO_CLEAR;
	bool wanted = attrs[TIERD_A_ENABLE] ? nla_get_u8(attrs[TIERD_A_ENABLE]) : counting;
	int ret = 0;

	card->settings = *settings;
	if (!wanted)
		return neoprof_card_stop(card);
	if (!counting || restart) {
		ret = neoprof_set_start(card, info);
	} else {
		if (clear)
			ret = card->layout->clear(card);
		if (!ret && threshold)
			ret = card->layout->set_threshold(card);
		if (ret)
			neoprof_card_failed(card, ret);
		neoprof_card_kick(card); /* the period may be shorter */
	}
	if (ret)
		return ret;
	/* Whoever enables it owns it; with `persist`, nobody. */
	if (attrs[TIERD_A_ENABLE])
		WRITE_ONCE(card->owner, info->snd_portid);
	if (settings->flags & TIERD_CARD_PERSIST)
		WRITE_ONCE(card->owner, 0);
	WRITE_ONCE(card->orphan, false);
	return 0;
}

/**
 * neoprof_set() - carry out a command that changes settings
 * @card: the card
 * @info: the message, parsed
 *
 * Called with the card's lock.
 *
 * Return: 0 or a negative errno.
 */
int neoprof_set(struct neoprof_card *card, struct genl_info *info)
{
	struct nlattr **attrs = info->attrs;
	struct neoprof_settings settings = card->settings;
	struct tierd_card_range *ranges;
	unsigned int count = 0;
	int ret;

	ranges = neoprof_set_parse_ranges(info, &count);
	if (IS_ERR(ranges))
		return PTR_ERR(ranges);
	neoprof_set_parse(&settings, attrs);
	/* A card that failed is reset first: only then it is known what it can do. */
	ret = card->state == TIERD_CARD_STATE_FAILED ? 0 : neoprof_set_check(card, &settings, info);
	if (ret)
		goto free;
	if (attrs[TIERD_A_CARD_DO] && nla_get_u32(attrs[TIERD_A_CARD_DO]) & TIERD_CARD_DO_RESET) {
		ret = neoprof_card_reset(card);
		if (ret) {
			NL_SET_ERR_MSG(info->extack, "the card does not answer as one");
			goto free;
		}
	}
	if (card->state == TIERD_CARD_STATE_FAILED) {
		NL_SET_ERR_MSG(info->extack, "the card failed; reset it");
		ret = -ENODEV;
		goto free;
	}
	ret = neoprof_set_check(card, &settings, info);
	if (ret)
		goto free;
	if (ranges)
		neoprof_set_ranges(card, ranges, count);
	ret = neoprof_set_apply(card, &settings, ranges, info);
free:
	kfree(ranges);
	return ret;
}
