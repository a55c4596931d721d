// SPDX-License-Identifier: GPL-2.0-only
/* The commands of the netlink family that are about cards, and the cards' events. */
#include "compat.h"
#include "neoprof.h"

#include <linux/ktime.h>
#include <linux/slab.h>

/**
 * neoprof_event() - tell listeners what happened to a card
 * @event: what happened
 * @card: the card
 */
void neoprof_event(enum tierd_event event, const struct neoprof_card *card)
{
	tierd_netlink_card_event(event, card->number, card->why);
}

/* A daemon that dies must not leave a card at work: the cards' threads stop them. */
static void neoprof_socket_closed(u32 portid)
{
	struct neoprof_card *card;

	mutex_lock(&neoprof_cards_lock);
	list_for_each_entry(card, &neoprof_cards, node) {
		if (READ_ONCE(card->owner) != portid)
			continue;
		WRITE_ONCE(card->orphan, true);
		neoprof_card_kick(card);
	}
	mutex_unlock(&neoprof_cards_lock);
}

static int neoprof_netlink_put_ranges(struct sk_buff *skb, const struct neoprof_card *card)
{
	size_t bytes = card->range_count * sizeof(struct tierd_card_range);
	struct nlattr *attr = nla_reserve(skb, TIERD_A_CARD_RANGES, bytes);
	struct tierd_card_range *ranges;
	unsigned int i;

	if (!attr)
		return -EMSGSIZE;
	ranges = nla_data(attr);
	/* nla_data() may be aligned to 4 bytes only: no access by field. */
	for (i = 0; i < card->range_count; i++) {
		struct tierd_card_range range = card->ranges[i];

		range.node = neoprof_range_node(&range);
		memcpy((void *)ranges + i * sizeof(range), &range, sizeof(range));
	}
	return 0;
}

static int neoprof_netlink_put_settings(struct sk_buff *skb,
					const struct neoprof_settings *settings)
{
	return nla_put_u32(skb, TIERD_A_DRAIN_US, settings->drain_us) ||
	       nla_put_u32(skb, TIERD_A_EPOCH_US, settings->epoch_us) ||
	       nla_put_u32(skb, TIERD_A_THRESHOLD, settings->threshold) ||
	       nla_put_u8(skb, TIERD_A_TRACK, settings->track) ||
	       nla_put_u8(skb, TIERD_A_UNIT_LOG2, settings->unit_log2) ||
	       nla_put_u8(skb, TIERD_A_DOWNSAMPLE, settings->downsample) ||
	       nla_put_u32(skb, TIERD_A_CARD_FLAGS, settings->flags) ||
	       nla_put_u32(skb, TIERD_A_ERROR_RANK, settings->error_rank);
}

static int neoprof_netlink_put_card(struct sk_buff *skb, struct netlink_callback *cb,
				    struct neoprof_card *card)
{
	void *header = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq,
				   tierd_netlink_family(), NLM_F_MULTI, TIERD_CMD_NEOPROF_GET);
	int ret;

	if (!header)
		return -EMSGSIZE;
	mutex_lock(&card->lock);
	if (card->removed) {
		mutex_unlock(&card->lock);
		genlmsg_cancel(skb, header);
		return 0;
	}
	ret = nla_put_u32(skb, TIERD_A_CARD, card->number) ||
	      nla_put_string(skb, TIERD_A_BACKEND, neoprof_backend(card)) ||
	      nla_put_string(skb, TIERD_A_DEVICE, dev_name(card->parent)) ||
	      nla_put_u8(skb, TIERD_A_CARD_STATE, card->state) ||
	      nla_put_string(skb, TIERD_A_WHY, card->why) ||
	      neoprof_netlink_put_ranges(skb, card) ||
	      nla_put(skb, TIERD_A_CARD_GEOMETRY, sizeof(card->geometry), &card->geometry) ||
	      nla_put(skb, TIERD_A_CARD_STATS, sizeof(card->stats), &card->stats) ||
	      neoprof_netlink_put_settings(skb, &card->settings);
	mutex_unlock(&card->lock);
	if (ret) {
		genlmsg_cancel(skb, header);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, header);
	return 0;
}

/* The card with the lowest number from one on, with a reference. */
static struct neoprof_card *neoprof_netlink_card_from(unsigned int number)
{
	struct neoprof_card *card = NULL;

	while (number < TIERD_CARDS_MAX && !card)
		card = neoprof_card_get(number++);
	return card;
}

/* All cards by number; cb->args[0] is the lowest number not told yet. */
static int neoprof_netlink_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct neoprof_card *card;
	int ret = 0;

	while (!ret && (card = neoprof_netlink_card_from(cb->args[0]))) {
		ret = neoprof_netlink_put_card(skb, cb, card);
		if (!ret)
			cb->args[0] = card->number + 1;
		neoprof_card_put(card);
	}
	return skb->len;
}

/* The card that a message names, locked and with a reference. */
static struct neoprof_card *neoprof_netlink_lock_named(struct genl_info *info)
{
	struct neoprof_card *card;

	if (!info->attrs[TIERD_A_CARD]) {
		NL_SET_ERR_MSG(info->extack, "card is needed");
		return ERR_PTR(-EINVAL);
	}
	card = neoprof_card_get(nla_get_u32(info->attrs[TIERD_A_CARD]));
	if (!card)
		return ERR_PTR(-ESRCH);
	mutex_lock(&card->lock);
	if (!card->removed)
		return card;
	mutex_unlock(&card->lock);
	neoprof_card_put(card);
	return ERR_PTR(-ESRCH);
}

static void neoprof_netlink_unlock_named(struct neoprof_card *card)
{
	mutex_unlock(&card->lock);
	neoprof_card_put(card);
}

static int neoprof_netlink_set(struct sk_buff *skb, struct genl_info *info)
{
	struct neoprof_card *card = neoprof_netlink_lock_named(info);
	int ret;

	if (IS_ERR(card))
		return PTR_ERR(card);
	ret = neoprof_set(card, info);
	neoprof_netlink_unlock_named(card);
	return ret;
}

static int neoprof_netlink_take_profile(struct neoprof_card *card, struct tierd_profile *profile,
					struct genl_info *info)
{
	int ret;

	if (card->state == TIERD_CARD_STATE_FAILED) {
		NL_SET_ERR_MSG(info->extack, "the card failed");
		return -ENODEV;
	}
	profile->time_ns = ktime_get_ns();
	ret = card->layout->profile(card, profile);
	if (ret == -EOPNOTSUPP)
		NL_SET_ERR_MSG(info->extack, "the card has no counters to tell");
	else if (ret)
		neoprof_card_failed(card, ret);
	return ret;
}

static int neoprof_netlink_profile(struct sk_buff *skb, struct genl_info *info)
{
	struct tierd_card_stats stats;
	struct tierd_profile *profile;
	struct neoprof_card *card;
	struct sk_buff *reply;
	void *header;
	int ret;

	profile = kzalloc(sizeof(*profile), GFP_KERNEL);
	if (!profile)
		return -ENOMEM;
	card = neoprof_netlink_lock_named(info);
	ret = PTR_ERR_OR_ZERO(card);
	if (!ret) {
		ret = neoprof_netlink_take_profile(card, profile, info);
		stats = card->stats;
		neoprof_netlink_unlock_named(card);
	}
	if (ret)
		goto free;
	ret = -EMSGSIZE;
	reply = genlmsg_new(GENLMSG_DEFAULT_SIZE, GFP_KERNEL);
	if (!reply)
		goto free;
	header = genlmsg_put_reply(reply, info, tierd_netlink_family(), 0,
				   TIERD_CMD_NEOPROF_PROFILE_GET);
	if (!header || nla_put_u32(reply, TIERD_A_CARD, nla_get_u32(info->attrs[TIERD_A_CARD])) ||
	    nla_put(reply, TIERD_A_PROFILE, sizeof(*profile), profile) ||
	    nla_put(reply, TIERD_A_CARD_STATS, sizeof(stats), &stats)) {
		nlmsg_free(reply);
		goto free;
	}
	genlmsg_end(reply, header);
	ret = genlmsg_reply(reply, info);
free:
	kfree(profile);
	return ret;
}

const struct tierd_card_ops neoprof_netlink_ops = {
	.dump = neoprof_netlink_dump,
	.set = neoprof_netlink_set,
	.profile = neoprof_netlink_profile,
	.socket_closed = neoprof_socket_closed,
};
