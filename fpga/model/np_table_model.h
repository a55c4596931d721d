// SPDX-License-Identifier: Apache-2.0
// The other tracker: a tagged, set-associative table. Each entry is one unit's own, so a count is
// never above the truth; a request that finds no room in its set lowers the smallest count there,
// and takes the entry when nothing is left of it. What np_table.sv does, bit for bit.
//
// By parts, a use of a unit counts once, however many requests it is. So that a unit without an
// entry does not lower a count at each of them, a set has the parts of the last such unit.
#pragma once

#include <cstdint>
#include <vector>

namespace neoprof
{

constexpr unsigned kWaysLog2 = 3;
constexpr unsigned kWays = 1u << kWaysLog2;
constexpr unsigned kPartsLog2 = 6; // parts of a unit that an entry has a bit for
constexpr unsigned kPartReach = 8; // from one request of a use to another

// What one request did.
struct TableOutcome {
	bool counted = true;	// false: it went on with a use of the unit
	bool saturated = false; // an increment was not made
	bool displaced = false; // its set was full
	bool wanted = false;	// to be reported
	uint8_t entered = 0;	// bin that a count entered from below, or 0
	uint8_t left = 0;	// bin that a count left downwards, or 0
	uint32_t estimate = 0;
};

class TableModel
{
      public:
	explicit TableModel(unsigned log2_entries);

	// By parts: a request counts if it is not near a part of the unit that was touched lately.
	TableOutcome request(uint32_t index, uint32_t key, unsigned part, bool by_parts,
			     uint32_t threshold);
	void mark(); // the unit of the last request is reported
	void clear();
	void new_window(); // touched parts are forgotten

	// For tests: 0 count, 1 mark and tag, 2 and 3 parts, 4 requests and window of the parts; 5
	// to 9 the same of the unit outside.
	uint32_t peek(unsigned row, uint32_t index) const;
	uint32_t count(uint32_t set, uint32_t key) const;

      private:
	struct Entry {
		uint64_t parts = 0;
		uint32_t tag = 0;
		uint16_t count = 0; // 0: free
		bool hot = false;
		uint8_t seen = 0, window = 0;
	};
	struct Set {
		Entry ways[kWays];
		Entry outside; // the last unit that found no room; count 1, or 0 for none
	};

	bool use(Entry &entry, unsigned part) const;
	Entry *miss(Set &set, Entry &least, uint32_t tag, unsigned part, bool by_parts,
		    TableOutcome *outcome);

	unsigned log2_sets_;
	std::vector<Set> sets_;
	std::vector<uint64_t> epochs_; // of each set
	uint64_t epoch_ = 1;
	uint8_t window_ = 0;
	Entry *last_ = nullptr;
};

} // namespace neoprof
