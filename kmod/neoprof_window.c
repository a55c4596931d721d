// SPDX-License-Identifier: GPL-2.0-only
/*
 * The bus "window": simulated cards behind memory that guest and host share, as
 * neoprof_window.h describes it. Memory has no side effects, so each register access is a
 * message that the host answers; the wait for it is bounded.
 */
#include "neoprof_window.h"
#include "neoprof.h"

#include <linux/delay.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/ktime.h>
#include <linux/sched.h>
#include <linux/slab.h>

#define SPINS 4096 /* looks at the doorbell before the wait sleeps between two */

struct neoprof_window {
	void __iomem *memory;
	unsigned int count;
	struct window_port {
		struct neoprof_window *window;
		void __iomem *part;
		struct neoprof_card *card;
	} ports[NPW_CARDS_MAX];
};

static bool alive(const struct window_port *port)
{
	return readl(port->window->memory + NPW_MAGIC_OFFSET) == NPW_MAGIC;
}

/* The host sets the doorbell back. -ENODEV: it has gone; -ETIMEDOUT: it does not answer. */
static int wait_idle(const struct window_port *port)
{
	u64 end = 0;
	unsigned int spins;
	bool last = false;

	for (spins = 0;; spins++) {
		if (readl(port->part + NPW_DOORBELL) == NPW_DOORBELL_IDLE)
			return alive(port) ? 0 : -ENODEV;
		if (spins < SPINS) {
			cpu_relax();
			continue;
		}
		if (!alive(port))
			return -ENODEV;
		if (last)
			return -ETIMEDOUT;
		if (!end)
			end = ktime_get_ns() + (u64)neoprof_timeout_ms * NSEC_PER_MSEC;
		/* This thread may not have run for long: one more look when the time is up. */
		last = ktime_get_ns() > end;
		usleep_range(20, 60);
	}
}

static int request(const struct window_port *port, u32 op, u32 offset, unsigned int size, u64 value,
		   unsigned int count)
{
	int ret;

	/* A request that was given up may still be there. */
	if (!alive(port))
		return -ENODEV;
	ret = wait_idle(port);
	if (ret)
		return ret;
	writel(op, port->part + NPW_OP);
	writel(offset, port->part + NPW_OFFSET);
	writel(size, port->part + NPW_SIZE);
	writeq(value, port->part + NPW_VALUE);
	writel(count, port->part + NPW_COUNT);
	wmb(); /* the message before the doorbell, write combining or not */
	writel(NPW_DOORBELL_POSTED, port->part + NPW_DOORBELL);
	ret = wait_idle(port);
	if (ret)
		return ret;
	rmb(); /* the doorbell before the answer */
	/* The host's errors are not trusted to be one of ours. */
	ret = (int)readl(port->part + NPW_STATUS);
	return !ret || ret == -ENODEV ? ret : -EIO;
}

static int window_read(struct neoprof_card *card, u32 offset, unsigned int size, u64 *value)
{
	const struct window_port *port = card->port;
	int ret = request(port, NPW_OP_READ, offset, size, 0, 0);

	if (!ret)
		*value = readq(port->part + NPW_VALUE);
	return ret;
}

static int window_write(struct neoprof_card *card, u32 offset, unsigned int size, u64 value)
{
	return request(card->port, NPW_OP_WRITE, offset, size, value, 0);
}

static int window_read_block(struct neoprof_card *card, u32 offset, unsigned int size,
			     unsigned int count, void *buffer)
{
	const struct window_port *port = card->port;
	unsigned int most = NPW_BUFFER_BYTES / size, done, n;
	int ret;

	for (done = 0; done < count; done += n) {
		n = min(count - done, most);
		ret = request(port, NPW_OP_READ_BLOCK, offset + done * size, size, 0, n);
		if (ret)
			return ret;
		memcpy_fromio(buffer + done * size, port->part + NPW_BUFFER, n * size);
	}
	return 0;
}

static u32 window_hdm(struct neoprof_card *card, u32 offset)
{
	const struct window_port *port = card->port;

	if (offset > NPW_BUFFER - NPW_HDM - sizeof(u32))
		return 0;
	return readl(port->part + NPW_HDM + offset);
}

static const struct neoprof_bus window_bus = {
    .name = "window",
    .read = window_read,
    .write = window_write,
    .read_block = window_read_block,
    .hdm = window_hdm,
};

/*
 * The window in a device's memory, or -ENODEV if there is none: other uses are made of
 * such devices. `v1`: bitmap of cards that speak the published register layout.
 */
struct neoprof_window *neoprof_window_open(struct pci_dev *pdev, void __iomem *memory,
					   resource_size_t size, unsigned long v1, bool interrupt)
{
	struct neoprof_window *window;
	struct neoprof_card *card;
	u32 version, count, i;

	if (size < NPW_BYTES || readl(memory + NPW_MAGIC_OFFSET) != NPW_MAGIC)
		return ERR_PTR(-ENODEV);
	version = readl(memory + NPW_VERSION_OFFSET);
	count = readl(memory + NPW_CARDS_OFFSET);
	if (version != NPW_VERSION || !count || count > NPW_CARDS_MAX) {
		dev_err(&pdev->dev, "NeoProf window of version %u with %u cards: not supported\n",
			version, count);
		return ERR_PTR(-EPROTO);
	}
	window = kzalloc(sizeof(*window), GFP_KERNEL);
	if (!window)
		return ERR_PTR(-ENOMEM);
	window->memory = memory;
	window->count = count;
	for (i = 0; i < count; i++) {
		struct window_port *port = &window->ports[i];

		port->window = window;
		port->part = memory + NPW_CARD_BASE + i * NPW_CARD_STRIDE;
		card = neoprof_card_add(&window_bus, v1 >> i & 1 ? &neoprof_v1 : &neoprof_chmu,
					port, 0, &pdev->dev, interrupt);
		if (IS_ERR(card)) {
			neoprof_window_close(window);
			return ERR_CAST(card);
		}
		WRITE_ONCE(port->card, card);
	}
	return window;
}

void neoprof_window_close(struct neoprof_window *window)
{
	unsigned int i;

	for (i = 0; i < window->count; i++)
		if (window->ports[i].card)
			neoprof_card_remove(window->ports[i].card);
	kfree(window);
}

void neoprof_window_interrupt(struct neoprof_window *window)
{
	unsigned int i;

	for (i = 0; i < window->count; i++) {
		struct neoprof_card *card = READ_ONCE(window->ports[i].card);

		if (card)
			neoprof_card_interrupt(card);
	}
}
