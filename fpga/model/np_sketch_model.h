// SPDX-License-Identifier: Apache-2.0
// Reference model of the datapath: what the RTL on the memory clock does to each request, in the
// order of arrival, without clocks or pipelines. Every result that software can see is the RTL's,
// bit for bit.
#pragma once

#include "np_table_model.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace neoprof
{

constexpr unsigned kRows = 2;
constexpr unsigned kChannels = 2;
constexpr unsigned kBins = 64;
constexpr unsigned kRangeWords = 64;
constexpr unsigned kRangeLog2 = 28;
constexpr unsigned kCapacityLog2 = 40;
constexpr unsigned kMinUnitLog2 = 12;
constexpr uint32_t kCountMax = 0xffff;
constexpr unsigned kPageLog2 = 12;
constexpr unsigned kLineLog2 = 6;
constexpr unsigned kCoalesceLog2 = 8;
constexpr unsigned kCoalesceTables = 2;
constexpr uint64_t kCoalesceReach = 4;

// Edges of the histogram, see np_pkg.sv.
unsigned hist_bin(uint32_t value);
bool hist_is_edge(uint32_t value);
uint32_t hist_low(unsigned bin);
uint32_t hist_high(unsigned bin);

// What counts: a Count-Min sketch, or a tagged table.
enum class Tracker : uint8_t {
	kSketch,
	kTable,
};

struct Config {
	bool track_read = true;
	bool track_write = true;
	bool random = false;
	bool conservative = false;
	bool coalesce = false;
	bool by_parts = false; // the table alone
	bool epoch_mode = false;
	unsigned unit_shift = 0;
	unsigned downsample = 0;
	unsigned run_window = 0;
	unsigned use_window = 0;
	uint64_t epoch_ticks = 0;
	uint32_t threshold = 0;
};

// Words of the snapshot block, in its order.
struct Stats {
	uint64_t sequence, cycles, busy, reads, writes, offered, counted;
	uint64_t skip_type, skip_range, skip_sample, reports, refused, saturated;
	uint64_t epoch, epoch_start, applied_at, skip_run, displaced;
};

class SketchModel
{
      public:
	// log2_width: counters of a row of the sketch, or entries of the table.
	SketchModel(unsigned log2_width, unsigned ring_size, unsigned cycles_per_100us,
		    Tracker tracker = Tracker::kSketch);

	// Requests as np_card_push() takes them; time passes with them.
	void push(const uint64_t *requests, size_t count);
	void step(uint64_t cycles);

	void enable(const Config &config);
	void disable();
	void reset(); // what CFG0.reset does
	void clear(); // new epoch, by command
	void set_threshold(uint32_t threshold);
	void set_head(uint32_t head);
	void set_range(unsigned word, uint64_t bits);

	uint32_t counter(unsigned row, uint32_t index) const;
	uint32_t estimate(uint32_t key) const;
	uint32_t index(unsigned row, uint32_t key) const;
	uint64_t entry(uint32_t slot) const;
	uint32_t tail() const;
	uint32_t head() const;
	uint32_t reached(unsigned bin) const;
	const Stats &stats() const;
	bool take_refused(); // whether a report was refused since the last call

	unsigned log2_width() const;
	unsigned ring_size() const;
	Tracker tracker() const;

      private:
	// An entry is count in the low 16 bits, hot mark, 15 bits of epoch: one word to fetch.
	static constexpr uint32_t kHot = 1u << 16;
	static constexpr unsigned kEpochShift = 17;
	static constexpr uint32_t kEpochMask = (1u << 15) - 1;
	static constexpr size_t kBlock = 64;

	struct Item {
		uint64_t indexes;
		uint32_t key;
		uint32_t part;
	};

	void push_cycles(const uint64_t *requests, size_t count);
	size_t admit(const uint64_t *requests, size_t count, Item *items);
	template <bool Conservative> void count(const Item *items, size_t count);
	void count_in_table(const Item *items, size_t count);
	bool report(uint32_t key, uint32_t estimate);
	void advance(uint64_t cycles);
	uint64_t undisturbed() const;
	bool windowed() const;
	uint64_t use_cycles() const;
	void new_epoch();
	void mark_applied();
	bool goes_on(uint64_t address);
	bool sampled_out(unsigned channel);
	uint64_t hash(uint32_t key) const;

	unsigned log2_width_, ring_size_;
	uint64_t cycles_per_100us_;
	Tracker tracker_;
	std::array<std::vector<uint32_t>, kRows> rows_;
	std::unique_ptr<TableModel> table_;
	std::array<std::array<uint64_t, 256>, 4> tables_;
	std::array<uint32_t, kBins> reached_{};
	std::vector<uint8_t> edges_;
	std::vector<uint64_t> ring_;
	std::array<uint64_t, kRangeWords> range_{};
	uint32_t head_ = 0, tail_ = 0;
	uint32_t epoch_bits_ = 0;
	uint64_t timer_ = 0;
	Config config_;
	Stats stats_{};
	bool enabled_ = false, refused_ = false;
	// Of each table, the last line of each slot and, above it, a mark that it is one.
	std::array<std::array<uint64_t, 1u << kCoalesceLog2>, kCoalesceTables> runs_{};
	uint64_t window_ = 0;	   // cycles since all runs ended
	uint64_t part_window_ = 0; // cycles since the table forgot touched parts
	uint32_t sample_count_ = 0;
	std::array<uint32_t, kChannels> sample_state_{};
};

} // namespace neoprof
