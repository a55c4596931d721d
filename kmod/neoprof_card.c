// SPDX-License-Identifier: GPL-2.0-only
/*
 * A card from its arrival to its end, whatever its bus and layout: the list of cards, their
 * states, and the thread that drains each.
 */
#include "neoprof.h"

#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/sched.h>
#include <linux/sched/task.h>
#include <linux/slab.h>

DEFINE_MUTEX(neoprof_cards_lock);
LIST_HEAD(neoprof_cards);

static const struct neoprof_settings neoprof_card_defaults = {
	.drain_us = 10000,
	.epoch_us = 5000000,
	.threshold = 200,
	.flags = 0,
	.track = TIERD_TRACK_BOTH,
	.unit_log2 = 12,
};

static void neoprof_card_free(struct kref *ref)
{
	struct neoprof_card *card = container_of(ref, struct neoprof_card, ref);

	if (card->thread)
		put_task_struct(card->thread);
	put_device(card->parent);
	kvfree(card->entries);
	kvfree(card->records);
	kvfree(card->frames);
	kfree(card);
}

/**
 * neoprof_card_put() - drop a reference
 * @card: the card
 */
void neoprof_card_put(struct neoprof_card *card)
{
	kref_put(&card->ref, neoprof_card_free);
}

/**
 * neoprof_card_get() - the card with a number
 * @number: its number
 *
 * Return: The card with a reference, NULL if there is none.
 */
struct neoprof_card *neoprof_card_get(unsigned int number)
{
	struct neoprof_card *card, *found = NULL;

	mutex_lock(&neoprof_cards_lock);
	list_for_each_entry(card, &neoprof_cards, node) {
		if (card->number != number)
			continue;
		kref_get(&card->ref);
		found = card;
		break;
	}
	mutex_unlock(&neoprof_cards_lock);
	return found;
}

/**
 * neoprof_card_kick() - make the card's thread run
 * @card: the card
 *
 * From any context.
 */
void neoprof_card_kick(struct neoprof_card *card)
{
	WRITE_ONCE(card->kicked, true);
	wake_up_process(card->thread);
}

/**
 * neoprof_card_interrupt() - the card has sent an interrupt
 * @card: the card
 */
void neoprof_card_interrupt(struct neoprof_card *card)
{
	/* One handler at a time. */
	WRITE_ONCE(card->stats.interrupts, card->stats.interrupts + 1);
	neoprof_card_kick(card);
}
EXPORT_SYMBOL_GPL(neoprof_card_interrupt);

/**
 * neoprof_card_failed() - note that an access failed
 * @card: the card
 * @error: the error
 *
 * Called with the card's lock; the reason is in its why.
 */
void neoprof_card_failed(struct neoprof_card *card, int error)
{
	lockdep_assert_held(&card->lock);
	if (card->state == TIERD_CARD_STATE_FAILED)
		return;
	card->state = TIERD_CARD_STATE_FAILED;
	WRITE_ONCE(card->owner, 0);
	dev_warn(card->parent, "NeoProf card %u failed: %s (%d)\n", card->number, card->why, error);
	neoprof_event(TIERD_EVENT_CARD_FAILED, card);
}

/**
 * neoprof_card_start() - configure the card and count
 * @card: the card
 *
 * Called with the card's lock.
 *
 * Return: 0, -EINVAL with a reason if it refused, or another negative errno.
 */
int neoprof_card_start(struct neoprof_card *card)
{
	int ret;

	lockdep_assert_held(&card->lock);
	ret = card->layout->start(card);
	if (ret == -EINVAL) {
		/* Refused; the card answers, and is stopped. */
		card->state = TIERD_CARD_STATE_STOPPED;
		return ret;
	}
	if (ret) {
		neoprof_card_failed(card, ret);
		return ret;
	}
	card->why[0] = 0;
	card->state = TIERD_CARD_STATE_COUNTING;
	card->epoch_ns = ktime_get_ns();
	neoprof_card_kick(card);
	return 0;
}

/**
 * neoprof_card_stop() - stop counting
 * @card: the card
 *
 * Called with the card's lock.
 *
 * Return: 0 or a negative errno.
 */
int neoprof_card_stop(struct neoprof_card *card)
{
	int ret;

	lockdep_assert_held(&card->lock);
	WRITE_ONCE(card->owner, 0);
	if (card->state != TIERD_CARD_STATE_COUNTING)
		return 0;
	card->state = TIERD_CARD_STATE_STOPPED;
	ret = card->layout->stop(card);
	if (ret)
		neoprof_card_failed(card, ret);
	return ret;
}

/**
 * neoprof_card_reset() - identify the card anew, whatever its state
 * @card: the card
 *
 * Called with the card's lock. It is stopped afterwards.
 *
 * Return: 0 or a negative errno.
 */
int neoprof_card_reset(struct neoprof_card *card)
{
	int ret;

	lockdep_assert_held(&card->lock);
	if (card->state == TIERD_CARD_STATE_COUNTING)
		neoprof_card_stop(card);
	ret = card->layout->identify(card);
	if (ret) {
		neoprof_card_failed(card, ret);
		return ret;
	}
	card->state = TIERD_CARD_STATE_STOPPED;
	if (!card->ranges_given)
		neoprof_hdm_ranges(card);
	else
		card->why[0] = 0;
	return 0;
}

/**
 * neoprof_card_requests() - reads and writes since the reset
 * @card: the card
 * @requests: how many
 *
 * Called with the card's lock.
 *
 * Return: 0, -ENODEV if it has failed, -EOPNOTSUPP if it does not tell.
 */
int neoprof_card_requests(struct neoprof_card *card, u64 *requests)
{
	int ret;

	lockdep_assert_held(&card->lock);
	if (card->state == TIERD_CARD_STATE_FAILED || card->removed)
		return -ENODEV;
	if (!card->layout->requests)
		return -EOPNOTSUPP;
	ret = card->layout->requests(card, requests);
	if (ret && ret != -EOPNOTSUPP)
		neoprof_card_failed(card, ret);
	return ret;
}

static void neoprof_card_drain_sleep(u64 ns)
{
	ktime_t timeout = ns_to_ktime(min_t(u64, ns, 10 * NSEC_PER_SEC));

	/* A wait without end is one that a kick ends. */
	schedule_hrtimeout_range(ns == U64_MAX ? NULL : &timeout, 50 * NSEC_PER_USEC,
				 HRTIMER_MODE_REL);
}

static int neoprof_card_drain_thread(void *argument)
{
	struct neoprof_card *card = argument;
	u64 wait_ns;

	while (!kthread_should_stop()) {
		WRITE_ONCE(card->kicked, false);
		mutex_lock(&card->lock);
		if (READ_ONCE(card->orphan)) {
			WRITE_ONCE(card->orphan, false);
			neoprof_card_stop(card);
		}
		wait_ns = neoprof_drain(card);
		mutex_unlock(&card->lock);
		set_current_state(TASK_INTERRUPTIBLE);
		if (!kthread_should_stop() && !READ_ONCE(card->kicked))
			neoprof_card_drain_sleep(wait_ns);
		__set_current_state(TASK_RUNNING);
		cond_resched();
	}
	return 0;
}

static unsigned int neoprof_card_free_number(void)
{
	struct neoprof_card *card;
	DECLARE_BITMAP(used, TIERD_CARDS_MAX) = {};

	list_for_each_entry(card, &neoprof_cards, node)
		__set_bit(card->number, used);
	return find_first_zero_bit(used, TIERD_CARDS_MAX);
}

static struct neoprof_card *neoprof_card_alloc(void)
{
	struct neoprof_card *card = kzalloc(sizeof(*card), GFP_KERNEL);

	if (!card)
		return NULL;
	kref_init(&card->ref);
	mutex_init(&card->lock);
	card->settings = neoprof_card_defaults;
	card->entries = kvcalloc(NEOPROF_TAKE, sizeof(*card->entries), GFP_KERNEL);
	card->records = kvcalloc(NEOPROF_TAKE, sizeof(*card->records), GFP_KERNEL);
	card->frames = kvcalloc(NEOPROF_TAKE, sizeof(*card->frames), GFP_KERNEL);
	if (card->entries && card->records && card->frames)
		return card;
	neoprof_card_put(card);
	return NULL;
}

/**
 * neoprof_card_add() - make a card known
 * @bus: how registers are reached
 * @layout: what the registers mean
 * @port: the bus's own
 * @instance: which CHMU of the device
 * @parent: the device
 * @interrupt: whether the device sends interrupts
 *
 * One that cannot be identified is known too, as failed, so that its reason can be read and a
 * reset tried. The caller removes it.
 *
 * Return: The card or an error pointer.
 */
struct neoprof_card *neoprof_card_add(const struct neoprof_bus *bus,
				      const struct neoprof_layout *layout, void *port,
				      unsigned int instance, struct device *parent, bool interrupt)
{
	struct neoprof_card *card = neoprof_card_alloc();
	struct task_struct *thread;

	if (!card)
		return ERR_PTR(-ENOMEM);
	card->bus = bus;
	card->layout = layout;
	card->port = port;
	card->instance = instance;
	card->parent = get_device(parent);
	card->interrupt = interrupt;
	mutex_lock(&neoprof_cards_lock);
	card->number = neoprof_card_free_number();
	if (card->number >= TIERD_CARDS_MAX) {
		mutex_unlock(&neoprof_cards_lock);
		neoprof_card_put(card);
		return ERR_PTR(-ENOSPC);
	}
	thread = kthread_create(neoprof_card_drain_thread, card, "neoprof/%u", card->number);
	if (IS_ERR(thread)) {
		mutex_unlock(&neoprof_cards_lock);
		neoprof_card_put(card);
		return ERR_CAST(thread);
	}
	card->thread = get_task_struct(thread);
	mutex_lock(&card->lock);
	list_add_tail(&card->node, &neoprof_cards);
	mutex_unlock(&neoprof_cards_lock);
	if (!neoprof_card_reset(card))
		neoprof_event(TIERD_EVENT_CARD_ADDED, card);
	mutex_unlock(&card->lock);
	card->device = neoprof_class_add(card);
	wake_up_process(card->thread);
	return card;
}
EXPORT_SYMBOL_GPL(neoprof_card_add);

/**
 * neoprof_card_remove() - take a card away
 * @card: the card
 *
 * After this nothing touches the bus any more. A command that found the card before it left the
 * list either has the lock now, and is waited for, or finds it removed.
 */
void neoprof_card_remove(struct neoprof_card *card)
{
	mutex_lock(&neoprof_cards_lock);
	list_del(&card->node);
	mutex_unlock(&neoprof_cards_lock);
	mutex_lock(&card->lock);
	neoprof_card_stop(card);
	card->removed = true;
	mutex_unlock(&card->lock);
	if (card->device)
		device_unregister(card->device);
	kthread_stop(card->thread);
	neoprof_event(TIERD_EVENT_CARD_GONE, card);
	neoprof_card_put(card);
}
EXPORT_SYMBOL_GPL(neoprof_card_remove);
