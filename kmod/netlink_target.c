// SPDX-License-Identifier: GPL-2.0-only
/* The commands of the netlink family that are about scanned processes. */
#include "compat.h"
#include "tierd.h"
#include "trace.h"

#include <linux/slab.h>

/* Ranges of an attribute: whole pages, ascending, apart. NULL for none. */
static struct tierd_ranges *tierd_netlink_parse_ranges(const struct nlattr *attr,
						       struct netlink_ext_ack *extack)
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

/**
 * tierd_netlink_target_add() - the command target-add
 * @skb: the message
 * @info: the message, parsed
 *
 * Return: 0 or a negative errno.
 */
int tierd_netlink_target_add(struct sk_buff *skb, struct genl_info *info)
{
	struct nlattr **attrs = info->attrs;
	struct tierd_ranges *ranges;
	struct pid *pid;
	int ret;

	if (!tierd_netlink_allowed(skb))
		return -EPERM;
	if (!attrs[TIERD_A_TARGET] || !attrs[TIERD_A_PID]) {
		NL_SET_ERR_MSG(info->extack, "target and pid are needed");
		return -EINVAL;
	}
	ranges = tierd_netlink_parse_ranges(attrs[TIERD_A_RANGES], info->extack);
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
	if (ret == -EOPNOTSUPP) {
		tierd_stats.targets_second_mmu++;
		NL_SET_ERR_MSG(
			info->extack,
			"a second MMU (a virtual machine's or a device's) uses its memory, whose accesses cannot be seen");
	}
	if (ret)
		kvfree(ranges);
	else
		tierd_scan_kick();
	return ret;
}

/* The target a message names, under the lock that the caller holds. */
static struct tierd_target *tierd_netlink_named_target(struct genl_info *info)
{
	struct tierd_target *target;

	if (!info->attrs[TIERD_A_TARGET]) {
		NL_SET_ERR_MSG(info->extack, "target is needed");
		return ERR_PTR(-EINVAL);
	}
	target = tierd_target_find(nla_get_u16(info->attrs[TIERD_A_TARGET]));
	if (!target)
		return ERR_PTR(-ESRCH);
	if (target->portid == info->snd_portid)
		return target;
	NL_SET_ERR_MSG(info->extack, "another socket registered this target");
	return ERR_PTR(-EPERM);
}

/**
 * tierd_netlink_target_set() - the command target-set
 * @skb: the message
 * @info: the message, parsed
 *
 * Return: 0 or a negative errno.
 */
int tierd_netlink_target_set(struct sk_buff *skb, struct genl_info *info)
{
	struct tierd_target *target;
	struct tierd_ranges *ranges;

	if (!tierd_netlink_allowed(skb))
		return -EPERM;
	ranges = tierd_netlink_parse_ranges(info->attrs[TIERD_A_RANGES], info->extack);
	if (IS_ERR(ranges))
		return PTR_ERR(ranges);
	mutex_lock(&tierd_targets_lock);
	target = tierd_netlink_named_target(info);
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

/**
 * tierd_netlink_target_del() - the command target-del
 * @skb: the message
 * @info: the message, parsed
 *
 * Return: 0 or a negative errno.
 */
int tierd_netlink_target_del(struct sk_buff *skb, struct genl_info *info)
{
	struct tierd_target *target;

	if (!tierd_netlink_allowed(skb))
		return -EPERM;
	mutex_lock(&tierd_targets_lock);
	target = tierd_netlink_named_target(info);
	if (!IS_ERR(target))
		tierd_target_remove(target);
	mutex_unlock(&tierd_targets_lock);
	return PTR_ERR_OR_ZERO(target);
}

static int tierd_netlink_put_target(struct sk_buff *skb, struct netlink_callback *cb,
				    struct tierd_target *target)
{
	struct tierd_target_stats stats;
	void *header = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq,
				   tierd_netlink_family(), NLM_F_MULTI, TIERD_CMD_TARGET_GET);

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

/**
 * tierd_netlink_target_dump() - all targets by number
 * @skb: the message
 * @cb: the dump
 *
 * The dump's first argument is the lowest number not told yet.
 *
 * Return: The length of the message, or a negative errno.
 */
int tierd_netlink_target_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct tierd_target *target, *lowest;

	if (!tierd_netlink_allowed(cb->skb))
		return -EPERM;
	mutex_lock(&tierd_targets_lock);
	for (;;) {
		lowest = NULL;
		list_for_each_entry(target, &tierd_targets, node)
			if (target->number >= cb->args[0] &&
			    (!lowest || target->number < lowest->number))
				lowest = target;
		if (!lowest || tierd_netlink_put_target(skb, cb, lowest))
			break;
		cb->args[0] = lowest->number + 1;
	}
	mutex_unlock(&tierd_targets_lock);
	return skb->len;
}
