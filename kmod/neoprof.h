/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Inside of tierd_neoprof.ko, the NeoProf driver, which uses tierd.ko. Arrows point one way:
 *
 *	pci -> mmio -> card -> layouts (chmu, v1), ranges, drain, class, netlink's events
 *	netlink commands -> set -> card;  drain -> ranges, resolve, ring
 *
 * What is exported is for tierd_neoprof_window.ko, in which a window takes the place of pci and
 * mmio, for simulated cards.
 *
 * A bus says how a register is reached, a layout what the registers mean.
 *
 * Locks, in the order they are taken (tierd.h has those behind them):
 *	cards_lock (mutex)   the list of cards
 *	card->lock (mutex)   all of a card, its registers too
 *	targets_lock, rings_lock
 */
#ifndef NEOPROF_H
#define NEOPROF_H

#include "tierd.h"

#include <linux/device.h>
#include <linux/interrupt.h>
#include <linux/netlink.h>
#include <linux/pci.h>

struct genl_info;
struct neoprof_card;

/**
 * struct neoprof_bus - how registers are reached
 * @name: as told to user space
 * @read: a register of 1, 2, 4 or 8 bytes
 * @write: the same
 * @read_block: so many registers in a row, in host byte order
 * @hdm: a register of the CXL HDM decoder capability; NULL: there is none to read
 *
 * They return 0, -EIO (refused by the card), -ETIMEDOUT (no answer), or -ENODEV (gone).
 */
struct neoprof_bus {
	const char *name;
	int (*read)(struct neoprof_card *card, u32 offset, unsigned int size, u64 *value);
	int (*write)(struct neoprof_card *card, u32 offset, unsigned int size, u64 value);
	int (*read_block)(struct neoprof_card *card, u32 offset, unsigned int size,
			  unsigned int count, void *buffer);
	u32 (*hdm)(struct neoprof_card *card, u32 offset);
};

/**
 * struct neoprof_entry - one entry of a hot list
 * @unit: which unit of the card's memory
 * @count: its accesses
 */
struct neoprof_entry {
	u64 unit;
	u32 count;
};

#define NEOPROF_TAKE 512 /* most entries taken at a time */

/**
 * struct neoprof_layout - what the registers mean
 * @name: as told to user space; NULL: the bus's is
 * @identify: fill in the geometry; -ENODEV with a reason if it is none of this layout
 * @start: reset, configure by the settings and count; -EINVAL with a reason: refused
 * @stop: stop counting
 * @clear: begin an epoch
 * @set_threshold: take the threshold of the settings, and change nothing else
 * @level: entries to take now, and whether reports were refused since the last call
 * @take: read so many entries
 * @taken: after the last take of a drain
 * @profile: counters and histogram of one moment
 * @requests: reads and writes that the card has seen since it was reset; NULL: it does not tell
 *
 * All are called with the card's lock.
 */
struct neoprof_layout {
	const char *name;
	int (*identify)(struct neoprof_card *card);
	int (*start)(struct neoprof_card *card);
	int (*stop)(struct neoprof_card *card);
	int (*clear)(struct neoprof_card *card);
	int (*set_threshold)(struct neoprof_card *card);
	int (*level)(struct neoprof_card *card, unsigned int *level, bool *overflow);
	int (*take)(struct neoprof_card *card, struct neoprof_entry *entries, unsigned int count);
	int (*taken)(struct neoprof_card *card);
	int (*profile)(struct neoprof_card *card, struct tierd_profile *profile);
	int (*requests)(struct neoprof_card *card, u64 *requests);
};

/**
 * struct neoprof_settings - what a card shall do; docs/hardware/driver.md has them by name
 * @drain_us: time between two drains
 * @epoch_us: length of an epoch, 0: it ends by command
 * @threshold: a unit with more accesses is reported
 * @flags: enum tierd_card_flags
 * @error_rank: of the counter that is the error bound
 * @track: reads, writes or both
 * @unit_log2: size of a unit
 * @downsample: one request in 2^n is counted
 */
struct neoprof_settings {
	u32 drain_us;
	u32 epoch_us;
	u32 threshold;
	u32 flags;
	u32 error_rank;
	u8 track;
	u8 unit_log2;
	u8 downsample;
};

/**
 * struct neoprof_card - one card
 * @node: in the list of cards
 * @ref: counts the list and whoever uses it
 * @number: lowest that was free
 * @bus: how its registers are reached
 * @layout: what they mean
 * @port: the bus's own
 * @instance: of a CHMU
 * @parent: its device, with a reference
 * @device: in /sys/class/neoprof, NULL if that failed
 * @thread: drains; with a reference, for others wake it at any time
 * @interrupt: the bus has one
 * @kicked: the thread shall run
 * @owner: netlink socket that enabled it; 0: nobody's
 * @orphan: that socket was closed
 * @lock: of all that follows
 * @state: as told to user space
 * @removed: its registers are not touched any more
 * @why: the reason of its state
 * @settings: what it shall do
 * @geometry: what it is
 * @stats: what it did
 * @range_count: how many ranges it has
 * @ranges_given: by netlink, not by decoders
 * @ranges: the host memory behind it
 * @epoch_ns: when the epoch began, if the module's clock ends it
 * @entries: room for NEOPROF_TAKE
 * @records: room for as many
 * @frames: room for as many
 * @base: chmu: of its registers
 * @hotlist: chmu: where that is
 * @bitmap: chmu: where that of ranges is
 * @head: chmu: of the hot list
 * @tail: chmu: of the hot list
 * @seen: v1: what the last histogram read left in the card
 * @snapshots: v1: how many were taken
 */
struct neoprof_card {
	struct list_head node;
	struct kref ref;
	unsigned int number;
	const struct neoprof_bus *bus;
	const struct neoprof_layout *layout;
	void *port;
	unsigned int instance;
	struct device *parent;
	struct device *device;
	struct task_struct *thread;
	bool interrupt;
	bool kicked;
	u32 owner;
	bool orphan;
	struct mutex lock;
	enum tierd_card_state state;
	bool removed;
	char why[TIERD_CARD_WHY];
	struct neoprof_settings settings;
	struct tierd_card_geometry geometry;
	struct tierd_card_stats stats;
	unsigned int range_count;
	bool ranges_given;
	struct tierd_card_range ranges[TIERD_CARD_RANGES_MAX];
	u64 epoch_ns;
	struct neoprof_entry *entries;
	struct tierd_record *records;
	struct tierd_record *frames;
	u32 base, hotlist, bitmap;
	unsigned int head, tail;
	u32 seen[TIERD_CARD_BINS];
	u64 snapshots;
};

/* neoprof_card.c */
extern struct mutex neoprof_cards_lock;
extern struct list_head neoprof_cards;
extern unsigned int neoprof_timeout_ms, neoprof_drain_frames;
struct neoprof_card *neoprof_card_add(const struct neoprof_bus *bus,
				      const struct neoprof_layout *layout, void *port,
				      unsigned int instance, struct device *parent, bool interrupt);
void neoprof_card_remove(struct neoprof_card *card);
struct neoprof_card *neoprof_card_get(unsigned int number);
void neoprof_card_put(struct neoprof_card *card);
void neoprof_card_kick(struct neoprof_card *card);
void neoprof_card_interrupt(struct neoprof_card *card);
void neoprof_card_failed(struct neoprof_card *card, int error);
int neoprof_card_start(struct neoprof_card *card);
int neoprof_card_stop(struct neoprof_card *card);
int neoprof_card_reset(struct neoprof_card *card);
int neoprof_card_requests(struct neoprof_card *card, u64 *requests);

/* neoprof_regs.c: accesses, counted; a failure leaves its reason in card->why */
int neoprof_read(struct neoprof_card *card, u32 offset, unsigned int size, u64 *value);
int neoprof_write(struct neoprof_card *card, u32 offset, unsigned int size, u64 value);
int neoprof_read_block(struct neoprof_card *card, u32 offset, unsigned int size, unsigned int count,
		       void *buffer);
int neoprof_wait(struct neoprof_card *card, u32 offset, unsigned int size, u64 mask,
		 const char *what);

/* neoprof_drain.c */
u64 neoprof_drain(struct neoprof_card *card);

/* neoprof_ranges.c */
int neoprof_ranges_check(struct tierd_card_range *ranges, unsigned int count, const char **why);
bool neoprof_to_host(const struct neoprof_card *card, u64 device, u64 *host);
u64 neoprof_range_length(const struct tierd_card_range *range);
int neoprof_range_node(const struct tierd_card_range *range);
void neoprof_hdm_ranges(struct neoprof_card *card);

/* neoprof_set.c */
int neoprof_set(struct neoprof_card *card, struct genl_info *info);

/* neoprof_chmu.c, neoprof_v1.c */
extern const struct neoprof_layout neoprof_chmu, neoprof_v1;

/* neoprof_mmio.c */
struct neoprof_mmio;
struct neoprof_mmio *neoprof_mmio_open(struct pci_dev *pdev, unsigned int bar,
				       const struct neoprof_layout *layout, bool interrupt);
void neoprof_mmio_close(struct neoprof_mmio *mmio);
void neoprof_mmio_interrupt(struct neoprof_mmio *mmio);

/* neoprof_irq.c */
bool neoprof_irq_request(struct pci_dev *pdev, irq_handler_t handler, void *argument);
void neoprof_irq_free(struct pci_dev *pdev, void *argument);

/* neoprof_pci.c */
int neoprof_pci_init(void);
void neoprof_pci_exit(void);

/* neoprof_class.c */
int neoprof_class_init(void);
void neoprof_class_exit(void);
struct device *neoprof_class_add(struct neoprof_card *card);

/* neoprof_netlink.c */
extern const struct tierd_card_ops neoprof_netlink_ops;
void neoprof_event(enum tierd_event event, const struct neoprof_card *card);

static inline const char *neoprof_backend(const struct neoprof_card *card)
{
	return card->layout->name ?: card->bus->name;
}

#endif
