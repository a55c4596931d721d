// SPDX-License-Identifier: GPL-2.0-only
/*
 * One ring for each open of the device, so readers do not disturb each other. What user
 * space can write (the whole mapping) is never believed: the kernel keeps its own tail
 * and counters, copies them out, and checks the one number it reads, the reader's head.
 */
#include "compat.h"
#include "tierd.h"
#include "trace.h"

#include <linux/log2.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>

DEFINE_MUTEX(tierd_rings_lock);
static LIST_HEAD(tierd_rings);
static unsigned int tierd_ring_opened;
static bool tierd_ring_all_closing;

/**
 * struct tierd_ring - a reader's ring
 * @node: in the list of rings
 * @queue: where its reader waits
 * @with_pfn: its reader may know frames
 * @kinds: bit n: gets records of kind n
 * @overflowing: it dropped the last records
 * @capacity: how many records it holds
 * @size: of its memory, in bytes
 * @tail: records put in so far
 * @dropped: records that found no room
 * @memory: NULL until it is mapped
 */
struct tierd_ring {
	struct list_head node;
	struct wait_queue_head queue;
	bool with_pfn;
	u32 kinds;
	bool overflowing;
	unsigned int capacity;
	unsigned long size;
	u64 tail, dropped;
	void *memory;
};

static struct tierd_ring_info *tierd_ring_info_of(struct tierd_ring *ring)
{
	return ring->memory;
}

static struct tierd_record *tierd_ring_record_of(struct tierd_ring *ring, u64 number)
{
	struct tierd_record *records = ring->memory + TIERD_RING_DATA;

	return &records[number & (ring->capacity - 1)];
}

/* Records the reader has not consumed; `capacity` if it claims nonsense. */
static unsigned int tierd_ring_unread(struct tierd_ring *ring)
{
	struct tierd_ring_head *page = ring->memory + TIERD_RING_HEAD;
	/* The reader releases records with its head: they are not written before. */
	u64 used = ring->tail - smp_load_acquire(&page->head);

	return min_t(u64, used, ring->capacity);
}

/**
 * tierd_ring_open() - make a ring
 * @with_pfn: whether its reader may know frames
 *
 * Return: The ring, or an error pointer.
 */
struct tierd_ring *tierd_ring_open(bool with_pfn)
{
	struct tierd_ring *ring = kzalloc(sizeof(*ring), GFP_KERNEL_ACCOUNT);

	if (!ring)
		return ERR_PTR(-ENOMEM);
	ring->with_pfn = with_pfn;
	ring->kinds = TIERD_RING_KINDS;
	ring->capacity = roundup_pow_of_two(clamp(tierd_ring_records, 64u, 1u << 24));
	ring->size = PAGE_ALIGN(TIERD_RING_DATA + ring->capacity * sizeof(struct tierd_record));
	init_waitqueue_head(&ring->queue);
	mutex_lock(&tierd_rings_lock);
	if (tierd_ring_opened >= tierd_max_readers) {
		mutex_unlock(&tierd_rings_lock);
		kfree(ring);
		return ERR_PTR(-EBUSY);
	}
	tierd_ring_opened++;
	list_add_tail(&ring->node, &tierd_rings);
	mutex_unlock(&tierd_rings_lock);
	return ring;
}

/**
 * tierd_ring_close() - let go of a ring
 * @ring: the ring
 *
 * Its memory goes with the last mapping.
 */
void tierd_ring_close(struct tierd_ring *ring)
{
	mutex_lock(&tierd_rings_lock);
	list_del(&ring->node);
	tierd_ring_opened--;
	if (ring->memory)
		tierd_stats.readers--;
	mutex_unlock(&tierd_rings_lock);
	vfree(ring->memory);
	kfree(ring);
}

/**
 * tierd_ring_map() - map a ring
 * @ring: the ring
 * @vma: the mapping
 *
 * The size is asked by mapping the first page alone, or known from the info in it.
 *
 * Return: 0 or a negative errno.
 */
int tierd_ring_map(struct tierd_ring *ring, struct vm_area_struct *vma)
{
	unsigned long length = vma->vm_end - vma->vm_start;
	struct tierd_ring_info *info;
	void *memory = NULL;
	int ret = 0;

	if (vma->vm_pgoff || !(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	if (length > ring->size)
		return -EINVAL;
	/* Before the lock, which the scanner may wait for with a process's mmap lock. */
	if (!READ_ONCE(ring->memory)) {
		memory = vmalloc_user(ring->size);
		if (!memory)
			return -ENOMEM;
	}
	mutex_lock(&tierd_rings_lock);
	if (!ring->memory) {
		ring->memory = memory;
		memory = NULL;
		info = tierd_ring_info_of(ring);
		info->magic = TIERD_RING_MAGIC;
		info->version = TIERD_RING_VERSION;
		info->record_size = sizeof(struct tierd_record);
		info->capacity = ring->capacity;
		info->size = ring->size;
		info->closing = tierd_ring_all_closing;
		tierd_stats.readers++;
	}
	ret = remap_vmalloc_range(vma, ring->memory, 0);
	mutex_unlock(&tierd_rings_lock);
	vfree(memory); /* another thread was first */
	return ret;
}

/*
 * Writes records that lie in a row. What is not for the reader's eyes never gets into its memory,
 * which it may read and write at any time: each word is written once.
 */
static void tierd_ring_copy(struct tierd_ring *ring, u64 number, const struct tierd_record *records,
			    unsigned int count)
{
	u64 *to = (u64 *)tierd_ring_record_of(ring, number);
	const u64 *from = (const u64 *)records;
	unsigned int i;

	BUILD_BUG_ON(sizeof(*records) != 4 * sizeof(u64));
	BUILD_BUG_ON(offsetof(struct tierd_record, pfn) != sizeof(u64));
	if (ring->with_pfn) {
		memcpy(to, from, count * sizeof(*records));
		return;
	}
	for (i = 0; i < count; i++, to += 4, from += 4) {
		WRITE_ONCE(to[0], from[0]);
		WRITE_ONCE(to[1], records[i].kind == TIERD_RECORD_ROUND ? from[1] : 0);
		WRITE_ONCE(to[2], from[2]);
		WRITE_ONCE(to[3], from[3]);
	}
}

static void tierd_ring_put(struct tierd_ring *ring, const struct tierd_record *records,
			   unsigned int count)
{
	unsigned int room = ring->capacity - tierd_ring_unread(ring), take = min(count, room);
	unsigned int first = ring->capacity - (ring->tail & (ring->capacity - 1));
	struct tierd_ring_info *info = tierd_ring_info_of(ring);

	first = min(first, take);
	tierd_ring_copy(ring, ring->tail, records, first);
	tierd_ring_copy(ring, ring->tail + first, records + first, take - first);
	ring->tail += take;
	/* The records come first: a reader that sees the tail sees them. */
	smp_store_release(&info->tail, ring->tail);
	if (take < count) {
		ring->dropped += count - take;
		tierd_stats.dropped += count - take;
		WRITE_ONCE(info->dropped, ring->dropped);
		if (!ring->overflowing)
			trace_tierd_overflow(ring->capacity, ring->dropped);
	}
	ring->overflowing = take < count;
}

static void tierd_ring_publish_to(u32 kinds, const struct tierd_record *records, unsigned int count)
{
	struct tierd_ring *ring;

	mutex_lock(&tierd_rings_lock);
	tierd_stats.reported += count;
	list_for_each_entry(ring, &tierd_rings, node)
		if (ring->memory && ring->kinds & kinds)
			tierd_ring_put(ring, records, count);
	mutex_unlock(&tierd_rings_lock);
}

/**
 * tierd_ring_publish() - hand out records of the scanner
 * @records: the records
 * @count: how many
 *
 * Pages and ends of rounds go together.
 */
void tierd_ring_publish(const struct tierd_record *records, unsigned int count)
{
	tierd_ring_publish_to(TIERD_RING_KINDS, records, count);
}

/**
 * tierd_ring_publish_kind() - hand out records that are all of one kind
 * @kind: the kind of record
 * @records: the records
 * @count: how many
 */
void tierd_ring_publish_kind(enum tierd_record_kind kind, const struct tierd_record *records,
			     unsigned int count)
{
	tierd_ring_publish_to(1u << kind, records, count);
}
EXPORT_SYMBOL_GPL(tierd_ring_publish_kind);

/**
 * tierd_ring_wanted() - whether any reader gets records of a kind
 * @kind: the kind of record
 *
 * Return: True if one does.
 */
bool tierd_ring_wanted(enum tierd_record_kind kind)
{
	struct tierd_ring *ring;
	bool wanted = false;

	mutex_lock(&tierd_rings_lock);
	list_for_each_entry(ring, &tierd_rings, node)
		wanted |= ring->memory && ring->kinds >> kind & 1;
	mutex_unlock(&tierd_rings_lock);
	return wanted;
}
EXPORT_SYMBOL_GPL(tierd_ring_wanted);

/**
 * tierd_ring_set_kinds() - choose the kinds of records that a ring gets from now on
 * @ring: the ring
 * @kinds: one bit for each kind
 *
 * Return: 0 or a negative errno.
 */
int tierd_ring_set_kinds(struct tierd_ring *ring, u32 kinds)
{
	u32 known = TIERD_RING_KINDS | 1u << TIERD_RECORD_HOT | 1u << TIERD_RECORD_FRAME;
	u32 scanner = kinds & TIERD_RING_KINDS;

	if (!kinds || kinds & ~known || (scanner && scanner != TIERD_RING_KINDS))
		return -EINVAL;
	if (kinds >> TIERD_RECORD_FRAME & 1 && !ring->with_pfn)
		return -EPERM;
	mutex_lock(&tierd_rings_lock);
	ring->kinds = kinds;
	mutex_unlock(&tierd_rings_lock);
	return 0;
}

/**
 * tierd_ring_wake() - wake the readers
 */
void tierd_ring_wake(void)
{
	struct tierd_ring *ring;

	mutex_lock(&tierd_rings_lock);
	list_for_each_entry(ring, &tierd_rings, node)
		wake_up_interruptible(&ring->queue);
	mutex_unlock(&tierd_rings_lock);
}
EXPORT_SYMBOL_GPL(tierd_ring_wake);

/**
 * tierd_ring_closing() - tell all readers whether the module wants to go
 * @closing: whether they shall
 */
void tierd_ring_closing(bool closing)
{
	struct tierd_ring *ring;

	mutex_lock(&tierd_rings_lock);
	tierd_ring_all_closing = closing;
	list_for_each_entry(ring, &tierd_rings, node)
		if (ring->memory)
			WRITE_ONCE(tierd_ring_info_of(ring)->closing, closing);
	mutex_unlock(&tierd_rings_lock);
	tierd_ring_wake();
}

/**
 * tierd_ring_queue() - where a reader waits
 * @ring: the ring
 *
 * Return: The queue.
 */
struct wait_queue_head *tierd_ring_queue(struct tierd_ring *ring)
{
	return &ring->queue;
}

/**
 * tierd_ring_ready() - whether there is something to read
 * @ring: the ring
 *
 * Return: True if records wait.
 */
bool tierd_ring_ready(struct tierd_ring *ring)
{
	bool ready;

	mutex_lock(&tierd_rings_lock);
	ready = ring->memory && tierd_ring_unread(ring);
	mutex_unlock(&tierd_rings_lock);
	return ready;
}
