// SPDX-License-Identifier: GPL-2.0-only
/*
 * For tests only: commits a fault on purpose, so that a kernel that checks itself has something to
 * report. The parameter `fault` says which.
 */
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

static DEFINE_SPINLOCK(atomic_lock);
static DEFINE_MUTEX(first_lock);
static DEFINE_MUTEX(second_lock);

static void use_after_free(void)
{
	char *freed = kmalloc(64, GFP_KERNEL);

	kfree(freed);
	/* Hidden from the compiler, which would warn of it. */
	OPTIMIZER_HIDE_VAR(freed);
	READ_ONCE(*freed);
}

static void sleep_in_atomic(void)
{
	spin_lock(&atomic_lock);
	might_sleep();
	spin_unlock(&atomic_lock);
}

static void read_without_rcu(void)
{
	static int value;
	static int __rcu *pointer = (int __rcu *)&value;

	(void)rcu_dereference(pointer);
}

static void wrong_order(void)
{
	mutex_lock(&first_lock);
	mutex_lock(&second_lock);
	mutex_unlock(&second_lock);
	mutex_unlock(&first_lock);
	mutex_lock(&second_lock);
	mutex_lock(&first_lock);
	mutex_unlock(&first_lock);
	mutex_unlock(&second_lock);
}

static const struct {
	const char *name;
	void (*commit)(void);
} faults[] = {
	{ "use-after-free", use_after_free },
	{ "sleep-in-atomic", sleep_in_atomic },
	{ "read-without-rcu", read_without_rcu },
	{ "wrong-order", wrong_order },
};

static int set_fault(const char *value, const struct kernel_param *param)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(faults); i++) {
		if (!sysfs_streq(value, faults[i].name))
			continue;
		faults[i].commit();
		return 0;
	}
	return -EINVAL;
}

static const struct kernel_param_ops fault_ops = { .set = set_fault };
module_param_cb(fault, &fault_ops, NULL, 0200);
MODULE_PARM_DESC(fault, "use-after-free, sleep-in-atomic, read-without-rcu or wrong-order");

MODULE_DESCRIPTION("Faults for tests of tierd");
MODULE_AUTHOR("The tierd authors");
MODULE_LICENSE("GPL");
