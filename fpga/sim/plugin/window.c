/* SPDX-License-Identifier: Apache-2.0 */
#include "window.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Host and guest are little endian; the fields are aligned. */
static uint32_t get32(const uint8_t *at)
{
	return __atomic_load_n((const uint32_t *)(const void *)at, __ATOMIC_RELAXED);
}

static void put32(uint8_t *at, uint32_t value)
{
	__atomic_store_n((uint32_t *)(void *)at, value, __ATOMIC_RELAXED);
}

static uint64_t get64(const uint8_t *at)
{
	return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_RELAXED);
}

static void put64(uint8_t *at, uint64_t value)
{
	__atomic_store_n((uint64_t *)(void *)at, value, __ATOMIC_RELAXED);
}

static bool posted(const uint8_t *doorbell)
{
	return __atomic_load_n((const uint32_t *)(const void *)doorbell, __ATOMIC_ACQUIRE) ==
	       NPW_DOORBELL_POSTED;
}

static void answer(uint8_t *doorbell)
{
	__atomic_store_n((uint32_t *)(void *)doorbell, NPW_DOORBELL_IDLE, __ATOMIC_RELEASE);
}

static uint8_t *card_part(const struct window *window, unsigned int number)
{
	return window->base + NPW_CARD_BASE + number * NPW_CARD_STRIDE;
}

int window_open(struct window *window, const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat status;
	void *base;

	memset(window, 0, sizeof(*window));
	if (fd < 0 || fstat(fd, &status) || status.st_size < (off_t)NPW_BYTES) {
		fprintf(stderr, "tierd-lab: the window %s: %s\n", path,
			fd < 0 ? strerror(errno) : "is too short");
		if (fd >= 0)
			close(fd);
		return -1;
	}
	base = mmap(NULL, NPW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (base == MAP_FAILED) {
		fprintf(stderr, "tierd-lab: mapping the window %s: %s\n", path, strerror(errno));
		return -1;
	}
	window->base = base;
	memset(base, 0, NPW_BYTES);
	return 0;
}

uint8_t *window_hdm(struct window *window, unsigned int number)
{
	return card_part(window, number) + NPW_HDM;
}

void window_publish(struct window *window, struct card *cards, unsigned int count)
{
	window->cards = cards;
	window->card_count = count;
	put32(window->base + NPW_VERSION_OFFSET, NPW_VERSION);
	put32(window->base + NPW_CARDS_OFFSET, count);
	__atomic_store_n((uint32_t *)(void *)(window->base + NPW_MAGIC_OFFSET), NPW_MAGIC,
			 __ATOMIC_RELEASE);
}

void window_close(struct window *window)
{
	if (!window->base)
		return;
	put32(window->base + NPW_MAGIC_OFFSET, 0);
	for (unsigned int i = 0; i < window->card_count; i++) {
		put32(card_part(window, i) + NPW_STATUS, (uint32_t)-ENODEV);
		answer(card_part(window, i) + NPW_DOORBELL);
	}
	munmap(window->base, NPW_BYTES);
	window->base = NULL;
}

/* With a magic of 0 the host has gone, whoever wrote it: nothing is answered any more. */
static bool gone(const struct window *window)
{
	return get32(window->base + NPW_MAGIC_OFFSET) != NPW_MAGIC;
}

bool window_pending(const struct window *window)
{
	bool pending = posted(window->base + NPW_LAB_DOORBELL);

	for (unsigned int i = 0; i < window->card_count; i++)
		pending |= posted(card_part(window, i) + NPW_DOORBELL);
	return pending;
}

static int read_block(struct card *card, uint8_t *part, uint32_t offset, unsigned int size)
{
	const uint32_t count = get32(part + NPW_COUNT);
	int err = 0;

	if ((size != 1 && size != 2 && size != 4 && size != 8) || count > NPW_BUFFER_BYTES / size)
		return -EINVAL;
	for (uint32_t i = 0; i < count && !err; i++) {
		uint64_t value = 0;

		err = card->read(card->card, offset + i * size, size, &value);
		memcpy(part + NPW_BUFFER + i * size, &value, size);
	}
	return err;
}

static unsigned int serve(struct card *card, uint8_t *part, uint64_t ns)
{
	const uint32_t op = get32(part + NPW_OP), offset = get32(part + NPW_OFFSET);
	const unsigned int size = get32(part + NPW_SIZE);
	uint64_t value = 0;
	int err = -EOPNOTSUPP;

	card_advance(card, ns);
	if (op == NPW_OP_READ) {
		err = card->read(card->card, offset, size, &value);
		put64(part + NPW_VALUE, value);
	} else if (op == NPW_OP_WRITE) {
		err = card->write(card->card, offset, size, get64(part + NPW_VALUE));
	} else if (op == NPW_OP_READ_BLOCK) {
		err = read_block(card, part, offset, size);
	}
	put32(part + NPW_STATUS, (uint32_t)err);
	answer(part + NPW_DOORBELL);
	return op == NPW_OP_WRITE ? WINDOW_WRITE : 0;
}

unsigned int window_serve(struct window *window, uint64_t ns)
{
	unsigned int seen = 0;

	if (posted(window->base + NPW_LAB_DOORBELL))
		seen |= WINDOW_LAB;
	if (gone(window))
		return seen;
	put64(window->base + NPW_LAB_GUEST_NS, ns);
	for (unsigned int i = 0; i < window->card_count; i++) {
		uint8_t *part = card_part(window, i);

		if (posted(part + NPW_DOORBELL))
			seen |= serve(&window->cards[i], part, ns);
	}
	return seen;
}

uint32_t window_lab_op(const struct window *window)
{
	return get32(window->base + NPW_LAB_OP);
}

uint32_t window_lab_word(const struct window *window, unsigned int offset)
{
	return get32(window->base + offset);
}

void window_set_watching(struct window *window, bool watching)
{
	put32(window->base + NPW_LAB_WATCHING, watching);
}

void window_lab_done(struct window *window, int status, bool watching)
{
	window_set_watching(window, watching);
	put32(window->base + NPW_LAB_STATUS, (uint32_t)status);
	answer(window->base + NPW_LAB_DOORBELL);
}
