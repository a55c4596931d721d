// SPDX-License-Identifier: GPL-2.0-only
/* Parameters of the NeoProf driver, and the order in which its parts come and go. */
#include "neoprof.h"

#include <linux/module.h>
#include <linux/moduleparam.h>

unsigned int neoprof_timeout_ms = 1000;
unsigned int neoprof_drain_frames = 16384;

/* Bounded, so that no wait can be taken for a hung task, and no drain takes for ever. */
static int set_timeout(const char *value, const struct kernel_param *param)
{
	return param_set_uint_minmax(value, param, 1, 30000);
}

static int set_frames(const char *value, const struct kernel_param *param)
{
	return param_set_uint_minmax(value, param, 64, 1u << 20);
}

static const struct kernel_param_ops timeout_ops = {.set = set_timeout, .get = param_get_uint};
module_param_cb(neoprof_timeout_ms, &timeout_ops, &neoprof_timeout_ms, 0644);
MODULE_PARM_DESC(neoprof_timeout_ms, "Longest wait for a card's answer, 1 to 30000 ms (1000)");

static const struct kernel_param_ops frames_ops = {.set = set_frames, .get = param_get_uint};
module_param_cb(neoprof_drain_frames, &frames_ops, &neoprof_drain_frames, 0644);
MODULE_PARM_DESC(neoprof_drain_frames, "Most frames looked up in one drain (16384)");

int neoprof_init(void)
{
	int ret = neoprof_class_init();

	if (ret)
		return ret;
	ret = neoprof_pci_init();
	if (ret)
		neoprof_class_exit();
	return ret;
}

void neoprof_exit(void)
{
	neoprof_pci_exit();
	neoprof_class_exit();
}
