// SPDX-License-Identifier: Apache-2.0
#include "np_card_model.h"

#include "neoprof_regs.h"

#include <cstring>

namespace neoprof
{

namespace
{
constexpr uint64_t kCfg1Reset = 12 | 1ull << NEOPROF_CHMU0_CFG1_EPOCH_SCALE_SHIFT |
				1ull << NEOPROF_CHMU0_CFG1_EPOCH_MULTIPLIER_SHIFT;
constexpr uint64_t kCfg0Kept =
    NEOPROF_CHMU0_CFG0_WHAT_MASK | NEOPROF_CHMU0_CFG0_RANDOM_DOWNSAMPLING_MASK |
    NEOPROF_CHMU0_CFG0_OVERFLOW_INT_ENABLE_MASK | NEOPROF_CHMU0_CFG0_FILL_INT_ENABLE_MASK |
    NEOPROF_CHMU0_CFG0_ENABLE_MASK | NEOPROF_CHMU0_CFG0_THRESHOLD_MASK;

uint64_t merge(uint64_t old, uint64_t data, uint64_t mask)
{
	return (old & ~mask) | (data & mask);
}

uint64_t field(uint64_t value, uint64_t mask)
{
	return (value & mask) >> __builtin_ctzll(mask);
}

uint64_t place(uint64_t value, uint64_t mask)
{
	return value << __builtin_ctzll(mask) & mask;
}
} // namespace

CardModel::CardModel(unsigned log2_width, unsigned ring_size, unsigned cycles_per_100us)
    : cycles_per_100us_(cycles_per_100us), sketch_(log2_width, ring_size, cycles_per_100us)
{
	hardware_reset();
}

void CardModel::hardware_reset()
{
	sketch_ = SketchModel(sketch_.log2_width(), sketch_.ring_size(), cycles_per_100us_);
	cfg0_ = 0;
	cfg1_ = kCfg1Reset;
	cfg2_ = 0;
	vendor_config_ = 0;
	config_error_ = 0;
	rank_ = 1ull << (sketch_.log2_width() - 1);
	bus_errors_ = 0;
	threshold_in_force_ = 0;
	enabled_ = overflow_ = fill_ = bound_valid_ = false;
	range_.fill(0);
	snapshot_ = {};
	reached_.fill(0);
	reached_[0] = 1u << sketch_.log2_width();
	bound_bin_ = 0;
}

SketchModel &CardModel::sketch()
{
	return sketch_;
}

const SketchModel &CardModel::sketch() const
{
	return sketch_;
}

uint32_t CardModel::filled() const
{
	return (sketch_.tail() - sketch_.head()) & (sketch_.ring_size() - 1);
}

// Sticky conditions that follow from the present state.
void CardModel::update()
{
	if (sketch_.take_refused())
		overflow_ = true;
	if (cfg2_ && filled() >= cfg2_)
		fill_ = true;
	if (enabled_ && cfg0_ >> NEOPROF_CHMU0_CFG0_THRESHOLD_SHIFT > kCountMax)
		config_error_ |= NEOPROF_VENDOR_CONFIG_ERROR_THRESHOLD_MASK;
}

bool CardModel::irq()
{
	update();
	return (overflow_ && cfg0_ & NEOPROF_CHMU0_CFG0_OVERFLOW_INT_ENABLE_MASK) ||
	       (fill_ && cfg0_ & NEOPROF_CHMU0_CFG0_FILL_INT_ENABLE_MASK);
}

// ---------------------------------------------------------------- control
uint64_t CardModel::refusal() const
{
	const uint64_t what = field(cfg0_, NEOPROF_CHMU0_CFG0_WHAT_MASK);
	const uint64_t unit = field(cfg1_, NEOPROF_CHMU0_CFG1_UNIT_SIZE_MASK);
	const uint64_t mode = field(cfg1_, NEOPROF_CHMU0_CFG1_MODE_MASK);
	const uint64_t scale = field(cfg1_, NEOPROF_CHMU0_CFG1_EPOCH_SCALE_MASK);
	uint64_t bad = 0;
	if (what < 1 || what > 6)
		bad |= NEOPROF_VENDOR_CONFIG_ERROR_WHAT_MASK;
	if (unit < 12 || unit > 21)
		bad |= NEOPROF_VENDOR_CONFIG_ERROR_UNIT_SIZE_MASK;
	if (field(cfg1_, NEOPROF_CHMU0_CFG1_DOWNSAMPLING_MASK) > 15)
		bad |= NEOPROF_VENDOR_CONFIG_ERROR_DOWNSAMPLING_MASK;
	if (mode > 1)
		bad |= NEOPROF_VENDOR_CONFIG_ERROR_MODE_MASK;
	if (mode == 0 &&
	    (scale < 1 || scale > 5 || !field(cfg1_, NEOPROF_CHMU0_CFG1_EPOCH_MULTIPLIER_MASK)))
		bad |= NEOPROF_VENDOR_CONFIG_ERROR_EPOCH_MASK;
	if (field(cfg0_, NEOPROF_CHMU0_CFG0_THRESHOLD_MASK) > kCountMax)
		bad |= NEOPROF_VENDOR_CONFIG_ERROR_THRESHOLD_MASK;
	return bad;
}

Config CardModel::configuration() const
{
	Config config;
	const uint64_t what = (field(cfg0_, NEOPROF_CHMU0_CFG0_WHAT_MASK) - 1) % 3 + 1;
	config.track_read = what & 1;
	config.track_write = what & 2;
	config.random = cfg0_ & NEOPROF_CHMU0_CFG0_RANDOM_DOWNSAMPLING_MASK;
	config.conservative = vendor_config_ & NEOPROF_VENDOR_CONFIG_CONSERVATIVE_MASK;
	config.epoch_mode = field(cfg1_, NEOPROF_CHMU0_CFG1_MODE_MASK) == 0;
	config.unit_shift =
	    static_cast<unsigned>(field(cfg1_, NEOPROF_CHMU0_CFG1_UNIT_SIZE_MASK) - kMinUnitLog2);
	config.downsample =
	    static_cast<unsigned>(field(cfg1_, NEOPROF_CHMU0_CFG1_DOWNSAMPLING_MASK));
	config.epoch_ticks = field(cfg1_, NEOPROF_CHMU0_CFG1_EPOCH_MULTIPLIER_MASK);
	for (uint64_t s = 1; s < field(cfg1_, NEOPROF_CHMU0_CFG1_EPOCH_SCALE_MASK); s++)
		config.epoch_ticks *= 10;
	config.threshold = static_cast<uint32_t>(field(cfg0_, NEOPROF_CHMU0_CFG0_THRESHOLD_MASK));
	return config;
}

void CardModel::control(bool reset)
{
	if (reset) {
		sketch_.reset();
		enabled_ = overflow_ = fill_ = false;
	}
	const bool enable = cfg0_ & NEOPROF_CHMU0_CFG0_ENABLE_MASK;
	const uint64_t threshold = field(cfg0_, NEOPROF_CHMU0_CFG0_THRESHOLD_MASK);
	if (enabled_ && !enable) {
		sketch_.disable();
		enabled_ = false;
	} else if (!enabled_ && enable) {
		const uint64_t bad = refusal();
		config_error_ |= bad;
		if (bad) {
			cfg0_ &= ~uint64_t{NEOPROF_CHMU0_CFG0_ENABLE_MASK};
		} else {
			sketch_.enable(configuration());
			threshold_in_force_ = static_cast<uint32_t>(threshold);
			enabled_ = true;
		}
	} else if (enabled_ && threshold <= kCountMax && threshold != threshold_in_force_) {
		threshold_in_force_ = static_cast<uint32_t>(threshold);
		sketch_.set_threshold(threshold_in_force_);
	}
}

void CardModel::snapshot()
{
	const uint64_t sequence = snapshot_.sequence;
	snapshot_ = sketch_.stats();
	snapshot_.sequence = sequence + 1;
	for (unsigned bin = 0; bin < kBins; bin++)
		reached_[bin] = sketch_.reached(bin);
	bound_valid_ = rank_ >= 1 && rank_ <= 1ull << sketch_.log2_width();
	if (!bound_valid_) {
		config_error_ |= NEOPROF_VENDOR_CONFIG_ERROR_ERROR_RANK_MASK;
		return;
	}
	bound_bin_ = kBins - 1;
	while (bound_bin_ && reached_[bound_bin_] < rank_)
		bound_bin_--;
}

uint64_t CardModel::error_bound() const
{
	if (!bound_valid_)
		return 0;
	return place(hist_low(bound_bin_), NEOPROF_VENDOR_ERROR_BOUND_LOW_MASK) |
	       place(hist_high(bound_bin_), NEOPROF_VENDOR_ERROR_BOUND_HIGH_MASK) |
	       place(bound_bin_, NEOPROF_VENDOR_ERROR_BOUND_BIN_MASK) |
	       NEOPROF_VENDOR_ERROR_BOUND_VALID_MASK;
}

// ---------------------------------------------------------------- reads
uint64_t CardModel::read_vendor(uint32_t offset, bool *known) const
{
	*known = true;
	switch (offset) {
	case NEOPROF_VENDOR_ID:
		return place(NEOPROF_VENDOR_ID_MAGIC_VALUE, NEOPROF_VENDOR_ID_MAGIC_MASK) |
		       place(NEOPROF_VENDOR_ID_MAJOR_VALUE, NEOPROF_VENDOR_ID_MAJOR_MASK);
	case NEOPROF_VENDOR_GEOMETRY:
		return place(kRows, NEOPROF_VENDOR_GEOMETRY_DEPTH_MASK) |
		       place(sketch_.log2_width(), NEOPROF_VENDOR_GEOMETRY_LOG2_WIDTH_MASK) |
		       place(16, NEOPROF_VENDOR_GEOMETRY_COUNTER_WIDTH_MASK) |
		       place(kChannels, NEOPROF_VENDOR_GEOMETRY_CHANNELS_MASK) |
		       place(kBins, NEOPROF_VENDOR_GEOMETRY_HISTOGRAM_BINS_MASK) |
		       place(48, NEOPROF_VENDOR_GEOMETRY_EPOCH_WIDTH_MASK) |
		       place(kCapacityLog2, NEOPROF_VENDOR_GEOMETRY_LOG2_CAPACITY_MASK);
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
	} else if (offset >= NEOPROF_RANGE_BITMAP && offset < NEOPROF_HOTLIST) {
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
		vendor_config_ =
		    merge(vendor_config_, data, mask & NEOPROF_VENDOR_CONFIG_CONSERVATIVE_MASK);
		return true;
	case NEOPROF_VENDOR_COMMAND:
		if (set & NEOPROF_VENDOR_COMMAND_CLEAR_MASK)
			sketch_.clear();
		if (set & NEOPROF_VENDOR_COMMAND_SNAPSHOT_MASK)
			snapshot();
		return true;
	case NEOPROF_VENDOR_CONFIG_ERROR:
		config_error_ &= ~set;
		return true;
	case NEOPROF_VENDOR_ERROR_RANK:
		rank_ = merge(rank_, data, mask & NEOPROF_VENDOR_ERROR_RANK_RANK_MASK);
		return true;
	case NEOPROF_VENDOR_BUS_ERRORS:
		bus_errors_ = 0;
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
	if (offset >= NEOPROF_RANGE_BITMAP && offset < NEOPROF_HOTLIST) {
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
