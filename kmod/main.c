// SPDX-License-Identifier: GPL-2.0-only
/* Parameters, and the order in which the parts come and go. */
#include "compat.h"
#include "tierd.h"
#include "young.h"

#include <linux/module.h>
#include <linux/moduleparam.h>

struct tierd_stats tierd_stats;

unsigned int tierd_max_targets = 256;
module_param_named(max_targets, tierd_max_targets, uint, 0644);
MODULE_PARM_DESC(max_targets, "Most processes scanned at a time (256)");

unsigned int tierd_ring_records = 131072;
module_param_named(ring_records, tierd_ring_records, uint, 0644);
MODULE_PARM_DESC(ring_records, "Records of 32 bytes in a ring opened from now on (131072)");

unsigned int tierd_max_readers = 4;
module_param_named(max_readers, tierd_max_readers, uint, 0644);
MODULE_PARM_DESC(max_readers, "Most rings open at a time (4)");

unsigned long tierd_history_limit;
module_param_named(history_bytes, tierd_history_limit, ulong, 0644);
MODULE_PARM_DESC(
	history_bytes,
	"Most memory of access histories, 656 bytes for 2 MiB (0: for all of the host's memory)");

bool tierd_mark_young = TIERD_CAN_MARK_YOUNG;

static int tierd_set_mark_young(const char *value, const struct kernel_param *param)
{
	bool mark;
	int ret = kstrtobool(value, &mark);

	if (ret)
		return ret;
	if (mark && !TIERD_CAN_MARK_YOUNG)
		return -EOPNOTSUPP;
	WRITE_ONCE(tierd_mark_young, mark);
	return 0;
}

static const struct kernel_param_ops tierd_mark_young_ops = {
	.set = tierd_set_mark_young,
	.get = param_get_bool,
};
module_param_cb(mark_young, &tierd_mark_young_ops, &tierd_mark_young, 0644);
MODULE_PARM_DESC(mark_young,
		 "Mark pages found accessed as young, for reclaim (Y; N without PAGE_IDLE_FLAG)");

static unsigned int tierd_period_us = 500000;
module_param_named(period_us, tierd_period_us, uint, 0444);
MODULE_PARM_DESC(period_us, "Least time between two scans of a page, until netlink sets it");

static unsigned int tierd_budget_ppm = 50000;
module_param_named(budget_ppm, tierd_budget_ppm, uint, 0444);
MODULE_PARM_DESC(budget_ppm, "Millionths of one CPU the scanner may take, until netlink sets it");

static int tierd_set_closing(const char *value, const struct kernel_param *param)
{
	bool closing;
	int ret = kstrtobool(value, &closing);

	if (ret)
		return ret;
	if (closing != tierd_dev_closing()) {
		tierd_dev_set_closing(closing);
		if (closing)
			tierd_netlink_event(TIERD_EVENT_CLOSING, NULL);
	}
	return 0;
}

static int tierd_get_closing(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%c\n", tierd_dev_closing() ? 'Y' : 'N');
}

static const struct kernel_param_ops tierd_closing_ops = { .set = tierd_set_closing,
							   .get = tierd_get_closing };
module_param_cb(closing, &tierd_closing_ops, NULL, 0644);
MODULE_PARM_DESC(closing, "Write 1 to ask readers to close /dev/tierd, so that rmmod works (N)");

/* Facts, to be read only. */
static int tierd_set_fact(const char *value, const struct kernel_param *param)
{
	return -EPERM;
}

static int tierd_get_flush(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%c\n", tierd_can_flush() ? 'Y' : 'N');
}

static const struct kernel_param_ops tierd_flush_ops = { .set = tierd_set_fact,
							 .get = tierd_get_flush };
module_param_cb(can_flush, &tierd_flush_ops, NULL, 0444);
MODULE_PARM_DESC(can_flush, "Whether the TLB can be flushed: sampling-interval-us, dirty, flush");

static int tierd_get_history_full(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%llu\n", READ_ONCE(tierd_stats.history_full));
}

static const struct kernel_param_ops tierd_history_full_ops = {
	.set = tierd_set_fact,
	.get = tierd_get_history_full,
};
module_param_cb(history_full, &tierd_history_full_ops, NULL, 0444);
MODULE_PARM_DESC(history_full, "Times that a page table was passed over for want of such memory");

static int __init tierd_init(void)
{
	struct tierd_settings settings = {
		.period_us = tierd_period_us,
		.budget_ppm = tierd_budget_ppm,
		.hot_scans = 2,
		.cold_scans = 0,
		.report_scans = 1,
		.hot_nodes = NODE_MASK_ALL,
		.cold_nodes = NODE_MASK_ALL,
	};
	const char *why;
	int ret = tierd_settings_set(&settings, &why);

	if (ret) {
		pr_err("tierd: %s\n", why);
		return ret;
	}
	ret = tierd_history_init();
	if (ret)
		return ret;
	ret = tierd_resolve_init();
	if (ret)
		goto history;
	ret = tierd_scan_start();
	if (ret)
		goto resolve;
	ret = tierd_dev_init();
	if (ret)
		goto scan;
	ret = tierd_netlink_init();
	if (ret)
		goto dev;
	return 0;
dev:
	tierd_dev_exit();
scan:
	tierd_scan_stop();
resolve:
	tierd_resolve_exit();
history:
	tierd_history_exit();
	return ret;
}

static void __exit tierd_exit(void)
{
	/* The scanner first: it tells of events by netlink. */
	tierd_scan_stop();
	tierd_netlink_exit();
	tierd_dev_exit();
	tierd_targets_clear(0);
	tierd_resolve_exit();
	tierd_history_exit();
}

module_init(tierd_init);
module_exit(tierd_exit);

MODULE_DESCRIPTION("Accessed bits of every page, and whose page frames are, for tierd");
MODULE_AUTHOR("The tierd authors");
MODULE_VERSION("0.1.0");
MODULE_LICENSE("GPL");
