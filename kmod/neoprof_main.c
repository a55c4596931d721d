// SPDX-License-Identifier: GPL-2.0-only
/* Parameters of the NeoProf driver, and the order in which its parts come and go. */
#include "neoprof.h"

#include <linux/module.h>
#include <linux/moduleparam.h>

unsigned int neoprof_timeout_ms = 1000;
EXPORT_SYMBOL_GPL(neoprof_timeout_ms);
unsigned int neoprof_drain_frames = 16384;

/* Bounded, so that no wait can be taken for a hung task, and no drain takes for ever. */
static int neoprof_set_timeout(const char *value, const struct kernel_param *param)
{
	return param_set_uint_minmax(value, param, 1, 30000);
}

static int neoprof_set_frames(const char *value, const struct kernel_param *param)
{
	return param_set_uint_minmax(value, param, 64, 1u << 20);
}

static const struct kernel_param_ops neoprof_timeout_ops = { .set = neoprof_set_timeout,
							     .get = param_get_uint };
module_param_cb(timeout_ms, &neoprof_timeout_ops, &neoprof_timeout_ms, 0644);
MODULE_PARM_DESC(timeout_ms, "Longest wait for a card's answer, 1 to 30000 ms (1000)");

static const struct kernel_param_ops neoprof_frames_ops = { .set = neoprof_set_frames,
							    .get = param_get_uint };
module_param_cb(drain_frames, &neoprof_frames_ops, &neoprof_drain_frames, 0644);
MODULE_PARM_DESC(drain_frames, "Most frames looked up in one drain (16384)");

static int __init neoprof_init(void)
{
	int ret = neoprof_class_init();

	if (ret)
		return ret;
	ret = tierd_cards_register(&neoprof_netlink_ops);
	if (ret)
		goto unregister_class;
	ret = neoprof_pci_init();
	if (ret)
		goto cards;
	return 0;
cards:
	tierd_cards_unregister();
unregister_class:
	neoprof_class_exit();
	return ret;
}

static void __exit neoprof_exit(void)
{
	tierd_cards_unregister();
	neoprof_pci_exit();
	neoprof_class_exit();
}

module_init(neoprof_init);
module_exit(neoprof_exit);

MODULE_DESCRIPTION("NeoProf cards, for tierd");
MODULE_AUTHOR("The tierd authors");
MODULE_VERSION("0.1.0");
MODULE_LICENSE("GPL");
