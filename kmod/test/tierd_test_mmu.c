// SPDX-License-Identifier: GPL-2.0-only
/*
 * For tests only: gives a process an MMU notifier, as KVM does a process that runs a virtual
 * machine. The parameter `pid` says which; 0 takes it away.
 */
#include <linux/mmu_notifier.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>

static const struct mmu_notifier_ops notifier_ops = {};
static struct mmu_notifier notifier = { .ops = &notifier_ops };
static struct mm_struct *notified; /* has the notifier, NULL: none has */
static unsigned int notified_pid;

static void take_away(void)
{
	if (!notified)
		return;
	mmu_notifier_unregister(&notifier, notified);
	notified = NULL;
	notified_pid = 0;
}

static int set_pid(const char *value, const struct kernel_param *param)
{
	struct task_struct *task;
	struct mm_struct *mm;
	unsigned int number;
	int ret = kstrtouint(value, 0, &number);

	if (ret)
		return ret;
	take_away();
	if (!number)
		return 0;
	rcu_read_lock();
	task = pid_task(find_vpid(number), PIDTYPE_PID);
	if (task)
		get_task_struct(task);
	rcu_read_unlock();
	if (!task)
		return -ESRCH;
	mm = get_task_mm(task);
	put_task_struct(task);
	if (!mm)
		return -ESRCH;
	ret = mmu_notifier_register(&notifier, mm);
	mmput(mm);
	if (ret)
		return ret;
	notified = mm;
	notified_pid = number;
	return 0;
}

static const struct kernel_param_ops pid_ops = { .set = set_pid, .get = param_get_uint };
module_param_cb(pid, &pid_ops, &notified_pid, 0644);
MODULE_PARM_DESC(pid, "Process that gets the notifier; 0: none");

static void __exit test_exit(void)
{
	take_away();
}
module_exit(test_exit);

static int __init test_init(void)
{
	return 0;
}
module_init(test_init);

MODULE_DESCRIPTION("An MMU notifier for tests of tierd");
MODULE_AUTHOR("The tierd authors");
MODULE_LICENSE("GPL");
