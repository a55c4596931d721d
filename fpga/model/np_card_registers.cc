// SPDX-License-Identifier: Apache-2.0
// The registers of the card's model: what reads give and writes do.
#include "np_card_model.h"
#include "np_fields.h"

#include "neoprof_regs.h"

#include <cstring>

namespace neoprof
{

namespace
{
constexpr uint64_t kCfg0Kept =
    NEOPROF_CHMU0_CFG0_WHAT_MASK | NEOPROF_CHMU0_CFG0_RANDOM_DOWNSAMPLING_MASK |
    NEOPROF_CHMU0_CFG0_OVERFLOW_INT_ENABLE_MASK | NEOPROF_CHMU0_CFG0_FILL_INT_ENABLE_MASK |
    NEOPROF_CHMU0_CFG0_ENABLE_MASK | NEOPROF_CHMU0_CFG0_THRESHOLD_MASK;

constexpr uint64_t kVendorConfigKept =
    NEOPROF_VENDOR_CONFIG_CONSERVATIVE_MASK | NEOPROF_VENDOR_CONFIG_COALESCE_MASK |
    NEOPROF_VENDOR_CONFIG_BY_PARTS_MASK | NEOPROF_VENDOR_CONFIG_USE_WINDOW_MASK |
    NEOPROF_VENDOR_CONFIG_RUN_WINDOW_MASK;

bool in_range_bitmap(uint32_t offset)
{
	return offset >= NEOPROF_RANGE_BITMAP &&
	       offset < NEOPROF_RANGE_BITMAP + NEOPROF_RANGE_BITMAP_BYTES;
}

uint64_t merge(uint64_t old, uint64_t data, uint64_t mask)
{
	return (old & ~mask) | (data & mask);
}
} // namespace

// ---------------------------------------------------------------- reads
uint64_t CardModel::read_vendor(uint32_t offset, bool *known) const
{
	const bool table = sketch_.tracker() == Tracker::kTable;
	*known = true;
	switch (offset) {
	case NEOPROF_VENDOR_ID:
		return place(NEOPROF_VENDOR_ID_MAGIC_VALUE, NEOPROF_VENDOR_ID_MAGIC_MASK) |
		       place(NEOPROF_VENDOR_ID_MAJOR_VALUE, NEOPROF_VENDOR_ID_MAJOR_MASK);
	case NEOPROF_VENDOR_GEOMETRY:
		return place(table ? 1 : kRows, NEOPROF_VENDOR_GEOMETRY_DEPTH_MASK) |
		       place(sketch_.log2_width(), NEOPROF_VENDOR_GEOMETRY_LOG2_WIDTH_MASK) |
		       place(16, NEOPROF_VENDOR_GEOMETRY_COUNTER_WIDTH_MASK) |
		       place(kChannels, NEOPROF_VENDOR_GEOMETRY_CHANNELS_MASK) |
		       place(kBins, NEOPROF_VENDOR_GEOMETRY_HISTOGRAM_BINS_MASK) |
		       place(48, NEOPROF_VENDOR_GEOMETRY_EPOCH_WIDTH_MASK) |
		       place(kCapacityLog2, NEOPROF_VENDOR_GEOMETRY_LOG2_CAPACITY_MASK) |
		       place(kCoalesceLog2, NEOPROF_VENDOR_GEOMETRY_LOG2_RUNS_MASK);
	case NEOPROF_VENDOR_TRACKER:
		return table ? place(1, NEOPROF_VENDOR_TRACKER_KIND_MASK) |
				   place(kWays, NEOPROF_VENDOR_TRACKER_WAYS_MASK) |
				   place(1u << kPartsLog2, NEOPROF_VENDOR_TRACKER_PARTS_MASK)
			     : 0;
	case NEOPROF_VENDOR_TIMEBASE:
		return cycles_per_100us_;
	case NEOPROF_VENDOR_CONFIG:
		return vendor_config_;
	case NEOPROF_VENDOR_COMMAND:
	case NEOPROF_VENDOR_STATUS:
		return 0;
	case NEOPROF_VENDOR_CONFIG_ERROR:
		return config_error_;
	case NEOPROF_VENDOR_ERROR_RANK:
		return rank_;
	case NEOPROF_VENDOR_ERROR_BOUND:
		return error_bound();
	case NEOPROF_VENDOR_BUS_ERRORS:
		return bus_errors_;
	case NEOPROF_VENDOR_THRESHOLD_IN_FORCE:
		return threshold_in_force_;
	default:
		*known = false;
		return 0;
	}
}

bool CardModel::read_register(uint32_t offset, uint64_t *value) const
{
	switch (offset) {
	case NEOPROF_CHMU_CAP0:
		*value = place(NEOPROF_CHMU_CAP0_VERSION_VALUE, NEOPROF_CHMU_CAP0_VERSION_MASK) |
			 place(NEOPROF_CHMU_CAP0_INSTANCES_VALUE, NEOPROF_CHMU_CAP0_INSTANCES_MASK);
		return true;
	case NEOPROF_RANGE_GUARD:
		*value = 0;
		return true;
	case NEOPROF_CHMU_CAP1:
		*value = NEOPROF_CHMU_CAP1_INSTANCE_LENGTH_VALUE;
		return true;
	case NEOPROF_CHMU0_CAP0:
		*value = place(1, NEOPROF_CHMU0_CAP0_OVERFLOW_INT_MASK) |
			 place(1, NEOPROF_CHMU0_CAP0_FILL_INT_MASK) |
			 place(0x3f, NEOPROF_CHMU0_CAP0_TRACKABLE_MASK) |
			 place(5, NEOPROF_CHMU0_CAP0_MAX_EPOCH_SCALE_MASK) |
			 place(4095, NEOPROF_CHMU0_CAP0_MAX_EPOCH_MULTIPLIER_MASK) |
			 place(1, NEOPROF_CHMU0_CAP0_MIN_EPOCH_SCALE_MASK) |
			 place(1, NEOPROF_CHMU0_CAP0_MIN_EPOCH_MULTIPLIER_MASK) |
			 place(sketch_.ring_size(), NEOPROF_CHMU0_CAP0_HOTLIST_SIZE_MASK);
		return true;
	case NEOPROF_CHMU0_CAP1:
		*value = place(0x3ff0, NEOPROF_CHMU0_CAP1_UNIT_SIZES_MASK) |
			 place(0xffff, NEOPROF_CHMU0_CAP1_DOWNSAMPLING_MASK) |
			 place(1, NEOPROF_CHMU0_CAP1_EPOCH_MODE_MASK) |
			 place(1, NEOPROF_CHMU0_CAP1_ALWAYS_ON_MODE_MASK) |
			 place(1, NEOPROF_CHMU0_CAP1_RANDOM_DOWNSAMPLING_MASK);
		return true;
	case NEOPROF_CHMU0_RANGE_BITMAP_OFFSET:
		*value = NEOPROF_RANGE_BITMAP - NEOPROF_CHMU0_CAP0;
		return true;
	case NEOPROF_CHMU0_HOTLIST_OFFSET:
		*value = NEOPROF_HOTLIST - NEOPROF_CHMU0_CAP0;
		return true;
	case NEOPROF_CHMU0_CFG0:
		*value = cfg0_;
		return true;
	case NEOPROF_CHMU0_CFG1:
		*value = cfg1_;
		return true;
	case NEOPROF_CHMU0_CFG2:
		*value = cfg2_;
		return true;
	case NEOPROF_CHMU0_STATUS:
		*value = place(enabled_, NEOPROF_CHMU0_STATUS_ENABLED_MASK) |
			 place(16, NEOPROF_CHMU0_STATUS_COUNTER_WIDTH_MASK) |
			 place(overflow_, NEOPROF_CHMU0_STATUS_OVERFLOW_MASK) |
			 place(fill_, NEOPROF_CHMU0_STATUS_FILL_MASK);
		return true;
	case NEOPROF_CHMU0_HOTLIST:
		*value = place(sketch_.head(), NEOPROF_CHMU0_HOTLIST_HEAD_MASK) |
			 place(sketch_.tail(), NEOPROF_CHMU0_HOTLIST_TAIL_MASK);
		return true;
	default:
		break;
	}
	bool known;
	*value = read_vendor(offset, &known);
	return known;
}

bool CardModel::read(uint32_t offset, uint64_t *value)
{
	update();
	*value = 0;
	if (offset >= NEOPROF_HOTLIST && offset < NEOPROF_HOTLIST + NEOPROF_HOTLIST_BYTES) {
		*value = sketch_.entry((offset - NEOPROF_HOTLIST) / 8);
	} else if (in_range_bitmap(offset)) {
		*value = range_[(offset - NEOPROF_RANGE_BITMAP) / 8];
	} else if (offset >= NEOPROF_SNAPSHOT_SEQUENCE &&
		   offset < NEOPROF_SNAPSHOT_SEQUENCE + sizeof(Stats)) {
		const auto *bytes = reinterpret_cast<const char *>(&snapshot_);
		memcpy(value, bytes + (offset - NEOPROF_SNAPSHOT_SEQUENCE), sizeof(*value));
	} else if (offset >= NEOPROF_HISTOGRAM_BIN && offset < NEOPROF_HISTOGRAM_BIN + 8 * kBins) {
		const unsigned bin = (offset - NEOPROF_HISTOGRAM_BIN) / 8;
		*value = reached_[bin] - (bin + 1 < kBins ? reached_[bin + 1] : 0);
	} else if (!read_register(offset, value)) {
		bus_errors_ += bus_errors_ < UINT32_MAX;
		return false;
	}
	return true;
}

// ---------------------------------------------------------------- writes
void CardModel::write_head(uint64_t data, uint64_t mask)
{
	if (!(mask & NEOPROF_CHMU0_HOTLIST_HEAD_MASK))
		return;
	const auto head = static_cast<uint32_t>(
	    merge(sketch_.head(), data, mask & NEOPROF_CHMU0_HOTLIST_HEAD_MASK));
	const uint32_t ahead = (head - sketch_.head()) & (sketch_.ring_size() - 1);
	if (head < sketch_.ring_size() && ahead <= filled())
		sketch_.set_head(head);
	else
		config_error_ |= NEOPROF_VENDOR_CONFIG_ERROR_HEAD_MASK;
}

void CardModel::write_range(unsigned word, uint64_t data, uint64_t mask)
{
	if (enabled_) {
		config_error_ |= NEOPROF_VENDOR_CONFIG_ERROR_RANGE_LOCKED_MASK;
		return;
	}
	range_[word] = merge(range_[word], data, mask);
	sketch_.set_range(word, range_[word]);
}

bool CardModel::write_vendor(uint32_t offset, uint64_t data, uint64_t mask)
{
	const uint64_t set = data & mask;
	switch (offset) {
	case NEOPROF_VENDOR_CONFIG:
		vendor_config_ = merge(vendor_config_, data, mask & kVendorConfigKept);
		return true;
	case NEOPROF_VENDOR_COMMAND:
		if (set & NEOPROF_VENDOR_COMMAND_SNAPSHOT_MASK)
			snapshot();
		if (set & NEOPROF_VENDOR_COMMAND_CLEAR_MASK)
			sketch_.clear();
		return true;
	case NEOPROF_VENDOR_CONFIG_ERROR:
		config_error_ &= ~set;
		return true;
	case NEOPROF_VENDOR_ERROR_RANK:
		rank_ = merge(rank_, data, mask & NEOPROF_VENDOR_ERROR_RANK_RANK_MASK);
		return true;
	case NEOPROF_VENDOR_BUS_ERRORS:
		bus_errors_ &= data | ~mask;
		return true;
	default:
		return false;
	}
}

bool CardModel::write_register(uint32_t offset, uint64_t data, uint64_t mask)
{
	const uint64_t set = data & mask;
	switch (offset) {
	case NEOPROF_CHMU0_CFG0:
		cfg0_ = merge(cfg0_, data, mask & kCfg0Kept);
		control(set & NEOPROF_CHMU0_CFG0_RESET_MASK);
		return true;
	case NEOPROF_RANGE_GUARD:
		return true;
	case NEOPROF_CHMU0_CFG1:
		cfg1_ = merge(cfg1_, data, mask);
		return true;
	case NEOPROF_CHMU0_CFG2:
		cfg2_ = merge(cfg2_, data, mask & NEOPROF_CHMU0_CFG2_FILL_THRESHOLD_MASK);
		return true;
	case NEOPROF_CHMU0_STATUS:
		if (set & NEOPROF_CHMU0_STATUS_OVERFLOW_MASK)
			overflow_ = false;
		if (set & NEOPROF_CHMU0_STATUS_FILL_MASK)
			fill_ = false;
		return true;
	case NEOPROF_CHMU0_HOTLIST:
		write_head(data, mask);
		return true;
	default:
		return write_vendor(offset, data, mask);
	}
}

bool CardModel::write(uint32_t offset, uint64_t data, uint64_t mask)
{
	update();
	bool ok = true;
	const bool snapshot = offset >= NEOPROF_SNAPSHOT_SEQUENCE &&
			      offset < NEOPROF_SNAPSHOT_SEQUENCE + sizeof(Stats);
	const bool histogram =
	    offset >= NEOPROF_HISTOGRAM_BIN && offset < NEOPROF_HISTOGRAM_BIN + 8 * kBins;
	if (in_range_bitmap(offset)) {
		write_range((offset - NEOPROF_RANGE_BITMAP) / 8, data, mask);
	} else if (snapshot || histogram) {
		bus_errors_ += bus_errors_ < UINT32_MAX; // ignored, answered without an error
	} else if (!write_register(offset, data, mask)) {
		bus_errors_ += bus_errors_ < UINT32_MAX;
		ok = false;
	}
	update();
	return ok;
}

} // namespace neoprof
