// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which PCI devices are taken, and what is behind them: a window (ivshmem-plain and
 * ivshmem-doorbell with a window's magic), or registers, for ids that the parameter
 * neoprof_ids or the driver's new_id gives: a NeoProf card has no id of its own.
 */
#include "neoprof.h"
#include "neoprof_window.h"

#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>

/* driver_data; new_id takes one of these, 0 if none is given */
enum {
	KIND_CHMU = 0,
	KIND_V1 = 1,
	KIND_WINDOW = 2,
};

static char *ids;
module_param_named(neoprof_ids, ids, charp, 0444);
MODULE_PARM_DESC(neoprof_ids,
		 "PCI devices that are cards: VVVV:DDDD or VVVV:DDDD:v1, separated by commas");

static uint bar;
module_param_named(neoprof_bar, bar, uint, 0444);
MODULE_PARM_DESC(neoprof_bar, "BAR of a card's registers where no register locator tells (0)");

static ulong window_v1;
module_param_named(neoprof_window_v1, window_v1, ulong, 0444);
MODULE_PARM_DESC(neoprof_window_v1,
		 "Bitmap of a window's cards that have the published register layout (0)");

struct neoprof_device {
	struct neoprof_window *window;
	struct neoprof_mmio *mmio;
	void __iomem *memory;
	bool interrupt;
	bool claimed; /* its memory */
};

static irqreturn_t handler(int irq, void *argument)
{
	struct neoprof_device *device = argument;
	struct neoprof_window *window = READ_ONCE(device->window);
	struct neoprof_mmio *mmio = READ_ONCE(device->mmio);

	if (window)
		neoprof_window_interrupt(window);
	if (mmio)
		neoprof_mmio_interrupt(mmio);
	return IRQ_HANDLED;
}

/* Message-signalled interrupts only: all of them mean "look", whatever their number. */
static bool request_interrupts(struct pci_dev *pdev, struct neoprof_device *device)
{
	int count = pci_alloc_irq_vectors(pdev, 1, 16, PCI_IRQ_MSI | PCI_IRQ_MSIX), i;

	if (count < 0)
		return false;
	for (i = 0; i < count; i++)
		if (request_irq(pci_irq_vector(pdev, i), handler, 0, "neoprof", device))
			break;
	if (i == count)
		return true;
	while (i--)
		free_irq(pci_irq_vector(pdev, i), device);
	pci_free_irq_vectors(pdev);
	return false;
}

static void free_interrupts(struct pci_dev *pdev, struct neoprof_device *device)
{
	int i, irq;

	if (!device->interrupt)
		return;
	/* A window's doorbell register would go on sending them; nobody listens. */
	for (i = 0; (irq = pci_irq_vector(pdev, i)) >= 0 && i < 16; i++)
		free_irq(irq, device);
	pci_free_irq_vectors(pdev);
}

/* Looks without a trace at a device that may well be used for something else. */
static bool has_window(struct pci_dev *pdev)
{
	void __iomem *memory;
	bool found;

	if (pci_resource_len(pdev, NPW_PCI_BAR) < NPW_BYTES || pci_enable_device_mem(pdev))
		return false;
	memory = pci_iomap(pdev, NPW_PCI_BAR, 0);
	found = memory && readl(memory + NPW_MAGIC_OFFSET) == NPW_MAGIC;
	if (memory)
		pci_iounmap(pdev, memory);
	pci_disable_device(pdev);
	return found;
}

static int open_window(struct pci_dev *pdev, struct neoprof_device *device)
{
	struct neoprof_window *window;

	device->memory = pci_iomap(pdev, NPW_PCI_BAR, 0);
	if (!device->memory)
		return -ENODEV;
	window = neoprof_window_open(pdev, device->memory, pci_resource_len(pdev, NPW_PCI_BAR),
				     window_v1, device->interrupt);
	if (IS_ERR(window)) {
		pci_iounmap(pdev, device->memory);
		return PTR_ERR(window);
	}
	WRITE_ONCE(device->window, window);
	return 0;
}

static int open_mmio(struct pci_dev *pdev, struct neoprof_device *device, bool v1)
{
	struct neoprof_mmio *mmio;

	if (bar >= PCI_STD_NUM_BARS)
		return -EINVAL;
	mmio = neoprof_mmio_open(pdev, bar, v1 ? &neoprof_v1 : &neoprof_chmu, device->interrupt);
	if (IS_ERR(mmio))
		return PTR_ERR(mmio);
	WRITE_ONCE(device->mmio, mmio);
	return 0;
}

static int probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	bool window = id->driver_data == KIND_WINDOW;
	struct neoprof_device *device;
	int ret;

	if (window && !has_window(pdev))
		return -ENODEV;
	device = kzalloc(sizeof(*device), GFP_KERNEL);
	if (!device)
		return -ENOMEM;
	ret = pci_enable_device(pdev);
	if (ret)
		goto free;
	/*
	 * A window's memory is not claimed: to claim it would take it from programs that have it
	 * mapped, be it some other ivshmem device or the lab's own controls in the window.
	 */
	if (!window)
		ret = pci_request_regions(pdev, "neoprof");
	if (ret)
		goto disable;
	pci_set_master(pdev); /* message-signalled interrupts are writes */
	device->interrupt = request_interrupts(pdev, device);
	device->claimed = !window;
	ret = window ? open_window(pdev, device)
		     : open_mmio(pdev, device, id->driver_data == KIND_V1);
	if (ret)
		goto interrupts;
	pci_set_drvdata(pdev, device);
	return 0;
interrupts:
	free_interrupts(pdev, device);
	pci_clear_master(pdev);
	if (!window)
		pci_release_regions(pdev);
disable:
	pci_disable_device(pdev);
free:
	kfree(device);
	return ret;
}

static void remove(struct pci_dev *pdev)
{
	struct neoprof_device *device = pci_get_drvdata(pdev);

	free_interrupts(pdev, device);
	if (device->window)
		neoprof_window_close(device->window);
	if (device->mmio)
		neoprof_mmio_close(device->mmio);
	if (device->memory)
		pci_iounmap(pdev, device->memory);
	pci_clear_master(pdev);
	if (device->claimed)
		pci_release_regions(pdev);
	pci_disable_device(pdev);
	kfree(device);
}

/*
 * Not in the module's device table: a machine with some other ivshmem device shall not load
 * tierd for it. The two ids that no device has let new_id pass their kinds.
 */
static const struct pci_device_id id_table[] = {
    {PCI_DEVICE(NPW_PCI_VENDOR, NPW_PCI_DEVICE), .driver_data = KIND_WINDOW},
    {PCI_DEVICE(0xffff, 0xfffe), .driver_data = KIND_CHMU},
    {PCI_DEVICE(0xffff, 0xfffd), .driver_data = KIND_V1},
    {},
};

static struct pci_driver driver = {
    .name = "neoprof",
    .id_table = id_table,
    .probe = probe,
    .remove = remove,
};

/* "1234:5678,1172:0001:v1" */
static int add_ids(void)
{
	char *text, *rest, *word, kind[4];
	unsigned int vendor, device;
	int fields, ret = 0;

	if (!ids)
		return 0;
	rest = text = kstrdup(ids, GFP_KERNEL);
	if (!text)
		return -ENOMEM;
	while (!ret && (word = strsep(&rest, ","))) {
		fields = sscanf(word, "%x:%x:%3s", &vendor, &device, kind);
		if (fields < 2 || vendor > 0xffff || device > 0xffff ||
		    (fields == 3 && strcmp(kind, "v1"))) {
			pr_err("tierd: neoprof_ids: \"%s\" is not VVVV:DDDD or VVVV:DDDD:v1\n",
			       word);
			ret = -EINVAL;
			break;
		}
		ret = pci_add_dynid(&driver, vendor, device, PCI_ANY_ID, PCI_ANY_ID, 0, 0,
				    fields == 3 ? KIND_V1 : KIND_CHMU);
	}
	kfree(text);
	return ret;
}

int neoprof_pci_init(void)
{
	int ret = pci_register_driver(&driver);

	if (ret)
		return ret;
	ret = add_ids();
	if (ret)
		pci_unregister_driver(&driver);
	return ret;
}

void neoprof_pci_exit(void)
{
	pci_unregister_driver(&driver);
}
