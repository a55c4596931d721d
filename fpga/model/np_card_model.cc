// SPDX-License-Identifier: Apache-2.0
#include "np_card_model.h"
#include "np_fields.h"

#include "neoprof_regs.h"

namespace neoprof
{

namespace
{
constexpr uint64_t kCfg1Reset = 12 | 1ull << NEOPROF_CHMU0_CFG1_EPOCH_SCALE_SHIFT |
				1ull << NEOPROF_CHMU0_CFG1_EPOCH_MULTIPLIER_SHIFT;
} // namespace

CardModel::CardModel(unsigned log2_width, unsigned ring_size, unsigned cycles_per_100us,
		     Tracker tracker)
    : cycles_per_100us_(cycles_per_100us), sketch_(log2_width, ring_size, cycles_per_100us, tracker)
{
	hardware_reset();
}

void CardModel::hardware_reset()
{
	sketch_ = SketchModel(sketch_.log2_width(), sketch_.ring_size(), cycles_per_100us_,
			      sketch_.tracker());
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
	config.coalesce = vendor_config_ & NEOPROF_VENDOR_CONFIG_COALESCE_MASK;
	config.by_parts = vendor_config_ & NEOPROF_VENDOR_CONFIG_BY_PARTS_MASK;
	config.use_window =
	    static_cast<unsigned>(field(vendor_config_, NEOPROF_VENDOR_CONFIG_USE_WINDOW_MASK));
	config.run_window =
	    static_cast<unsigned>(field(vendor_config_, NEOPROF_VENDOR_CONFIG_RUN_WINDOW_MASK));
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

} // namespace neoprof
