// SPDX-License-Identifier: GPL-2.0-only
/* /sys/class/neoprof/neoprofN: what can be read of a card without netlink. */
#include "compat.h"
#include "neoprof.h"

#include <linux/slab.h>
#include <linux/sysfs.h>

static struct class neoprof_class = { .name = "neoprof" };

static ssize_t backend_show(struct device *device, struct device_attribute *attr, char *buffer)
{
	struct neoprof_card *card = dev_get_drvdata(device);

	return sysfs_emit(buffer, "%s\n", neoprof_backend(card));
}

static ssize_t state_show(struct device *device, struct device_attribute *attr, char *buffer)
{
	static const char *const names[] = {
		[TIERD_CARD_STATE_UNSPEC] = "unknown",
		[TIERD_CARD_STATE_STOPPED] = "stopped",
		[TIERD_CARD_STATE_COUNTING] = "counting",
		[TIERD_CARD_STATE_FAILED] = "failed",
	};
	struct neoprof_card *card = dev_get_drvdata(device);

	return sysfs_emit(buffer, "%s\n", names[READ_ONCE(card->state)]);
}

static ssize_t why_show(struct device *device, struct device_attribute *attr, char *buffer)
{
	struct neoprof_card *card = dev_get_drvdata(device);
	ssize_t length;

	mutex_lock(&card->lock);
	length = sysfs_emit(buffer, "%s\n", card->why);
	mutex_unlock(&card->lock);
	return length;
}

/* Host physical first-last byte, the card's own address of the first, interleaving, node. */
static ssize_t ranges_show(struct device *device, struct device_attribute *attr, char *buffer)
{
	struct neoprof_card *card = dev_get_drvdata(device);
	ssize_t length = 0;
	unsigned int i;

	mutex_lock(&card->lock);
	for (i = 0; i < card->range_count; i++) {
		const struct tierd_card_range *range = &card->ranges[i];

		length += sysfs_emit_at(buffer, length,
					"0x%llx-0x%llx device 0x%llx way %u/%u node %d\n",
					range->start, range->end - 1, range->device,
					range->position, range->ways, neoprof_range_node(range));
	}
	mutex_unlock(&card->lock);
	return length;
}

static ssize_t level_show(struct device *device, struct device_attribute *attr, char *buffer)
{
	struct neoprof_card *card = dev_get_drvdata(device);

	return sysfs_emit(buffer, "%llu\n", READ_ONCE(card->stats.level));
}

static ssize_t dropped_show(struct device *device, struct device_attribute *attr, char *buffer)
{
	struct neoprof_card *card = dev_get_drvdata(device);

	return sysfs_emit(buffer, "%llu\n", READ_ONCE(card->stats.overflows));
}

/* Asked for often: much less than a profile. */
static ssize_t requests_show(struct device *device, struct device_attribute *attr, char *buffer)
{
	struct neoprof_card *card = dev_get_drvdata(device);
	u64 requests;
	int ret;

	mutex_lock(&card->lock);
	ret = neoprof_card_requests(card, &requests);
	mutex_unlock(&card->lock);
	return ret ?: sysfs_emit(buffer, "%llu\n", requests);
}

static DEVICE_ATTR_RO(backend);
static DEVICE_ATTR_RO(state);
static DEVICE_ATTR_RO(why);
static DEVICE_ATTR_ADMIN_RO(ranges); /* physical addresses */
static DEVICE_ATTR_RO(level);
static DEVICE_ATTR_RO(dropped);
static DEVICE_ATTR_ADMIN_RO(requests); /* tells what others do, and uses the card */

static struct attribute *neoprof_attrs[] = {
	&dev_attr_backend.attr,	 &dev_attr_state.attr,
	&dev_attr_why.attr,	 &dev_attr_ranges.attr,
	&dev_attr_level.attr,	 &dev_attr_dropped.attr,
	&dev_attr_requests.attr, NULL,
};
ATTRIBUTE_GROUPS(neoprof);

/**
 * neoprof_class_add() - make the card's folder in sysfs
 * @card: the card
 *
 * Return: The folder's device, NULL if it cannot be made: netlink tells all of it, too.
 */
struct device *neoprof_class_add(struct neoprof_card *card)
{
	struct device *device =
		device_create_with_groups(&neoprof_class, card->parent, MKDEV(0, 0), card,
					  neoprof_groups, "neoprof%u", card->number);

	if (!IS_ERR(device))
		return device;
	dev_warn(card->parent, "no entry in /sys/class/neoprof for card %u: %ld\n", card->number,
		 PTR_ERR(device));
	return NULL;
}

/**
 * neoprof_class_init() - make the class
 *
 * Return: 0 or a negative errno.
 */
int neoprof_class_init(void)
{
	return class_register(&neoprof_class);
}

/**
 * neoprof_class_exit() - undo neoprof_class_init()
 */
void neoprof_class_exit(void)
{
	class_unregister(&neoprof_class);
}
