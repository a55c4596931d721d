// SPDX-License-Identifier: GPL-2.0-only
/*
 * Control: the generic netlink family "tierd", as tierd.yaml describes it. Every command asks for
 * CAP_NET_ADMIN, which containers have that manage the host's network, and for CAP_SYS_PTRACE too.
 */
#include "compat.h"
#include "tierd.h"
#include "trace.h"

#include <linux/module.h>
#include <linux/netlink.h>
#include <net/sock.h>

static struct genl_family tierd_genl_family;
static bool tierd_netlink_registered;

/* Beyond what a policy entry holds itself; 6.1 wants it not const. */
static struct netlink_range_validation tierd_netlink_target_numbers = { .max = TIERD_NO_TARGET -
									       1 };
static struct netlink_range_validation tierd_netlink_drain_periods = { .min = 1000,
								       .max = 10000000 };

static const struct nla_policy tierd_netlink_policy[TIERD_A_MAX + 1] = {
	[TIERD_A_TARGET] = NLA_POLICY_FULL_RANGE(NLA_U16, &tierd_netlink_target_numbers),
	[TIERD_A_PID] = NLA_POLICY_MIN(NLA_U32, 1),
	[TIERD_A_RANGES] = { .type = NLA_BINARY,
			     .len = TIERD_MAX_RANGES * sizeof(struct tierd_range) },
	[TIERD_A_PERIOD_US] = NLA_POLICY_MIN(NLA_U32, 1000),
	[TIERD_A_BUDGET_PPM] = { .type = NLA_U32 },
	[TIERD_A_HOT_SCANS] = NLA_POLICY_RANGE(NLA_U8, 1, TIERD_HISTORY),
	[TIERD_A_COLD_SCANS] = NLA_POLICY_MAX(NLA_U8, TIERD_HISTORY - 1),
	[TIERD_A_REPORT_SCANS] = NLA_POLICY_RANGE(NLA_U8, 1, TIERD_HISTORY),
	[TIERD_A_FLAGS] = NLA_POLICY_MASK(NLA_U32, TIERD_SCAN_FLAGS_ALL),
	[TIERD_A_HOT_NODES] = { .type = NLA_BINARY, .len = TIERD_NODES_BYTES },
	[TIERD_A_COLD_NODES] = { .type = NLA_BINARY, .len = TIERD_NODES_BYTES },
	[TIERD_A_CARD] = NLA_POLICY_MAX(NLA_U32, TIERD_CARDS_MAX - 1),
	[TIERD_A_CARD_RANGES] = { .type = NLA_BINARY,
				  .len = TIERD_CARD_RANGES_MAX * sizeof(struct tierd_card_range) },
	[TIERD_A_ENABLE] = NLA_POLICY_MAX(NLA_U8, 1),
	[TIERD_A_DRAIN_US] = NLA_POLICY_FULL_RANGE(NLA_U32, &tierd_netlink_drain_periods),
	[TIERD_A_EPOCH_US] = { .type = NLA_U32 },
	[TIERD_A_THRESHOLD] = { .type = NLA_U32 },
	[TIERD_A_TRACK] = NLA_POLICY_RANGE(NLA_U8, TIERD_TRACK_READS, TIERD_TRACK_BOTH),
	[TIERD_A_UNIT_LOG2] = NLA_POLICY_RANGE(NLA_U8, 12, 21),
	[TIERD_A_DOWNSAMPLE] = NLA_POLICY_MAX(NLA_U8, 15),
	[TIERD_A_CARD_FLAGS] = NLA_POLICY_MASK(NLA_U32, TIERD_CARD_FLAGS_ALL),
	[TIERD_A_ERROR_RANK] = { .type = NLA_U32 },
	[TIERD_A_CARD_DO] = NLA_POLICY_MASK(NLA_U32, TIERD_CARD_DO_ALL),
	[TIERD_A_SAMPLING_INTERVAL_US] = { .type = NLA_U32 },
};
/**
 * tierd_netlink_event() - tell the listeners what happened
 * @event: what happened
 * @target: to which target, or NULL
 */
void tierd_netlink_event(enum tierd_event event, const struct tierd_target *target)
{
	struct sk_buff *skb;
	void *header;

	if (target)
		trace_tierd_target(target, event);
	if (!READ_ONCE(tierd_netlink_registered))
		return; /* a parameter on the command line of modprobe */
	skb = genlmsg_new(NLMSG_DEFAULT_SIZE, GFP_KERNEL);
	if (!skb)
		return;
	header = genlmsg_put(skb, 0, 0, &tierd_genl_family, 0, TIERD_CMD_EVENT);
	if (!header || nla_put_u8(skb, TIERD_A_EVENT, event) ||
	    (target && (nla_put_u16(skb, TIERD_A_TARGET, target->number) ||
			nla_put_u32(skb, TIERD_A_PID, pid_nr(target->pid))))) {
		nlmsg_free(skb);
		return;
	}
	genlmsg_end(skb, header);
	genlmsg_multicast(&tierd_genl_family, skb, 0, 0, GFP_KERNEL);
}

/**
 * tierd_netlink_card_event() - tell the listeners what happened to a card
 * @event: what happened
 * @card: its number
 * @why: its reason
 */
void tierd_netlink_card_event(enum tierd_event event, u32 card, const char *why)
{
	struct sk_buff *skb;
	void *header;

	if (!READ_ONCE(tierd_netlink_registered))
		return;
	skb = genlmsg_new(NLMSG_DEFAULT_SIZE, GFP_KERNEL);
	if (!skb)
		return;
	header = genlmsg_put(skb, 0, 0, &tierd_genl_family, 0, TIERD_CMD_EVENT);
	if (!header || nla_put_u8(skb, TIERD_A_EVENT, event) ||
	    nla_put_u32(skb, TIERD_A_CARD, card) || nla_put_string(skb, TIERD_A_WHY, why)) {
		nlmsg_free(skb);
		return;
	}
	genlmsg_end(skb, header);
	genlmsg_multicast(&tierd_genl_family, skb, 0, 0, GFP_KERNEL);
}
EXPORT_SYMBOL_GPL(tierd_netlink_card_event);

/**
 * tierd_netlink_allowed() - whether the sender has the right to command
 * @skb: the message
 *
 * Asked first by every operation: the family's hooks are not called for dumps.
 *
 * Return: True if it has CAP_SYS_PTRACE.
 */
bool tierd_netlink_allowed(const struct sk_buff *skb)
{
	return netlink_capable(skb, CAP_SYS_PTRACE);
}
EXPORT_SYMBOL_GPL(tierd_netlink_allowed);

/**
 * tierd_netlink_family() - the family, for messages of others
 *
 * Return: The family.
 */
struct genl_family *tierd_netlink_family(void)
{
	return &tierd_genl_family;
}
EXPORT_SYMBOL_GPL(tierd_netlink_family);

static const struct genl_ops tierd_netlink_operations[] = {
	{ .cmd = TIERD_CMD_TARGET_ADD, .doit = tierd_netlink_target_add, .flags = GENL_ADMIN_PERM },
	{ .cmd = TIERD_CMD_TARGET_SET, .doit = tierd_netlink_target_set, .flags = GENL_ADMIN_PERM },
	{ .cmd = TIERD_CMD_TARGET_DEL, .doit = tierd_netlink_target_del, .flags = GENL_ADMIN_PERM },
	{ .cmd = TIERD_CMD_TARGET_GET,
	  .dumpit = tierd_netlink_target_dump,
	  .flags = GENL_ADMIN_PERM },
	{ .cmd = TIERD_CMD_SCAN_SET, .doit = tierd_netlink_scan_set, .flags = GENL_ADMIN_PERM },
	{ .cmd = TIERD_CMD_SCAN_GET, .doit = tierd_netlink_scan_get, .flags = GENL_ADMIN_PERM },
	{ .cmd = TIERD_CMD_NEOPROF_GET,
	  .dumpit = tierd_netlink_card_dump,
	  .flags = GENL_ADMIN_PERM },
	{ .cmd = TIERD_CMD_NEOPROF_SET, .doit = tierd_netlink_card_do, .flags = GENL_ADMIN_PERM },
	{ .cmd = TIERD_CMD_NEOPROF_PROFILE_GET,
	  .doit = tierd_netlink_card_do,
	  .flags = GENL_ADMIN_PERM },
};

static const struct genl_multicast_group tierd_netlink_groups[] = {
	{ .name = TIERD_GENL_EVENTS, .flags = GENL_MCAST_CAP_NET_ADMIN },
};

static struct genl_family tierd_genl_family __ro_after_init = {
	.name = TIERD_GENL_NAME,
	.version = TIERD_GENL_VERSION,
	.maxattr = TIERD_A_MAX,
	.policy = tierd_netlink_policy,
	.module = THIS_MODULE,
	/* A card may let its commands wait for long, which must not hold up other families. */
	.parallel_ops = true,
	.ops = tierd_netlink_operations,
	.n_ops = ARRAY_SIZE(tierd_netlink_operations),
	.mcgrps = tierd_netlink_groups,
	.n_mcgrps = ARRAY_SIZE(tierd_netlink_groups),
};

/* A daemon that dies must not leave a scanner at work: its targets go with its socket. */
static int tierd_netlink_socket_closed(struct notifier_block *block, unsigned long event,
				       void *data)
{
	struct netlink_notify *notify = data;

	if (event == NETLINK_URELEASE && notify->protocol == NETLINK_GENERIC &&
	    net_eq(notify->net, &init_net) && notify->portid) {
		tierd_targets_clear(notify->portid);
		tierd_cards_socket_closed(notify->portid);
	}
	return NOTIFY_DONE;
}

static struct notifier_block tierd_netlink_socket_notifier = {
	.notifier_call = tierd_netlink_socket_closed
};

/**
 * tierd_netlink_init() - register the family
 *
 * Return: 0 or a negative errno.
 */
int tierd_netlink_init(void)
{
	int ret = netlink_register_notifier(&tierd_netlink_socket_notifier);

	if (ret)
		return ret;
	ret = genl_register_family(&tierd_genl_family);
	if (ret)
		netlink_unregister_notifier(&tierd_netlink_socket_notifier);
	else
		WRITE_ONCE(tierd_netlink_registered, true);
	return ret;
}

/**
 * tierd_netlink_exit() - undo tierd_netlink_init()
 */
void tierd_netlink_exit(void)
{
	WRITE_ONCE(tierd_netlink_registered, false);
	genl_unregister_family(&tierd_genl_family);
	netlink_unregister_notifier(&tierd_netlink_socket_notifier);
}
