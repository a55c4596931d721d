// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which PCI devices are taken: those whose ids the parameter `ids` or the driver's new_id gives, as
 * a NeoProf card has no id of its own.
 */
#include "neoprof.h"

#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>

/* driver_data; new_id takes one of these, 0 if none is given */
enum {
	NEOPROF_PCI_CHMU = 0,
	NEOPROF_PCI_V1 = 1,
};

static char *neoprof_pci_ids;
module_param_named(ids, neoprof_pci_ids, charp, 0444);
MODULE_PARM_DESC(ids, "PCI devices that are cards: VVVV:DDDD or VVVV:DDDD:v1, separated by commas");

static uint neoprof_pci_bar;
module_param_named(bar, neoprof_pci_bar, uint, 0444);
MODULE_PARM_DESC(bar, "BAR of a card's registers where no register locator tells (0)");

/**
 * struct neoprof_pci - what a PCI device has as its driver data
 * @mmio: its registers
 * @interrupt: it sends interrupts
 */
struct neoprof_pci {
	struct neoprof_mmio *mmio;
	bool interrupt;
};

static irqreturn_t neoprof_pci_interrupt(int irq, void *argument)
{
	struct neoprof_pci *device = argument;
	struct neoprof_mmio *mmio = READ_ONCE(device->mmio);

	if (mmio)
		neoprof_mmio_interrupt(mmio);
	return IRQ_HANDLED;
}

static int neoprof_pci_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	bool v1 = id->driver_data == NEOPROF_PCI_V1;
	struct neoprof_pci *device;
	struct neoprof_mmio *mmio;
	int ret;

	if (neoprof_pci_bar >= PCI_STD_NUM_BARS)
		return -EINVAL;
	device = kzalloc(sizeof(*device), GFP_KERNEL);
	if (!device)
		return -ENOMEM;
	ret = pci_enable_device(pdev);
	if (ret)
		goto free;
	ret = pci_request_regions(pdev, "neoprof");
	if (ret)
		goto disable;
	pci_set_master(pdev); /* message-signalled interrupts are writes */
	device->interrupt = neoprof_irq_request(pdev, neoprof_pci_interrupt, device);
	mmio = neoprof_mmio_open(pdev, neoprof_pci_bar, v1 ? &neoprof_v1 : &neoprof_chmu,
				 device->interrupt);
	if (IS_ERR(mmio)) {
		ret = PTR_ERR(mmio);
		goto interrupts;
	}
	WRITE_ONCE(device->mmio, mmio);
	pci_set_drvdata(pdev, device);
	return 0;
interrupts:
	if (device->interrupt)
		neoprof_irq_free(pdev, device);
	pci_clear_master(pdev);
	pci_release_regions(pdev);
disable:
	pci_disable_device(pdev);
free:
	kfree(device);
	return ret;
}

static void neoprof_pci_remove(struct pci_dev *pdev)
{
	struct neoprof_pci *device = pci_get_drvdata(pdev);

	if (device->interrupt)
		neoprof_irq_free(pdev, device);
	neoprof_mmio_close(device->mmio);
	pci_clear_master(pdev);
	pci_release_regions(pdev);
	pci_disable_device(pdev);
	kfree(device);
}

/* Two ids that no device has, which let new_id pass their kinds. */
static const struct pci_device_id neoprof_pci_table[] = {
	{ PCI_DEVICE(0xffff, 0xfffe), .driver_data = NEOPROF_PCI_CHMU },
	{ PCI_DEVICE(0xffff, 0xfffd), .driver_data = NEOPROF_PCI_V1 },
	{},
};

static struct pci_driver neoprof_pci_driver = {
	.name = "neoprof",
	.id_table = neoprof_pci_table,
	.probe = neoprof_pci_probe,
	.remove = neoprof_pci_remove,
};

/* "1234:5678,1172:0001:v1" */
static int neoprof_pci_add_ids(void)
{
	char *text, *rest, *word, kind[4];
	unsigned int vendor, device;
	int fields, ret = 0;

	if (!neoprof_pci_ids)
		return 0;
	rest = text = kstrdup(neoprof_pci_ids, GFP_KERNEL);
	if (!text)
		return -ENOMEM;
	while (!ret && (word = strsep(&rest, ","))) {
		fields = sscanf(word, "%x:%x:%3s", &vendor, &device, kind);
		if (fields < 2 || vendor > 0xffff || device > 0xffff ||
		    (fields == 3 && strcmp(kind, "v1"))) {
			pr_err("tierd_neoprof: ids: \"%s\" is not VVVV:DDDD or VVVV:DDDD:v1\n",
			       word);
			ret = -EINVAL;
			break;
		}
		ret = pci_add_dynid(&neoprof_pci_driver, vendor, device, PCI_ANY_ID, PCI_ANY_ID, 0,
				    0, fields == 3 ? NEOPROF_PCI_V1 : NEOPROF_PCI_CHMU);
	}
	kfree(text);
	return ret;
}

/**
 * neoprof_pci_init() - take devices from now on
 *
 * Return: 0 or a negative errno.
 */
int neoprof_pci_init(void)
{
	int ret = pci_register_driver(&neoprof_pci_driver);

	if (ret)
		return ret;
	ret = neoprof_pci_add_ids();
	if (ret)
		pci_unregister_driver(&neoprof_pci_driver);
	return ret;
}

/**
 * neoprof_pci_exit() - let go of all devices
 */
void neoprof_pci_exit(void)
{
	pci_unregister_driver(&neoprof_pci_driver);
}
