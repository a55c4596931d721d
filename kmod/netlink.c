// SPDX-License-Identifier: GPL-2.0-only
/*
 * Control: the generic netlink family "tierd", as tierd.yaml describes it. Every command
 * asks for CAP_NET_ADMIN, and registering a process for CAP_SYS_PTRACE too.
 */
#include "compat.h"
#include "neoprof.h"
#include "tierd.h"
#include "trace.h"

#include <linux/module.h>
#include <linux/netlink.h>
#include <linux/slab.h>
#include <net/sock.h>

#define NODES_BYTES (TIERD_MAX_NODES / 8)

static struct genl_family family;
static bool registered;

/* Beyond what a policy entry holds itself; 6.1 wants it not const. */
static struct netlink_range_validation target_numbers = {.max = TIERD_NO_TARGET - 1};
static struct netlink_range_validation drain_periods = {.min = 1000, .max = 10000000};

static const struct nla_policy policy[TIERD_A_MAX + 1] = {
    [TIERD_A_TARGET] = NLA_POLICY_FULL_RANGE(NLA_U16, &target_numbers),
    [TIERD_A_PID] = NLA_POLICY_MIN(NLA_U32, 1),
    [TIERD_A_RANGES] = {.type = NLA_BINARY, .len = TIERD_MAX_RANGES * sizeof(struct tierd_range)},
    [TIERD_A_PERIOD_US] = NLA_POLICY_MIN(NLA_U32, 1000),
    [TIERD_A_BUDGET_PPM] = {.type = NLA_U32},
    [TIERD_A_HOT_SCANS] = NLA_POLICY_RANGE(NLA_U8, 1, TIERD_HISTORY),
    [TIERD_A_COLD_SCANS] = NLA_POLICY_MAX(NLA_U8, TIERD_HISTORY - 1),
    [TIERD_A_FLAGS] = NLA_POLICY_MASK(NLA_U32, TIERD_SCAN_FLAGS_ALL),
    [TIERD_A_HOT_NODES] = {.type = NLA_BINARY, .len = NODES_BYTES},
    [TIERD_A_COLD_NODES] = {.type = NLA_BINARY, .len = NODES_BYTES},
    [TIERD_A_CARD] = NLA_POLICY_MAX(NLA_U32, TIERD_CARDS_MAX - 1),
    [TIERD_A_CARD_RANGES] = {.type = NLA_BINARY,
			     .len = TIERD_CARD_RANGES_MAX * sizeof(struct tierd_card_range)},
    [TIERD_A_ENABLE] = NLA_POLICY_MAX(NLA_U8, 1),
    [TIERD_A_DRAIN_US] = NLA_POLICY_FULL_RANGE(NLA_U32, &drain_periods),
    [TIERD_A_EPOCH_US] = {.type = NLA_U32},
    [TIERD_A_THRESHOLD] = {.type = NLA_U32},
    [TIERD_A_TRACK] = NLA_POLICY_RANGE(NLA_U8, TIERD_TRACK_READS, TIERD_TRACK_BOTH),
    [TIERD_A_UNIT_LOG2] = NLA_POLICY_RANGE(NLA_U8, 12, 21),
    [TIERD_A_DOWNSAMPLE] = NLA_POLICY_MAX(NLA_U8, 15),
    [TIERD_A_CARD_FLAGS] = NLA_POLICY_MASK(NLA_U32, TIERD_CARD_FLAGS_ALL),
    [TIERD_A_ERROR_RANK] = {.type = NLA_U32},
    [TIERD_A_CARD_DO] = NLA_POLICY_MASK(NLA_U32, TIERD_CARD_DO_ALL),
};

/* Ranges of an attribute: whole pages, ascending, apart. NULL for none. */
static struct tierd_ranges *parse_ranges(const struct nlattr *attr, struct netlink_ext_ack *extack)
{
	struct tierd_ranges *ranges;
	unsigned int count, i;
	u64 last = 0;

	if (!attr || !nla_len(attr))
		return NULL;
	count = nla_len(attr) / sizeof(struct tierd_range);
	if (nla_len(attr) % sizeof(struct tierd_range)) {
		NL_SET_ERR_MSG_ATTR(extack, attr, "not a whole number of ranges");
		return ERR_PTR(-EINVAL);
	}
	ranges = kvmalloc(struct_size(ranges, range, count), GFP_KERNEL_ACCOUNT);
	if (!ranges)
		return ERR_PTR(-ENOMEM);
	ranges->count = count;
	nla_memcpy(ranges->range, attr, count * sizeof(struct tierd_range));
	for (i = 0; i < count; i++) {
		struct tierd_range *range = &ranges->range[i];

		if (range->start < last || range->end <= range->start ||
		    range->end > TASK_SIZE_MAX || !PAGE_ALIGNED(range->start | range->end)) {
			NL_SET_ERR_MSG_ATTR(extack, attr,
					    "ranges must be ascending, apart and of whole pages");
			kvfree(ranges);
			return ERR_PTR(-EINVAL);
		}
		last = range->end;
	}
	return ranges;
}

static int target_add(struct sk_buff *skb, struct genl_info *info)
{
	struct nlattr **attrs = info->attrs;
	struct tierd_ranges *ranges;
	struct pid *pid;
	int ret;

	if (!netlink_capable(skb, CAP_SYS_PTRACE))
		return -EPERM;
	if (!attrs[TIERD_A_TARGET] || !attrs[TIERD_A_PID]) {
		NL_SET_ERR_MSG(info->extack, "target and pid are needed");
		return -EINVAL;
	}
	ranges = parse_ranges(attrs[TIERD_A_RANGES], info->extack);
	if (IS_ERR(ranges))
		return PTR_ERR(ranges);
	pid = find_get_pid(nla_get_u32(attrs[TIERD_A_PID]));
	mutex_lock(&tierd_targets_lock);
	ret = pid ? tierd_target_add(nla_get_u16(attrs[TIERD_A_TARGET]), pid, ranges,
				     info->snd_portid)
		  : -ESRCH;
	if (!ret)
		trace_tierd_target(tierd_target_find(nla_get_u16(attrs[TIERD_A_TARGET])),
				   TIERD_EVENT_UNSPEC);
	mutex_unlock(&tierd_targets_lock);
	put_pid(pid);
	if (ret)
		kvfree(ranges);
	else
		tierd_scan_kick();
	return ret;
}

/* The target a message names, under the lock that the caller holds. */
static struct tierd_target *named_target(struct genl_info *info)
{
	struct tierd_target *target;

	if (!info->attrs[TIERD_A_TARGET]) {
		NL_SET_ERR_MSG(info->extack, "target is needed");
		return ERR_PTR(-EINVAL);
	}
	target = tierd_target_find(nla_get_u16(info->attrs[TIERD_A_TARGET]));
	return target ?: ERR_PTR(-ESRCH);
}

static int target_set(struct sk_buff *skb, struct genl_info *info)
{
	struct tierd_target *target;
	struct tierd_ranges *ranges;

	ranges = parse_ranges(info->attrs[TIERD_A_RANGES], info->extack);
	if (IS_ERR(ranges))
		return PTR_ERR(ranges);
	mutex_lock(&tierd_targets_lock);
	target = named_target(info);
	if (!IS_ERR(target)) {
		mutex_lock(&target->lock);
		swap(target->ranges, ranges);
		target->stats.ranges = target->ranges ? target->ranges->count : 0;
		mutex_unlock(&target->lock);
	}
	mutex_unlock(&tierd_targets_lock);
	kvfree(ranges);
	return PTR_ERR_OR_ZERO(target);
}

static int target_del(struct sk_buff *skb, struct genl_info *info)
{
	struct tierd_target *target;

	mutex_lock(&tierd_targets_lock);
	target = named_target(info);
	if (!IS_ERR(target))
		tierd_target_remove(target);
	mutex_unlock(&tierd_targets_lock);
	return PTR_ERR_OR_ZERO(target);
}

static int put_target(struct sk_buff *skb, struct netlink_callback *cb, struct tierd_target *target)
{
	struct tierd_target_stats stats;
	void *header = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, &family,
				   NLM_F_MULTI, TIERD_CMD_TARGET_GET);

	if (!header)
		return -EMSGSIZE;
	mutex_lock(&target->lock);
	stats = target->stats;
	mutex_unlock(&target->lock);
	if (nla_put_u16(skb, TIERD_A_TARGET, target->number) ||
	    nla_put_u32(skb, TIERD_A_PID, pid_vnr(target->pid)) ||
	    nla_put(skb, TIERD_A_TARGET_STATS, sizeof(stats), &stats)) {
		genlmsg_cancel(skb, header);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, header);
	return 0;
}

/* All targets by number; cb->args[0] is the lowest number not told yet. */
static int target_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct tierd_target *target, *lowest;

	mutex_lock(&tierd_targets_lock);
	for (;;) {
		lowest = NULL;
		list_for_each_entry(target, &tierd_targets,
				    node) if (target->number >= cb->args[0] &&
					      (!lowest || target->number < lowest->number)) lowest =
		    target;
		if (!lowest || put_target(skb, cb, lowest))
			break;
		cb->args[0] = lowest->number + 1;
	}
	mutex_unlock(&tierd_targets_lock);
	return skb->len;
}

static void parse_nodes(const struct nlattr *attr, nodemask_t *nodes)
{
	u64 bits[NODES_BYTES / sizeof(u64)] = {};
	unsigned int node;

	if (!attr)
		return;
	nla_memcpy(bits, attr, sizeof(bits));
	nodes_clear(*nodes);
	for (node = 0; node < min(MAX_NUMNODES, TIERD_MAX_NODES); node++)
		if (bits[node / 64] >> node % 64 & 1)
			node_set(node, *nodes);
}

static int scan_set(struct sk_buff *skb, struct genl_info *info)
{
	struct nlattr **attrs = info->attrs;
	struct tierd_settings settings;
	int ret;

	/* One at a time, so that two do not undo each other's changes. */
	mutex_lock(&tierd_targets_lock);
	tierd_settings_get(&settings);
	if (attrs[TIERD_A_PERIOD_US])
		settings.period_us = nla_get_u32(attrs[TIERD_A_PERIOD_US]);
	if (attrs[TIERD_A_BUDGET_PPM])
		settings.budget_ppm = nla_get_u32(attrs[TIERD_A_BUDGET_PPM]);
	if (attrs[TIERD_A_HOT_SCANS])
		settings.hot_scans = nla_get_u8(attrs[TIERD_A_HOT_SCANS]);
	if (attrs[TIERD_A_COLD_SCANS])
		settings.cold_scans = nla_get_u8(attrs[TIERD_A_COLD_SCANS]);
	if (attrs[TIERD_A_FLAGS])
		settings.flags = nla_get_u32(attrs[TIERD_A_FLAGS]);
	parse_nodes(attrs[TIERD_A_HOT_NODES], &settings.hot_nodes);
	parse_nodes(attrs[TIERD_A_COLD_NODES], &settings.cold_nodes);
	ret = tierd_settings_set(&settings);
	if (!ret)
		tierd_scan_kick();
	mutex_unlock(&tierd_targets_lock);
	return ret;
}

static int put_nodes(struct sk_buff *skb, int attr, const nodemask_t *nodes)
{
	u64 bits[NODES_BYTES / sizeof(u64)] = {};
	unsigned int node;

	for_each_node_mask(node, *nodes) if (node < TIERD_MAX_NODES) bits[node / 64] |=
	    1ull << node % 64;
	return nla_put(skb, attr, sizeof(bits), bits);
}

static int scan_get(struct sk_buff *skb, struct genl_info *info)
{
	struct tierd_stats stats = tierd_stats;
	struct tierd_settings settings;
	struct sk_buff *reply;
	void *header;

	reply = genlmsg_new(GENLMSG_DEFAULT_SIZE, GFP_KERNEL);
	if (!reply)
		return -ENOMEM;
	tierd_settings_get(&settings);
	header = genlmsg_put_reply(reply, info, &family, 0, TIERD_CMD_SCAN_GET);
	if (!header || nla_put_u32(reply, TIERD_A_PERIOD_US, settings.period_us) ||
	    nla_put_u32(reply, TIERD_A_BUDGET_PPM, settings.budget_ppm) ||
	    nla_put_u8(reply, TIERD_A_HOT_SCANS, settings.hot_scans) ||
	    nla_put_u8(reply, TIERD_A_COLD_SCANS, settings.cold_scans) ||
	    nla_put_u32(reply, TIERD_A_FLAGS, settings.flags) ||
	    put_nodes(reply, TIERD_A_HOT_NODES, &settings.hot_nodes) ||
	    put_nodes(reply, TIERD_A_COLD_NODES, &settings.cold_nodes) ||
	    nla_put(reply, TIERD_A_STATS, sizeof(stats), &stats)) {
		nlmsg_free(reply);
		return -EMSGSIZE;
	}
	genlmsg_end(reply, header);
	return genlmsg_reply(reply, info);
}

/* Tells the listeners of the multicast group; `target` may be NULL. */
void tierd_netlink_event(enum tierd_event event, const struct tierd_target *target)
{
	struct sk_buff *skb;
	void *header;

	if (target)
		trace_tierd_target(target, event);
	if (!READ_ONCE(registered))
		return; /* a parameter on the command line of modprobe */
	skb = genlmsg_new(NLMSG_DEFAULT_SIZE, GFP_KERNEL);
	if (!skb)
		return;
	header = genlmsg_put(skb, 0, 0, &family, 0, TIERD_CMD_EVENT);
	if (!header || nla_put_u8(skb, TIERD_A_EVENT, event) ||
	    (target && (nla_put_u16(skb, TIERD_A_TARGET, target->number) ||
			nla_put_u32(skb, TIERD_A_PID, pid_nr(target->pid))))) {
		nlmsg_free(skb);
		return;
	}
	genlmsg_end(skb, header);
	genlmsg_multicast(&family, skb, 0, 0, GFP_KERNEL);
}

/* The same for what happened to a NeoProf card. */
void tierd_netlink_card_event(enum tierd_event event, u32 card, const char *why)
{
	struct sk_buff *skb;
	void *header;

	if (!READ_ONCE(registered))
		return;
	skb = genlmsg_new(NLMSG_DEFAULT_SIZE, GFP_KERNEL);
	if (!skb)
		return;
	header = genlmsg_put(skb, 0, 0, &family, 0, TIERD_CMD_EVENT);
	if (!header || nla_put_u8(skb, TIERD_A_EVENT, event) ||
	    nla_put_u32(skb, TIERD_A_CARD, card) || nla_put_string(skb, TIERD_A_WHY, why)) {
		nlmsg_free(skb);
		return;
	}
	genlmsg_end(skb, header);
	genlmsg_multicast(&family, skb, 0, 0, GFP_KERNEL);
}

struct genl_family *tierd_netlink_family(void)
{
	return &family;
}

static const struct genl_ops operations[] = {
    {.cmd = TIERD_CMD_TARGET_ADD, .doit = target_add, .flags = GENL_ADMIN_PERM},
    {.cmd = TIERD_CMD_TARGET_SET, .doit = target_set, .flags = GENL_ADMIN_PERM},
    {.cmd = TIERD_CMD_TARGET_DEL, .doit = target_del, .flags = GENL_ADMIN_PERM},
    {.cmd = TIERD_CMD_TARGET_GET, .dumpit = target_dump, .flags = GENL_ADMIN_PERM},
    {.cmd = TIERD_CMD_SCAN_SET, .doit = scan_set, .flags = GENL_ADMIN_PERM},
    {.cmd = TIERD_CMD_SCAN_GET, .doit = scan_get, .flags = GENL_ADMIN_PERM},
    {.cmd = TIERD_CMD_NEOPROF_GET, .dumpit = neoprof_netlink_dump, .flags = GENL_ADMIN_PERM},
    {.cmd = TIERD_CMD_NEOPROF_SET, .doit = neoprof_netlink_set, .flags = GENL_ADMIN_PERM},
    {.cmd = TIERD_CMD_NEOPROF_PROFILE_GET,
     .doit = neoprof_netlink_profile,
     .flags = GENL_ADMIN_PERM},
};

static const struct genl_multicast_group groups[] = {
    {.name = TIERD_GENL_EVENTS, .flags = GENL_MCAST_CAP_NET_ADMIN},
};

static struct genl_family family __ro_after_init = {
    .name = TIERD_GENL_NAME,
    .version = TIERD_GENL_VERSION,
    .maxattr = TIERD_A_MAX,
    .policy = policy,
    .module = THIS_MODULE,
    .ops = operations,
    .n_ops = ARRAY_SIZE(operations),
    .mcgrps = groups,
    .n_mcgrps = ARRAY_SIZE(groups),
};

/* A daemon that dies must not leave a scanner at work: its targets go with its socket. */
static int socket_closed(struct notifier_block *block, unsigned long event, void *data)
{
	struct netlink_notify *notify = data;

	if (event == NETLINK_URELEASE && notify->protocol == NETLINK_GENERIC &&
	    net_eq(notify->net, &init_net) && notify->portid) {
		tierd_targets_clear(notify->portid);
		neoprof_socket_closed(notify->portid);
	}
	return NOTIFY_DONE;
}

static struct notifier_block socket_notifier = {.notifier_call = socket_closed};

int tierd_netlink_init(void)
{
	int ret = netlink_register_notifier(&socket_notifier);

	if (ret)
		return ret;
	ret = genl_register_family(&family);
	if (ret)
		netlink_unregister_notifier(&socket_notifier);
	else
		WRITE_ONCE(registered, true);
	return ret;
}

void tierd_netlink_exit(void)
{
	WRITE_ONCE(registered, false);
	genl_unregister_family(&family);
	netlink_unregister_notifier(&socket_notifier);
}
