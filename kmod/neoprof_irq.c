// SPDX-License-Identifier: GPL-2.0-only
/* Message-signalled interrupts: all of them mean "look", whatever their number. */
#include "neoprof.h"

#define NEOPROF_IRQS 16

/**
 * neoprof_irq_request() - have a handler called for each of a device's messages
 * @pdev: the device
 * @handler: what is called
 * @argument: what it is called with
 *
 * Return: whether there are such interrupts.
 */
bool neoprof_irq_request(struct pci_dev *pdev, irq_handler_t handler, void *argument)
{
	int count = pci_alloc_irq_vectors(pdev, 1, NEOPROF_IRQS, PCI_IRQ_MSI | PCI_IRQ_MSIX), i;

	if (count < 0)
		return false;
	for (i = 0; i < count; i++)
		if (request_irq(pci_irq_vector(pdev, i), handler, 0, "neoprof", argument))
			break;
	if (i == count)
		return true;
	while (i--)
		free_irq(pci_irq_vector(pdev, i), argument);
	pci_free_irq_vectors(pdev);
	return false;
}
EXPORT_SYMBOL_GPL(neoprof_irq_request);

/**
 * neoprof_irq_free() - undo neoprof_irq_request(), which returned true
 * @pdev: the device
 * @argument: as it was given
 */
void neoprof_irq_free(struct pci_dev *pdev, void *argument)
{
	int i, irq;

	/* A window's doorbell register would go on sending them; nobody listens. */
	for (i = 0; i < NEOPROF_IRQS && (irq = pci_irq_vector(pdev, i)) >= 0; i++)
		free_irq(irq, argument);
	pci_free_irq_vectors(pdev);
}
EXPORT_SYMBOL_GPL(neoprof_irq_free);
