// SPDX-License-Identifier: Apache-2.0
// The C interface of neoprof_card.h over the Verilated RTL. Requests run the memory clock alone;
// the register clock runs, one cycle to three of the memory clock, while software has business
// with the registers.
#include "neoprof_card.h"
#include "neoprof_regs.h"

#include "Vnp_sim_card.h"
#include "Vnp_sim_card__Dpi.h"

#include <cerrno>
#include <memory>
#include <new>

namespace
{
constexpr unsigned kMemPerReg = 3;
constexpr unsigned kAnswerLimit = 1000;	   // register clocks for one bus access
constexpr unsigned kSettleLimit = 1000000; // bus reads for a command
constexpr unsigned kPipeline = 32;	   // memory clocks from a request to its last effect
constexpr unsigned kLinkClocks = 16;	   // register clocks for the tail to come over
#ifdef NP_TABLE
constexpr unsigned kPeekRows = 10;
#else
constexpr unsigned kPeekRows = 2;
#endif
} // namespace

struct np_card {
	std::unique_ptr<VerilatedContext> context = std::make_unique<VerilatedContext>();
	Vnp_sim_card top{context.get()};
	uint64_t cycles = 0;
	unsigned log2_width = 0;

	void mem_clock()
	{
		top.mem_clk_i = 1;
		top.eval();
		top.mem_clk_i = 0;
		top.eval();
		cycles++;
	}

	// The edges of the two clocks fall together once in a register clock.
	void reg_clock()
	{
		top.reg_clk_i = 1;
		mem_clock();
		top.reg_clk_i = 0;
		for (unsigned i = 1; i < kMemPerReg; i++)
			mem_clock();
	}

	void idle()
	{
		top.req_valid_i[0] = 0;
		top.req_valid_i[1] = 0;
	}

	void set(unsigned channel, uint64_t request)
	{
		top.req_valid_i[channel] = !(request & NP_REQ_NONE);
		top.req_write_i[channel] = (request & NP_REQ_WRITE) != 0;
		top.req_addr_i[channel] = request & NP_REQ_ADDR_MASK;
	}

	// True when the handshake's ready was seen; valid falls after it.
	template <typename Ready> bool until(Ready ready)
	{
		for (unsigned i = 0; i < kAnswerLimit; i++) {
			top.eval();
			const bool seen = ready();
			reg_clock();
			if (seen)
				return true;
		}
		return false;
	}

	int read(uint32_t offset, uint64_t *value);
	int write(uint32_t offset, uint64_t data, unsigned strobe);
	int reset();
	int settle();
};

int np_card::read(uint32_t offset, uint64_t *value)
{
	unsigned response = 0;
	uint64_t data = 0;
	top.axil_araddr_i = offset;
	top.axil_arvalid_i = 1;
	top.axil_rready_i = 1;
	if (!until([this] { return top.axil_arready_o; }))
		return -ETIMEDOUT;
	top.axil_arvalid_i = 0;
	const bool answered = until([&] {
		if (!top.axil_rvalid_o)
			return false;
		response = top.axil_rresp_o;
		data = top.axil_rdata_o;
		return true;
	});
	top.axil_rready_i = 0;
	if (!answered)
		return -ETIMEDOUT;
	*value = response ? 0 : data;
	return response ? -EIO : 0;
}

int np_card::write(uint32_t offset, uint64_t data, unsigned strobe)
{
	unsigned response = 0;
	top.axil_awaddr_i = offset;
	top.axil_awvalid_i = 1;
	top.axil_wdata_i = data;
	top.axil_wstrb_i = strobe;
	top.axil_wvalid_i = 1;
	top.axil_bready_i = 1;
	// Both channels are free at the same time: one access is made at a time.
	if (!until([this] { return top.axil_awready_o && top.axil_wready_o; }))
		return -ETIMEDOUT;
	top.axil_awvalid_i = 0;
	top.axil_wvalid_i = 0;
	const bool answered = until([&] {
		if (!top.axil_bvalid_o)
			return false;
		response = top.axil_bresp_o;
		return true;
	});
	top.axil_bready_i = 0;
	if (!answered)
		return -ETIMEDOUT;
	return response ? -EIO : 0;
}

int np_card::settle()
{
	for (unsigned i = 0; i < kPipeline; i++)
		mem_clock();
	for (unsigned i = 0; i < kLinkClocks; i++)
		reg_clock();
	for (unsigned i = 0; i < kSettleLimit; i++) {
		uint64_t status, vendor;
		int err = read(NEOPROF_CHMU0_STATUS, &status);
		if (!err)
			err = read(NEOPROF_VENDOR_STATUS, &vendor);
		if (err)
			return err;
		if (!(status & NEOPROF_CHMU0_STATUS_OPERATION_MASK) && !vendor) {
			for (unsigned k = 0; k < kLinkClocks; k++)
				reg_clock();
			return 0;
		}
	}
	return -ETIMEDOUT;
}

int np_card::reset()
{
	idle();
	top.axil_awvalid_i = top.axil_wvalid_i = top.axil_arvalid_i = 0;
	top.axil_bready_i = top.axil_rready_i = 0;
	top.rst_ni = 0;
	for (unsigned i = 0; i < 4; i++)
		reg_clock();
	top.rst_ni = 1;
	for (unsigned i = 0; i < 4; i++)
		reg_clock();
	return settle();
}

const char *np_card_kind(void)
{
	return "rtl";
}

np_card *np_card_open(unsigned log2_width, unsigned ring_size, unsigned cycles_per_100us)
{
	std::unique_ptr<np_card> card;
	try {
		card = std::make_unique<np_card>();
	} catch (const std::bad_alloc &) {
		errno = ENOMEM;
		return nullptr;
	}
	uint64_t geometry, capability, timebase;
	int err = card->reset();
	if (!err)
		err = card->read(NEOPROF_VENDOR_GEOMETRY, &geometry);
	if (!err)
		err = card->read(NEOPROF_CHMU0_CAP0, &capability);
	if (!err)
		err = card->read(NEOPROF_VENDOR_TIMEBASE, &timebase);
	if (err) {
		errno = -err;
		return nullptr;
	}
	const unsigned built_width = (geometry & NEOPROF_VENDOR_GEOMETRY_LOG2_WIDTH_MASK) >>
				     NEOPROF_VENDOR_GEOMETRY_LOG2_WIDTH_SHIFT;
	const auto built_ring =
	    static_cast<unsigned>(capability >> NEOPROF_CHMU0_CAP0_HOTLIST_SIZE_SHIFT);
	if ((log2_width && log2_width != built_width) || (ring_size && ring_size != built_ring) ||
	    (cycles_per_100us && cycles_per_100us != timebase)) {
		errno = EINVAL;
		return nullptr;
	}
	card->log2_width = built_width;
	return card.release();
}

void np_card_close(np_card *card)
{
	if (!card)
		return;
	card->top.final();
	delete card;
}

int np_card_push(np_card *card, const uint64_t *requests, size_t count)
{
	size_t i = 0;
	for (; i + 1 < count; i += 2) {
		card->set(0, requests[i]);
		card->set(1, requests[i + 1]);
		card->mem_clock();
	}
	if (i < count) {
		card->set(0, requests[i]);
		card->set(1, NP_REQ_NONE);
		card->mem_clock();
	}
	card->idle();
	return 0;
}

int np_card_step(np_card *card, uint64_t cycles)
{
	while (cycles--)
		card->mem_clock();
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
	uint64_t word = 0;
	const int err = card->read(offset, &word);
	*value = word >> 8 * (offset & 7) & (~0ull >> (64 - 8 * size));
	return err;
}

int np_card_write(np_card *card, uint32_t offset, unsigned size, uint64_t value)
{
	if (!well_formed(offset, size))
		return -EINVAL;
	const unsigned lane = offset & 7;
	return card->write(offset, value << 8 * lane, (0xffu >> (8 - size)) << lane);
}

int np_card_settle(np_card *card)
{
	return card->settle();
}

int np_card_reset(np_card *card)
{
	return card->reset();
}

int np_card_irq(np_card *card)
{
	return card->top.irq_o;
}

uint64_t np_card_cycles(const np_card *card)
{
	return card->cycles;
}

int np_card_peek(np_card *card, unsigned row, uint32_t index, uint32_t *count)
{
	if (row >= kPeekRows || index >> card->log2_width)
		return -EINVAL;
	svSetScope(svGetScopeFromName("TOP.np_sim_card"));
	const int value = np_dpi_counter(static_cast<int>(row), static_cast<int>(index));
	if (value < 0)
		return -EILSEQ; // the copies of a memory differ
	*count = static_cast<uint32_t>(value);
	return 0;
}
