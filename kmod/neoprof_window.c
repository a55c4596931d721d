// SPDX-License-Identifier: GPL-2.0-only
/*
 * tierd_neoprof_window.ko, for tests: the bus "window", simulated cards behind memory that guest
 * and host share, as neoprof_window.h describes it. Memory has no side effects, so each register
 * access is a message that the host answers; the wait for it is bounded. A window is in the memory
 * of an ivshmem device, plain or with a doorbell, and begins with a magic.
 */
#include "neoprof_window.h"
#include "neoprof.h"

#include <linux/delay.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/sched.h>
#include <linux/slab.h>

#define SPINS 4096 /* looks at the doorbell before the wait sleeps between two */

static ulong neoprof_window_v1;
module_param_named(v1, neoprof_window_v1, ulong, 0444);
MODULE_PARM_DESC(v1, "Bitmap of a window's cards that have the published register layout (0)");

/**
 * struct neoprof_window - a window, and the cards behind it
 * @memory: where it begins
 * @interrupt: its device sends interrupts
 * @count: how many cards
 * @ports: each card's part
 * @ports.window: the window
 * @ports.part: where its part begins
 * @ports.card: the card
 */
struct neoprof_window {
	void __iomem *memory;
	bool interrupt;
	unsigned int count;
	struct neoprof_window_port {
		struct neoprof_window *window;
		void __iomem *part;
		struct neoprof_card *card;
	} ports[NPW_CARDS_MAX];
};

static bool neoprof_window_alive(const struct neoprof_window_port *port)
{
	return readl(port->window->memory + NPW_MAGIC_OFFSET) == NPW_MAGIC;
}

/* The host sets the doorbell back. -ENODEV: it has gone; -ETIMEDOUT: it does not answer. */
static int neoprof_window_wait_idle(const struct neoprof_window_port *port)
{
	u64 end = 0;
	unsigned int spins;
	bool last = false;

	for (spins = 0;; spins++) {
		if (readl(port->part + NPW_DOORBELL) == NPW_DOORBELL_IDLE)
			return neoprof_window_alive(port) ? 0 : -ENODEV;
		if (spins < SPINS) {
			cpu_relax();
			continue;
		}
		if (!neoprof_window_alive(port))
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

static int neoprof_window_request(const struct neoprof_window_port *port, u32 op, u32 offset,
				  unsigned int size, u64 value, unsigned int count)
{
	int ret;

	/* A request that was given up may still be there. */
	if (!neoprof_window_alive(port))
		return -ENODEV;
	ret = neoprof_window_wait_idle(port);
	if (ret)
		return ret;
	writel(op, port->part + NPW_OP);
	writel(offset, port->part + NPW_OFFSET);
	writel(size, port->part + NPW_SIZE);
	writeq(value, port->part + NPW_VALUE);
	writel(count, port->part + NPW_COUNT);
	wmb(); /* the message before the doorbell, write combining or not */
	writel(NPW_DOORBELL_POSTED, port->part + NPW_DOORBELL);
	ret = neoprof_window_wait_idle(port);
	if (ret)
		return ret;
	rmb(); /* the doorbell before the answer */
	/* The host's errors are not trusted to be one of ours. */
	ret = (int)readl(port->part + NPW_STATUS);
	return !ret || ret == -ENODEV ? ret : -EIO;
}

static int neoprof_window_read(struct neoprof_card *card, u32 offset, unsigned int size, u64 *value)
{
	const struct neoprof_window_port *port = card->port;
	int ret = neoprof_window_request(port, NPW_OP_READ, offset, size, 0, 0);

	if (!ret)
		*value = readq(port->part + NPW_VALUE);
	return ret;
}

static int neoprof_window_write(struct neoprof_card *card, u32 offset, unsigned int size, u64 value)
{
	return neoprof_window_request(card->port, NPW_OP_WRITE, offset, size, value, 0);
}

static int neoprof_window_read_block(struct neoprof_card *card, u32 offset, unsigned int size,
				     unsigned int count, void *buffer)
{
	const struct neoprof_window_port *port = card->port;
	unsigned int most = NPW_BUFFER_BYTES / size, done, n;
	int ret;

	for (done = 0; done < count; done += n) {
		n = min(count - done, most);
		ret = neoprof_window_request(port, NPW_OP_READ_BLOCK, offset + done * size, size, 0,
					     n);
		if (ret)
			return ret;
		memcpy_fromio(buffer + done * size, port->part + NPW_BUFFER, n * size);
	}
	return 0;
}

static u32 neoprof_window_hdm(struct neoprof_card *card, u32 offset)
{
	const struct neoprof_window_port *port = card->port;

	if (offset > NPW_BUFFER - NPW_HDM - sizeof(u32))
		return 0;
	return readl(port->part + NPW_HDM + offset);
}

static const struct neoprof_bus neoprof_window_bus = {
	.name = "window",
	.read = neoprof_window_read,
	.write = neoprof_window_write,
	.read_block = neoprof_window_read_block,
	.hdm = neoprof_window_hdm,
};

static irqreturn_t neoprof_window_interrupt(int irq, void *argument)
{
	struct neoprof_window *window = argument;
	unsigned int i;

	for (i = 0; i < NPW_CARDS_MAX; i++) {
		struct neoprof_card *card = READ_ONCE(window->ports[i].card);

		if (card)
			neoprof_card_interrupt(card);
	}
	return IRQ_HANDLED;
}

static void neoprof_window_remove_cards(struct neoprof_window *window)
{
	unsigned int i;

	for (i = 0; i < window->count; i++)
		if (window->ports[i].card)
			neoprof_card_remove(window->ports[i].card);
}

static int neoprof_window_add_cards(struct neoprof_window *window, struct pci_dev *pdev)
{
	struct neoprof_card *card;
	unsigned int i;

	for (i = 0; i < window->count; i++) {
		struct neoprof_window_port *port = &window->ports[i];

		port->window = window;
		port->part = window->memory + NPW_CARD_BASE + i * NPW_CARD_STRIDE;
		card = neoprof_card_add(&neoprof_window_bus,
					neoprof_window_v1 >> i & 1 ? &neoprof_v1 : &neoprof_chmu,
					port, 0, &pdev->dev, window->interrupt);
		if (IS_ERR(card)) {
			neoprof_window_remove_cards(window);
			return PTR_ERR(card);
		}
		WRITE_ONCE(port->card, card);
	}
	return 0;
}

/* Whether the device's memory is a window that this driver knows: other uses are made of it. */
static int neoprof_window_check(struct pci_dev *pdev, struct neoprof_window *window)
{
	u32 version;

	if (readl(window->memory + NPW_MAGIC_OFFSET) != NPW_MAGIC)
		return -ENODEV;
	version = readl(window->memory + NPW_VERSION_OFFSET);
	window->count = readl(window->memory + NPW_CARDS_OFFSET);
	if (version == NPW_VERSION && window->count && window->count <= NPW_CARDS_MAX)
		return 0;
	dev_err(&pdev->dev, "NeoProf window of version %u with %u cards: not supported\n", version,
		window->count);
	return -EPROTO;
}

static int neoprof_window_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct neoprof_window *window;
	int ret;

	if (pci_resource_len(pdev, NPW_PCI_BAR) < NPW_BYTES)
		return -ENODEV;
	window = kzalloc(sizeof(*window), GFP_KERNEL);
	if (!window)
		return -ENOMEM;
	ret = pci_enable_device_mem(pdev);
	if (ret)
		goto free;
	/*
	 * Its memory is not claimed: that would take it from programs that have it mapped, be it
	 * some other ivshmem device or the lab's own controls in the window.
	 */
	ret = -ENOMEM;
	window->memory = pci_iomap(pdev, NPW_PCI_BAR, 0);
	if (!window->memory)
		goto disable;
	ret = neoprof_window_check(pdev, window);
	if (ret)
		goto unmap;
	pci_set_master(pdev); /* message-signalled interrupts are writes */
	window->interrupt = neoprof_irq_request(pdev, neoprof_window_interrupt, window);
	ret = neoprof_window_add_cards(window, pdev);
	if (ret)
		goto interrupts;
	pci_set_drvdata(pdev, window);
	return 0;
interrupts:
	if (window->interrupt)
		neoprof_irq_free(pdev, window);
	pci_clear_master(pdev);
unmap:
	pci_iounmap(pdev, window->memory);
disable:
	pci_disable_device(pdev);
free:
	kfree(window);
	return ret;
}

static void neoprof_window_remove(struct pci_dev *pdev)
{
	struct neoprof_window *window = pci_get_drvdata(pdev);

	if (window->interrupt)
		neoprof_irq_free(pdev, window);
	neoprof_window_remove_cards(window);
	pci_clear_master(pdev);
	pci_iounmap(pdev, window->memory);
	pci_disable_device(pdev);
	kfree(window);
}

static const struct pci_device_id neoprof_window_table[] = {
	{ PCI_DEVICE(NPW_PCI_VENDOR, NPW_PCI_DEVICE) },
	{},
};

static struct pci_driver neoprof_window_driver = {
	.name = "neoprof_window",
	.id_table = neoprof_window_table,
	.probe = neoprof_window_probe,
	.remove = neoprof_window_remove,
};
module_pci_driver(neoprof_window_driver);

MODULE_DESCRIPTION("Simulated NeoProf cards behind shared memory, for tests of tierd");
MODULE_AUTHOR("The tierd authors");
MODULE_LICENSE("GPL");
