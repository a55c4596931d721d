// SPDX-License-Identifier: Apache-2.0
// The C interface of neoprof_card.h over the reference model.
#include "neoprof_card.h"
#include "neoprof_regs.h"
#include "np_card_model.h"

#include <cerrno>
#include <new>

// The library is built once for each tracker.
#ifdef NP_TABLE
static constexpr neoprof::Tracker kTracker = neoprof::Tracker::kTable;
static constexpr unsigned kLog2Width = 17, kPeekRows = 10;
#else
static constexpr neoprof::Tracker kTracker = neoprof::Tracker::kSketch;
static constexpr unsigned kLog2Width = 19, kPeekRows = neoprof::kRows;
#endif

struct np_card {
	neoprof::CardModel model;
	uint64_t cycles = 0;
};

const char *np_card_kind(void)
{
	return "model";
}

np_card *np_card_open(unsigned log2_width, unsigned ring_size, unsigned cycles_per_100us)
{
	log2_width = log2_width ? log2_width : kLog2Width;
	ring_size = ring_size ? ring_size : 4096;
	cycles_per_100us = cycles_per_100us ? cycles_per_100us : 40000;
	if (log2_width < 5 || log2_width > 24 || ring_size < 4 || ring_size > 4096 ||
	    (ring_size & (ring_size - 1))) {
		errno = EINVAL;
		return nullptr;
	}
	try {
		return new np_card{
		    neoprof::CardModel(log2_width, ring_size, cycles_per_100us, kTracker)};
	} catch (const std::bad_alloc &) {
		errno = ENOMEM;
		return nullptr;
	}
}

void np_card_close(np_card *card)
{
	delete card;
}

int np_card_push(np_card *card, const uint64_t *requests, size_t count)
{
	card->model.sketch().push(requests, count);
	card->cycles += (count + 1) / 2;
	return 0;
}

int np_card_step(np_card *card, uint64_t cycles)
{
	card->model.sketch().step(cycles);
	card->cycles += cycles;
	return 0;
}

static bool well_formed(uint32_t offset, unsigned size)
{
	return (size == 1 || size == 2 || size == 4 || size == 8) && offset % size == 0 &&
	       offset < NEOPROF_SIZE;
}

int np_card_read(np_card *card, uint32_t offset, unsigned size, uint64_t *value)
{
	if (!well_formed(offset, size))
		return -EINVAL;
	uint64_t word;
	if (!card->model.read(offset & ~7u, &word)) {
		*value = 0;
		return -EIO;
	}
	*value = word >> 8 * (offset & 7) & (~0ull >> (64 - 8 * size));
	return 0;
}

int np_card_write(np_card *card, uint32_t offset, unsigned size, uint64_t value)
{
	if (!well_formed(offset, size))
		return -EINVAL;
	const unsigned shift = 8 * (offset & 7);
	const uint64_t mask = ~0ull >> (64 - 8 * size) << shift;
	return card->model.write(offset & ~7u, value << shift, mask) ? 0 : -EIO;
}

int np_card_settle(np_card *card)
{
	(void)card;
	return 0;
}

int np_card_reset(np_card *card)
{
	card->model.hardware_reset();
	return 0;
}

int np_card_irq(np_card *card)
{
	return card->model.irq();
}

uint64_t np_card_cycles(const np_card *card)
{
	return card->cycles;
}

int np_card_peek(np_card *card, unsigned row, uint32_t index, uint32_t *count)
{
	const auto &sketch = card->model.sketch();
	if (row >= kPeekRows || index >> sketch.log2_width())
		return -EINVAL;
	*count = sketch.counter(row, index);
	return 0;
}
