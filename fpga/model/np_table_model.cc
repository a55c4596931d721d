// SPDX-License-Identifier: Apache-2.0
#include "np_table_model.h"

#include "np_sketch_model.h"

#include <algorithm>

namespace neoprof
{

namespace
{
constexpr unsigned kSeenMask = (1u << kPartsLog2) - 1;

uint64_t neighbours(unsigned part)
{
	const unsigned first = part - std::min(part, kPartReach);
	const unsigned last = std::min(part + kPartReach, kSeenMask);
	const uint64_t up_to_last = last == 63 ? ~0ull : (2ull << last) - 1;
	return (up_to_last & ~0ull << first) & ~(1ull << part);
}

uint8_t edge(uint32_t value)
{
	return value && hist_is_edge(value) ? static_cast<uint8_t>(hist_bin(value)) : 0;
}
} // namespace

TableModel::TableModel(unsigned log2_entries)
    : log2_sets_(log2_entries - kWaysLog2), sets_(size_t{1} << log2_sets_),
      epochs_(size_t{1} << log2_sets_)
{
}

// The parts that were touched lately are of one use if they are near each other, in whatever order
// they came. They are forgotten after 64 requests, which is a unit that was read once, and with
// each window.
bool TableModel::use(Entry &entry, unsigned part) const
{
	if (!entry.seen || entry.window != window_)
		entry.parts = entry.seen = 0;
	const bool near = entry.parts & neighbours(part);
	entry.parts |= 1ull << part;
	entry.seen = (entry.seen + 1) & kSeenMask;
	entry.window = window_;
	return !near;
}

// A unit without an entry: the entry that it gets, if any.
TableModel::Entry *TableModel::miss(Set &set, Entry &least, uint32_t tag, unsigned part,
				    bool by_parts, TableOutcome *outcome)
{
	Entry &outside = set.outside;
	const bool full = least.count;
	if (!full || !outside.count || outside.tag != tag)
		outside = Entry{0, tag, 1, false, 0, 0};
	outcome->counted = use(outside, part) || !by_parts;
	outcome->displaced = full && outcome->counted;
	if (!outcome->counted)
		return nullptr;
	if (least.count > 1) {
		outcome->left = edge(least.count);
		least.count--;
		return nullptr;
	}
	// The bin of a count of one loses the old entry and gets the new one.
	outcome->entered = full ? 0 : edge(1);
	least = outside;
	outside = Entry{};
	return &least;
}

TableOutcome TableModel::request(uint32_t index, uint32_t key, unsigned part, bool by_parts,
				 uint32_t threshold)
{
	Set &set = sets_[index];
	if (epochs_[index] != epoch_) {
		epochs_[index] = epoch_;
		set = Set{};
	}
	const uint32_t tag = key >> log2_sets_;
	TableOutcome outcome;
	Entry *found = nullptr, *least = set.ways;
	for (Entry &way : set.ways) {
		if (way.count && way.tag == tag)
			found = &way;
		if (way.count < least->count)
			least = &way;
	}
	if (found) {
		outcome.counted = use(*found, part) || !by_parts;
		outcome.saturated = outcome.counted && found->count == kCountMax;
		if (outcome.counted && !outcome.saturated)
			outcome.entered = edge(++found->count);
	} else {
		found = miss(set, *least, tag, part, by_parts, &outcome);
		if (!found)
			return outcome;
	}
	last_ = found;
	outcome.estimate = found->count;
	outcome.wanted = outcome.counted && found->count > threshold && !found->hot;
	return outcome;
}

void TableModel::mark()
{
	last_->hot = true;
}

void TableModel::clear()
{
	epoch_++;
}

void TableModel::new_window()
{
	window_++;
}

uint32_t TableModel::count(uint32_t set, uint32_t key) const
{
	if (epochs_[set] != epoch_)
		return 0;
	for (const Entry &way : sets_[set].ways)
		if (way.count && way.tag == key >> log2_sets_)
			return way.count;
	return 0;
}

uint32_t TableModel::peek(unsigned row, uint32_t index) const
{
	const Set &set = sets_[index >> kWaysLog2];
	const Entry &entry = row < 5 ? set.ways[index & (kWays - 1)] : set.outside;
	if (epochs_[index >> kWaysLog2] != epoch_ || !entry.count)
		return 0;
	switch (row % 5) {
	case 0:
		return entry.count;
	case 1:
		return uint32_t{entry.hot} << 30 | entry.tag;
	case 2:
		return static_cast<uint32_t>(entry.parts) & 0x7fffffff;
	case 3:
		return static_cast<uint32_t>(entry.parts >> 31) & 0x7fffffff;
	default:
		return static_cast<uint32_t>(entry.parts >> 62) << 16 | uint32_t{entry.seen} << 8 |
		       entry.window;
	}
}

} // namespace neoprof
