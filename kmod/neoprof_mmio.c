// SPDX-License-Identifier: GPL-2.0-only
/*
 * The bus "pci": registers in a device's memory. Where the device has a CXL register locator
 * (CXL r3.1, 8.1.9) the hotness monitoring units and HDM decoders it tells of are used;
 * otherwise one card at the start of a BAR.
 */
#include "neoprof.h"

#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/slab.h>

#define MAX_CARDS 8
#define MAX_MAPS 8

/* DVSEC "Register Locator" of the CXL consortium. */
enum {
	CXL_VENDOR = 0x1e98,
	LOCATOR_DVSEC = 8,
	DVSEC_HEADER = 4, /* length in bits 31:20 */
	LOCATOR_BLOCKS = 0xc,
	LOCATOR_STRIDE = 8,
	BLOCK_COMPONENT = 1,
	BLOCK_CHMU = 5,
};

/* In a component register block: the array of CXL.cachemem capabilities. */
enum {
	CACHEMEM = 0x1000,
	CACHEMEM_ID = 1,
	CAPABILITY_HDM = 5,
	COMPONENT_BYTES = 0x10000,
};

/**
 * struct neoprof_mmio_port - the registers of one card
 * @mmio: all of its device
 * @registers: where they begin
 * @size: how many bytes are mapped
 * @card: the card
 */
struct neoprof_mmio_port {
	struct neoprof_mmio *mmio;
	void __iomem *registers;
	u64 size;
	struct neoprof_card *card;
};

/**
 * struct neoprof_mmio - a device's memory
 * @pdev: the device
 * @count: how many cards there are
 * @map_count: how many maps there are
 * @maps: parts of its BARs
 * @hdm: registers of its decoders, NULL: none found
 * @hdm_size: how many bytes
 * @ports: its cards
 */
struct neoprof_mmio {
	struct pci_dev *pdev;
	unsigned int count, map_count;
	void __iomem *maps[MAX_MAPS];
	void __iomem *hdm;
	u32 hdm_size;
	struct neoprof_mmio_port ports[MAX_CARDS];
};

static int neoprof_mmio_read(struct neoprof_card *card, u32 offset, unsigned int size, u64 *value)
{
	const struct neoprof_mmio_port *port = card->port;
	void __iomem *at = port->registers + offset;
	u64 ones = size == 8 ? U64_MAX : (1ull << 8 * size) - 1;

	if (offset + (u64)size > port->size)
		return -EIO;
	switch (size) {
	case 1:
		*value = readb(at);
		break;
	case 2:
		*value = readw(at);
		break;
	case 4:
		*value = readl(at);
		break;
	default:
		*value = readq(at);
	}
	/* A device that was pulled reads as ones everywhere. */
	return *value == ones && !pci_device_is_present(port->mmio->pdev) ? -ENODEV : 0;
}

static int neoprof_mmio_write(struct neoprof_card *card, u32 offset, unsigned int size, u64 value)
{
	const struct neoprof_mmio_port *port = card->port;
	void __iomem *at = port->registers + offset;

	if (offset + (u64)size > port->size)
		return -EIO;
	switch (size) {
	case 1:
		writeb(value, at);
		break;
	case 2:
		writew(value, at);
		break;
	case 4:
		writel(value, at);
		break;
	default:
		writeq(value, at);
	}
	return 0;
}

static int neoprof_mmio_read_block(struct neoprof_card *card, u32 offset, unsigned int size,
				   unsigned int count, void *buffer)
{
	unsigned int i;
	u64 value;
	int ret;

	for (i = 0; i < count; i++) {
		ret = neoprof_mmio_read(card, offset + i * size, size, &value);
		if (ret)
			return ret;
		memcpy(buffer + i * size, &value, size);
	}
	return 0;
}

static u32 neoprof_mmio_hdm(struct neoprof_card *card, u32 offset)
{
	const struct neoprof_mmio_port *port = card->port;
	const struct neoprof_mmio *mmio = port->mmio;

	return mmio->hdm && offset + sizeof(u32) <= mmio->hdm_size ? readl(mmio->hdm + offset) : 0;
}

static const struct neoprof_bus neoprof_mmio_bus = {
	.name = "pci",
	.read = neoprof_mmio_read,
	.write = neoprof_mmio_write,
	.read_block = neoprof_mmio_read_block,
};

static const struct neoprof_bus neoprof_mmio_bus_hdm = {
	.name = "pci",
	.read = neoprof_mmio_read,
	.write = neoprof_mmio_write,
	.read_block = neoprof_mmio_read_block,
	.hdm = neoprof_mmio_hdm,
};

/* Maps part of a BAR for as long as the device is ours. */
static void __iomem *neoprof_mmio_map(struct neoprof_mmio *mmio, unsigned int bar, u64 offset,
				      u64 size)
{
	void __iomem *memory;

	if (bar >= PCI_STD_NUM_BARS || mmio->map_count == MAX_MAPS ||
	    offset >= pci_resource_len(mmio->pdev, bar) ||
	    !(pci_resource_flags(mmio->pdev, bar) & IORESOURCE_MEM))
		return NULL;
	memory = pci_iomap_range(mmio->pdev, bar, offset, size);
	if (memory)
		mmio->maps[mmio->map_count++] = memory;
	return memory;
}

static void neoprof_mmio_find_hdm(struct neoprof_mmio *mmio, unsigned int bar, u64 offset)
{
	void __iomem *block;
	u32 header, entry, i;

	if (offset + COMPONENT_BYTES > pci_resource_len(mmio->pdev, bar))
		return;
	block = neoprof_mmio_map(mmio, bar, offset, COMPONENT_BYTES);
	if (!block)
		return;
	header = readl(block + CACHEMEM);
	if ((header & 0xffff) != CACHEMEM_ID)
		return;
	for (i = 1; i <= header >> 24; i++) {
		entry = readl(block + CACHEMEM + 4 * i);
		if ((entry & 0xffff) != CAPABILITY_HDM)
			continue;
		mmio->hdm = block + CACHEMEM + (entry >> 20);
		mmio->hdm_size = COMPONENT_BYTES - CACHEMEM - (entry >> 20);
	}
}

static int neoprof_mmio_add_card(struct neoprof_mmio *mmio, const struct neoprof_layout *layout,
				 void __iomem *registers, u64 size, unsigned int instance,
				 bool interrupt)
{
	struct neoprof_mmio_port *port = &mmio->ports[mmio->count];
	struct neoprof_card *card;

	port->mmio = mmio;
	port->registers = registers;
	port->size = size;
	card = neoprof_card_add(mmio->hdm ? &neoprof_mmio_bus_hdm : &neoprof_mmio_bus, layout, port,
				instance, &mmio->pdev->dev, interrupt);
	if (IS_ERR(card))
		return PTR_ERR(card);
	port->card = card;
	/* A handler that sees the count sees the card. */
	smp_store_release(&mmio->count, mmio->count + 1);
	return 0;
}

/* All instances of a block of hotness monitoring units. */
static int neoprof_mmio_add_chmu(struct neoprof_mmio *mmio, unsigned int bar, u64 offset,
				 bool interrupt)
{
	u64 size = pci_resource_len(mmio->pdev, bar) - offset;
	void __iomem *registers = neoprof_mmio_map(mmio, bar, offset, size);
	unsigned int instances, i;
	int ret = 0;

	if (!registers || size < 16)
		return -ENXIO;
	instances = readl(registers) >> 8 & 0xff;
	for (i = 0; i < instances && mmio->count < MAX_CARDS && !ret; i++)
		ret = neoprof_mmio_add_card(mmio, &neoprof_chmu, registers, size, i, interrupt);
	return ret;
}

/* Registers of one kind that the locator tells of: `found` for each; -ENOENT without one. */
static int neoprof_mmio_locate(struct neoprof_mmio *mmio, u16 dvsec, u8 kind,
			       int (*found)(struct neoprof_mmio *, unsigned int, u64, bool),
			       bool interrupt)
{
	unsigned int length, at;
	u32 header, low, high;
	int ret = -ENOENT;

	pci_read_config_dword(mmio->pdev, dvsec + DVSEC_HEADER, &header);
	length = header >> 20;
	for (at = LOCATOR_BLOCKS; at + LOCATOR_STRIDE <= length; at += LOCATOR_STRIDE) {
		pci_read_config_dword(mmio->pdev, dvsec + at, &low);
		pci_read_config_dword(mmio->pdev, dvsec + at + 4, &high);
		if ((low >> 8 & 0xff) != kind)
			continue;
		ret = found(mmio, low & 7, (u64)high << 32 | (low & 0xffff0000), interrupt);
		if (ret)
			break;
	}
	return ret;
}

static int neoprof_mmio_found_component(struct neoprof_mmio *mmio, unsigned int bar, u64 offset,
					bool interrupt)
{
	if (bar < PCI_STD_NUM_BARS)
		neoprof_mmio_find_hdm(mmio, bar, offset);
	return 0;
}

static int neoprof_mmio_found_chmu(struct neoprof_mmio *mmio, unsigned int bar, u64 offset,
				   bool interrupt)
{
	if (bar >= PCI_STD_NUM_BARS || offset >= pci_resource_len(mmio->pdev, bar))
		return -ENXIO;
	return neoprof_mmio_add_chmu(mmio, bar, offset, interrupt);
}

/**
 * neoprof_mmio_open() - find the cards in a device's memory
 * @pdev: the device
 * @bar: where the registers are if no locator tells
 * @layout: what the registers mean
 * @interrupt: whether the device sends interrupts
 *
 * Return: The registers or an error pointer.
 */
struct neoprof_mmio *neoprof_mmio_open(struct pci_dev *pdev, unsigned int bar,
				       const struct neoprof_layout *layout, bool interrupt)
{
	struct neoprof_mmio *mmio = kzalloc(sizeof(*mmio), GFP_KERNEL);
	u64 size = pci_resource_len(pdev, bar);
	void __iomem *registers;
	u16 dvsec;
	int ret;

	if (!mmio)
		return ERR_PTR(-ENOMEM);
	mmio->pdev = pdev;
	dvsec = pci_find_dvsec_capability(pdev, CXL_VENDOR, LOCATOR_DVSEC);
	if (dvsec) {
		neoprof_mmio_locate(mmio, dvsec, BLOCK_COMPONENT, neoprof_mmio_found_component,
				    interrupt);
		ret = neoprof_mmio_locate(mmio, dvsec, BLOCK_CHMU, neoprof_mmio_found_chmu,
					  interrupt);
		if (ret == -ENOENT)
			dev_err(&pdev->dev, "no hotness monitoring unit in its register locator\n");
	} else {
		registers = neoprof_mmio_map(mmio, bar, 0, size);
		ret = registers ? neoprof_mmio_add_card(mmio, layout, registers, size, 0, interrupt)
				: -ENXIO;
	}
	if (!ret)
		return mmio;
	neoprof_mmio_close(mmio);
	return ERR_PTR(ret);
}

/**
 * neoprof_mmio_close() - undo neoprof_mmio_open()
 * @mmio: the registers
 */
void neoprof_mmio_close(struct neoprof_mmio *mmio)
{
	while (mmio->count)
		neoprof_card_remove(mmio->ports[--mmio->count].card);
	while (mmio->map_count)
		pci_iounmap(mmio->pdev, mmio->maps[--mmio->map_count]);
	kfree(mmio);
}

/**
 * neoprof_mmio_interrupt() - the device has sent an interrupt
 * @mmio: the registers
 */
void neoprof_mmio_interrupt(struct neoprof_mmio *mmio)
{
	/* Pairs with the release in neoprof_mmio_add_card(): cards that are counted are there. */
	unsigned int count = smp_load_acquire(&mmio->count), i;

	for (i = 0; i < count; i++)
		neoprof_card_interrupt(mmio->ports[i].card);
}
