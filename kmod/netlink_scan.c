// SPDX-License-Identifier: GPL-2.0-only
/* The commands of the netlink family that are about the scanner's settings. */
#include "compat.h"
#include "tierd.h"

static void tierd_netlink_parse_nodes(const struct nlattr *attr, nodemask_t *nodes)
{
	u64 bits[TIERD_NODES_BYTES / sizeof(u64)] = {};
	unsigned int node;

	if (!attr)
		return;
	nla_memcpy(bits, attr, sizeof(bits));
	nodes_clear(*nodes);
	for (node = 0; node < min(MAX_NUMNODES, TIERD_MAX_NODES); node++)
		if (bits[node / 64] >> node % 64 & 1)
			node_set(node, *nodes);
}

/**
 * tierd_netlink_scan_set() - the command scan-set
 * @skb: the message
 * @info: the message, parsed
 *
 * Return: 0 or a negative errno.
 */
int tierd_netlink_scan_set(struct sk_buff *skb, struct genl_info *info)
{
	struct nlattr **attrs = info->attrs;
	struct tierd_settings settings;
	const char *why;
	int ret;

	if (!tierd_netlink_allowed(skb))
		return -EPERM;
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
	if (attrs[TIERD_A_REPORT_SCANS])
		settings.report_scans = nla_get_u8(attrs[TIERD_A_REPORT_SCANS]);
	if (attrs[TIERD_A_SAMPLING_INTERVAL_US])
		settings.sampling_interval_us = nla_get_u32(attrs[TIERD_A_SAMPLING_INTERVAL_US]);
	if (attrs[TIERD_A_FLAGS])
		settings.flags = nla_get_u32(attrs[TIERD_A_FLAGS]);
	tierd_netlink_parse_nodes(attrs[TIERD_A_HOT_NODES], &settings.hot_nodes);
	tierd_netlink_parse_nodes(attrs[TIERD_A_COLD_NODES], &settings.cold_nodes);
	ret = tierd_settings_set(&settings, &why);
	if (!ret)
		tierd_scan_kick();
	else if (info->extack)
		info->extack->_msg = why; /* not one of the macro's constants */
	mutex_unlock(&tierd_targets_lock);
	return ret;
}

static int tierd_netlink_put_nodes(struct sk_buff *skb, int attr, const nodemask_t *nodes)
{
	u64 bits[TIERD_NODES_BYTES / sizeof(u64)] = {};
	unsigned int node;

	for_each_node_mask(node, *nodes)
		if (node < TIERD_MAX_NODES)
			bits[node / 64] |= 1ull << node % 64;
	return nla_put(skb, attr, sizeof(bits), bits);
}

/**
 * tierd_netlink_scan_get() - the command scan-get
 * @skb: the message
 * @info: the message, parsed
 *
 * Return: 0 or a negative errno.
 */
int tierd_netlink_scan_get(struct sk_buff *skb, struct genl_info *info)
{
	struct tierd_stats stats = tierd_stats;
	struct tierd_settings settings;
	struct sk_buff *reply;
	void *header;

	if (!tierd_netlink_allowed(skb))
		return -EPERM;
	reply = genlmsg_new(GENLMSG_DEFAULT_SIZE, GFP_KERNEL);
	if (!reply)
		return -ENOMEM;
	tierd_settings_get(&settings);
	header = genlmsg_put_reply(reply, info, tierd_netlink_family(), 0, TIERD_CMD_SCAN_GET);
	if (!header || nla_put_u32(reply, TIERD_A_PERIOD_US, settings.period_us) ||
	    nla_put_u32(reply, TIERD_A_BUDGET_PPM, settings.budget_ppm) ||
	    nla_put_u8(reply, TIERD_A_HOT_SCANS, settings.hot_scans) ||
	    nla_put_u8(reply, TIERD_A_COLD_SCANS, settings.cold_scans) ||
	    nla_put_u8(reply, TIERD_A_REPORT_SCANS, settings.report_scans) ||
	    nla_put_u32(reply, TIERD_A_FLAGS, settings.flags) ||
	    nla_put_u32(reply, TIERD_A_SAMPLING_INTERVAL_US, settings.sampling_interval_us) ||
	    tierd_netlink_put_nodes(reply, TIERD_A_HOT_NODES, &settings.hot_nodes) ||
	    tierd_netlink_put_nodes(reply, TIERD_A_COLD_NODES, &settings.cold_nodes) ||
	    nla_put(reply, TIERD_A_STATS, sizeof(stats), &stats)) {
		nlmsg_free(reply);
		return -EMSGSIZE;
	}
	genlmsg_end(reply, header);
	return genlmsg_reply(reply, info);
}
