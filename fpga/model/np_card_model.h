// SPDX-License-Identifier: Apache-2.0
// Reference model of the register side: what software reads and writes, on top of SketchModel.
// Commands act at once, so no operation is ever seen in progress.
#pragma once

#include "np_sketch_model.h"

namespace neoprof
{

class CardModel
{
      public:
	CardModel(unsigned log2_width, unsigned ring_size, unsigned cycles_per_100us,
		  Tracker tracker = Tracker::kSketch);

	SketchModel &sketch();
	const SketchModel &sketch() const;

	// One 64-bit bus access; offset a multiple of 8, mask: the bits of the written bytes.
	// False: the card answers with an error.
	bool read(uint32_t offset, uint64_t *value);
	bool write(uint32_t offset, uint64_t data, uint64_t mask);
	bool irq();
	void hardware_reset();

      private:
	bool read_register(uint32_t offset, uint64_t *value) const;
	bool write_register(uint32_t offset, uint64_t data, uint64_t mask);
	uint64_t read_vendor(uint32_t offset, bool *known) const;
	bool write_vendor(uint32_t offset, uint64_t data, uint64_t mask);
	void write_head(uint64_t data, uint64_t mask);
	void write_range(unsigned word, uint64_t data, uint64_t mask);
	void control(bool reset);
	void snapshot();
	uint64_t refusal() const;
	Config configuration() const;
	uint64_t error_bound() const;
	void update();
	uint32_t filled() const;

	unsigned cycles_per_100us_;
	SketchModel sketch_;
	uint64_t cfg0_, cfg1_, cfg2_, vendor_config_, config_error_, rank_;
	uint64_t bus_errors_;
	uint32_t threshold_in_force_;
	bool enabled_, overflow_, fill_;
	std::array<uint64_t, kRangeWords> range_;
	Stats snapshot_;
	std::array<uint32_t, kBins> reached_;
	bool bound_valid_;
	unsigned bound_bin_;
};

} // namespace neoprof
