// SPDX-License-Identifier: GPL-2.0-only
/* Register accesses of a card: counted, and each failure with a reason. */
#include "neoprof.h"

#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/sched.h>

static int neoprof_regs_failed(struct neoprof_card *card, int error, const char *what, u32 offset)
{
	card->stats.errors++;
	switch (error) {
	case -ETIMEDOUT:
		scnprintf(card->why, sizeof(card->why), "%s of register 0x%x: no answer in %u ms",
			  what, offset, neoprof_timeout_ms);
		break;
	case -ENODEV:
		scnprintf(card->why, sizeof(card->why), "%s of register 0x%x: the %s has gone",
			  what, offset, card->bus->name);
		break;
	case -EIO:
		scnprintf(card->why, sizeof(card->why), "%s of register 0x%x: refused by the card",
			  what, offset);
		break;
	default:
		scnprintf(card->why, sizeof(card->why), "%s of register 0x%x: error %d", what,
			  offset, error);
	}
	return error;
}

/**
 * neoprof_read() - read a register
 * @card: the card
 * @offset: of the register
 * @size: of the register, in bytes
 * @value: what it holds
 *
 * Called with the card's lock, as all accesses. A failure leaves its reason in the card's why.
 *
 * Return: 0 or a negative errno.
 */
int neoprof_read(struct neoprof_card *card, u32 offset, unsigned int size, u64 *value)
{
	int ret = card->bus->read(card, offset, size, value);

	card->stats.accesses++;
	return ret ? neoprof_regs_failed(card, ret, "read", offset) : 0;
}

/**
 * neoprof_write() - write a register
 * @card: the card
 * @offset: of the register
 * @size: of the register, in bytes
 * @value: what it holds
 *
 * Return: 0 or a negative errno.
 */
int neoprof_write(struct neoprof_card *card, u32 offset, unsigned int size, u64 value)
{
	int ret = card->bus->write(card, offset, size, value);

	card->stats.accesses++;
	return ret ? neoprof_regs_failed(card, ret, "write", offset) : 0;
}

/**
 * neoprof_read_block() - read registers in a row
 * @card: the card
 * @offset: of the first one
 * @size: of each, in bytes
 * @count: how many
 * @buffer: what they hold
 *
 * Return: 0 or a negative errno.
 */
int neoprof_read_block(struct neoprof_card *card, u32 offset, unsigned int size, unsigned int count,
		       void *buffer)
{
	int ret = card->bus->read_block(card, offset, size, count, buffer);

	card->stats.accesses++;
	return ret ? neoprof_regs_failed(card, ret, "block read", offset) : 0;
}

/**
 * neoprof_wait() - wait until no bit of a mask is set in a register
 * @card: the card
 * @offset: of the register
 * @size: of the register, in bytes
 * @mask: the bits
 * @what: what is waited for, for the reason
 *
 * Return: 0, -ETIMEDOUT, or as neoprof_read().
 */
int neoprof_wait(struct neoprof_card *card, u32 offset, unsigned int size, u64 mask,
		 const char *what)
{
	u64 end = ktime_get_ns() + (u64)neoprof_timeout_ms * NSEC_PER_MSEC;
	unsigned int tries = 0;
	bool last = false;
	u64 value;
	int ret;

	for (;;) {
		ret = neoprof_read(card, offset, size, &value);
		if (ret)
			return ret;
		if (!(value & mask))
			return 0;
		/* One more look after the time is up: this thread may not have run for long. */
		if (last)
			break;
		last = ktime_get_ns() > end;
		if (++tries < 16)
			cond_resched();
		else
			usleep_range(20, 100);
	}
	card->stats.errors++;
	scnprintf(card->why, sizeof(card->why), "%s did not end in %u ms", what,
		  neoprof_timeout_ms);
	return -ETIMEDOUT;
}
