// SPDX-License-Identifier: GPL-2.0-only
/* /dev/tierd: the ring is mapped from it, and whose page frames are is asked of it. */
#include "tierd.h"
#include "trace.h"

#include <linux/capability.h>
#include <linux/compat.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#define BATCH 256

static bool tierd_closing;

/**
 * tierd_dev_closing() - whether readers are asked to close the device
 *
 * Return: True while they are.
 */
bool tierd_dev_closing(void)
{
	return READ_ONCE(tierd_closing);
}

/**
 * tierd_dev_set_closing() - ask readers to close the device, or to stay
 * @value: whether they shall close it
 */
void tierd_dev_set_closing(bool value)
{
	WRITE_ONCE(tierd_closing, value);
	tierd_ring_closing(value);
}

static int tierd_dev_open(struct inode *inode, struct file *file)
{
	struct tierd_ring *ring;

	if (!capable(CAP_SYS_PTRACE))
		return -EPERM;
	if (tierd_dev_closing())
		return -ESHUTDOWN;
	ring = tierd_ring_open(capable(CAP_SYS_ADMIN));
	if (IS_ERR(ring))
		return PTR_ERR(ring);
	file->private_data = ring;
	return nonseekable_open(inode, file);
}

static int tierd_dev_release(struct inode *inode, struct file *file)
{
	tierd_ring_close(file->private_data);
	return 0;
}

static int tierd_dev_mmap(struct file *file, struct vm_area_struct *vma)
{
	return tierd_ring_map(file->private_data, vma);
}

static __poll_t tierd_dev_poll(struct file *file, poll_table *wait)
{
	struct tierd_ring *ring = file->private_data;

	poll_wait(file, tierd_ring_queue(ring), wait);
	if (tierd_dev_closing())
		return EPOLLHUP;
	return tierd_ring_ready(ring) ? EPOLLIN | EPOLLRDNORM : 0;
}

/**
 * struct tierd_resolve_batch - page frames of a request, and their owners
 * @pfns: the frames
 * @owners: whose each is
 */
struct tierd_resolve_batch {
	u64 pfns[BATCH];
	struct tierd_owner owners[BATCH];
};

static int tierd_resolve_all(const struct tierd_resolve *asked, struct tierd_resolve_batch *batch)
{
	const u64 __user *pfns = u64_to_user_ptr(asked->pfns);
	struct tierd_owner __user *owners = u64_to_user_ptr(asked->owners);
	unsigned int count[TIERD_OWNER_BUSY + 1] = {};
	u32 done, n, i;

	for (done = 0; done < asked->count; done += n) {
		n = min_t(u32, BATCH, asked->count - done);
		if (copy_from_user(batch->pfns, pfns + done, n * sizeof(*batch->pfns)))
			return -EFAULT;
		mutex_lock(&tierd_targets_lock);
		for (i = 0; i < n; i++) {
			tierd_resolve_pfn(batch->pfns[i], &batch->owners[i]);
			count[batch->owners[i].status]++;
		}
		tierd_stats.resolved += n;
		mutex_unlock(&tierd_targets_lock);
		if (copy_to_user(owners + done, batch->owners, n * sizeof(*batch->owners)))
			return -EFAULT;
		if (signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	trace_tierd_resolve(asked->count, count[TIERD_OWNER_MAPPED], count[TIERD_OWNER_SHARED],
			    count[TIERD_OWNER_GONE], count[TIERD_OWNER_BUSY]);
	return 0;
}

static long tierd_dev_resolve(const struct tierd_resolve __user *argument)
{
	struct tierd_resolve_batch *batch;
	struct tierd_resolve asked;
	int ret;

	/* Physical addresses of other processes' pages. */
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (copy_from_user(&asked, argument, sizeof(asked)))
		return -EFAULT;
	if (asked.flags || asked.count > TIERD_RESOLVE_MAX)
		return -EINVAL;
	batch = kmalloc(sizeof(*batch), GFP_KERNEL_ACCOUNT);
	if (!batch)
		return -ENOMEM;
	ret = tierd_resolve_all(&asked, batch);
	kfree(batch);
	return ret;
}

static long tierd_dev_kinds(struct tierd_ring *ring, const u32 __user *argument)
{
	u32 kinds;

	if (get_user(kinds, argument))
		return -EFAULT;
	return tierd_ring_set_kinds(ring, kinds);
}

static long tierd_dev_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	switch (command) {
	case TIERD_IOC_KINDS:
		return tierd_dev_kinds(file->private_data, (const u32 __user *)argument);
	case TIERD_IOC_RESOLVE:
		return tierd_dev_resolve((const void __user *)argument);
	}
	return -ENOTTY;
}

static const struct file_operations tierd_dev_operations = {
	.owner = THIS_MODULE,
	.open = tierd_dev_open,
	.release = tierd_dev_release,
	.mmap = tierd_dev_mmap,
	.poll = tierd_dev_poll,
	.unlocked_ioctl = tierd_dev_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice tierd_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = TIERD_DEVICE,
	.fops = &tierd_dev_operations,
	.mode = 0600,
};

/**
 * tierd_dev_init() - make the device
 *
 * Return: 0 or a negative errno.
 */
int tierd_dev_init(void)
{
	return misc_register(&tierd_device);
}

/**
 * tierd_dev_exit() - take the device away
 */
void tierd_dev_exit(void)
{
	misc_deregister(&tierd_device);
}
