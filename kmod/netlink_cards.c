// SPDX-License-Identifier: GPL-2.0-only
/*
 * The commands of the netlink family that are about cards are answered by the cards' driver, which
 * is a module of its own and may not be loaded: then there is no card.
 */
#include "tierd.h"

#include <linux/export.h>
#include <linux/srcu.h>
#include <net/genetlink.h>

DEFINE_STATIC_SRCU(tierd_card_ops_srcu);
static DEFINE_MUTEX(tierd_card_ops_lock);
static const struct tierd_card_ops __rcu *tierd_card_ops;

/**
 * tierd_cards_register() - let a driver of cards answer the commands about them
 * @ops: what answers; stays until tierd_cards_unregister()
 *
 * Return: 0, or -EBUSY if there is such a driver.
 */
int tierd_cards_register(const struct tierd_card_ops *ops)
{
	int ret = 0;

	mutex_lock(&tierd_card_ops_lock);
	if (rcu_access_pointer(tierd_card_ops))
		ret = -EBUSY;
	else
		rcu_assign_pointer(tierd_card_ops, ops);
	mutex_unlock(&tierd_card_ops_lock);
	return ret;
}
EXPORT_SYMBOL_GPL(tierd_cards_register);

/**
 * tierd_cards_unregister() - take the driver's answers away
 *
 * Waits for the commands that it is answering.
 */
void tierd_cards_unregister(void)
{
	mutex_lock(&tierd_card_ops_lock);
	rcu_assign_pointer(tierd_card_ops, NULL);
	mutex_unlock(&tierd_card_ops_lock);
	synchronize_srcu(&tierd_card_ops_srcu);
}
EXPORT_SYMBOL_GPL(tierd_cards_unregister);

/**
 * tierd_netlink_card_dump() - all cards
 * @skb: the message to fill
 * @cb: the dump
 *
 * Return: the length of the message, or a negative errno.
 */
int tierd_netlink_card_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	const struct tierd_card_ops *ops;
	int idx, ret = skb->len;

	if (!tierd_netlink_allowed(cb->skb))
		return -EPERM;
	idx = srcu_read_lock(&tierd_card_ops_srcu);
	ops = srcu_dereference(tierd_card_ops, &tierd_card_ops_srcu);
	if (ops)
		ret = ops->dump(skb, cb);
	srcu_read_unlock(&tierd_card_ops_srcu, idx);
	return ret;
}

/**
 * tierd_netlink_card_do() - a command about one card
 * @skb: the message
 * @info: the same, parsed
 *
 * Return: 0 or a negative errno, -ESRCH without a driver.
 */
int tierd_netlink_card_do(struct sk_buff *skb, struct genl_info *info)
{
	const struct tierd_card_ops *ops;
	int idx, ret = -ESRCH;

	if (!tierd_netlink_allowed(skb))
		return -EPERM;
	idx = srcu_read_lock(&tierd_card_ops_srcu);
	ops = srcu_dereference(tierd_card_ops, &tierd_card_ops_srcu);
	if (ops && info->genlhdr->cmd == TIERD_CMD_NEOPROF_SET)
		ret = ops->set(skb, info);
	else if (ops)
		ret = ops->profile(skb, info);
	srcu_read_unlock(&tierd_card_ops_srcu, idx);
	return ret;
}

/**
 * tierd_cards_socket_closed() - a socket that may own cards was closed
 * @portid: its number
 */
void tierd_cards_socket_closed(u32 portid)
{
	const struct tierd_card_ops *ops;
	int idx = srcu_read_lock(&tierd_card_ops_srcu);

	ops = srcu_dereference(tierd_card_ops, &tierd_card_ops_srcu);
	if (ops)
		ops->socket_closed(portid);
	srcu_read_unlock(&tierd_card_ops_srcu, idx);
}
