// SPDX-License-Identifier: Apache-2.0
#include "np_sketch_model.h"

#include "neoprof_card.h"
#include "np_seeds.h"

#include <algorithm>

namespace neoprof
{

namespace
{
constexpr std::array<uint32_t, kChannels> kSampleSeeds = {0x9e3779b9u, 0x7f4a7c15u};

uint32_t xorshift(uint32_t state)
{
	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state;
}

// The bytes of a page's number XORed, each turned by some bits: by none in table 0.
uint8_t run_slot(uint32_t page, unsigned table)
{
	uint8_t slot = 0;
	for (unsigned byte = 0; byte < 4; byte++) {
		const auto part = static_cast<uint8_t>(page >> 8 * byte);
		const unsigned turn = table * byte * 3 % 8;
		slot ^= static_cast<uint8_t>(part << turn | part >> (8 - turn));
	}
	return slot;
}
} // namespace

SketchModel::SketchModel(unsigned log2_width, unsigned ring_size, unsigned cycles_per_100us,
			 Tracker tracker)
    : log2_width_(log2_width), ring_size_(ring_size), cycles_per_100us_(cycles_per_100us),
      tracker_(tracker), ring_(ring_size)
{
	const bool table = tracker == Tracker::kTable;
	const uint32_t mask = (1u << (table ? log2_width - kWaysLog2 : log2_width)) - 1;
	if (table)
		table_ = std::make_unique<TableModel>(log2_width);
	else
		for (auto &row : rows_)
			row.assign(size_t{1} << log2_width, 0);
	for (unsigned byte = 0; byte < 4; byte++) {
		for (unsigned value = 0; value < 256; value++) {
			uint32_t low = 0, high = 0;
			for (unsigned bit = 0; bit < 8; bit++) {
				if (value >> bit & 1) {
					low ^= kSeeds[0][8 * byte + bit];
					high ^= kSeeds[1][8 * byte + bit];
				}
			}
			tables_[byte][value] = (low & mask) | uint64_t{high & mask} << 32;
		}
	}
	// Bin that a counter enters with each value, or 0.
	edges_.resize(kCountMax + 1);
	for (uint32_t value = 1; value <= kCountMax; value++)
		edges_[value] = hist_is_edge(value) ? static_cast<uint8_t>(hist_bin(value)) : 0;
	stats_.epoch = 1;
	epoch_bits_ = 1u << kEpochShift;
	sample_state_ = kSampleSeeds;
}

uint64_t SketchModel::hash(uint32_t key) const
{
	return tables_[0][key & 255] ^ tables_[1][key >> 8 & 255] ^ tables_[2][key >> 16 & 255] ^
	       tables_[3][key >> 24];
}

uint32_t SketchModel::index(unsigned row, uint32_t key) const
{
	return static_cast<uint32_t>(hash(key) >> (32 * row));
}

// ---------------------------------------------------------------- time
void SketchModel::push(const uint64_t *requests, size_t count)
{
	while (count) {
		const size_t now = std::min<uint64_t>(std::min(count, kBlock), 2 * undisturbed());
		push_cycles(requests, now);
		advance((now + 1) / 2);
		requests += now;
		count -= now;
	}
}

void SketchModel::step(uint64_t cycles)
{
	while (cycles) {
		const uint64_t now = std::min(cycles, undisturbed());
		advance(now);
		cycles -= now;
	}
}

bool SketchModel::windowed() const
{
	return config_.coalesce && config_.run_window;
}

// Cycles after which the table forgets touched parts; 0: never. The unit is 5 us.
uint64_t SketchModel::use_cycles() const
{
	return table_ && config_.by_parts ? config_.use_window * (cycles_per_100us_ / 20) : 0;
}

// Cycles in which no timer fires.
uint64_t SketchModel::undisturbed() const
{
	uint64_t left = uint64_t{1} << 40;
	if (enabled_ && config_.epoch_mode)
		left = config_.epoch_ticks * cycles_per_100us_ - timer_;
	if (windowed())
		left = std::min(left, config_.run_window * cycles_per_100us_ - window_);
	if (use_cycles())
		left = std::min(left, use_cycles() - part_window_);
	return left;
}

void SketchModel::advance(uint64_t cycles)
{
	stats_.cycles += cycles;
	if (windowed()) {
		window_ += cycles;
		if (window_ == config_.run_window * cycles_per_100us_) {
			window_ = 0;
			runs_ = {};
		}
	}
	if (use_cycles()) {
		part_window_ += cycles;
		if (part_window_ == use_cycles()) {
			part_window_ = 0;
			table_->new_window();
		}
	}
	if (!enabled_ || !config_.epoch_mode)
		return;
	timer_ += cycles;
	if (timer_ == config_.epoch_ticks * cycles_per_100us_)
		new_epoch();
}

// ---------------------------------------------------------------- requests
// Whether this is a request of a run, see np_coalesce.sv; remembers its line as the last one.
bool SketchModel::goes_on(uint64_t address)
{
	constexpr uint64_t known = 1ull << 63;
	const auto page = static_cast<uint32_t>(address >> kPageLog2);
	const uint64_t line = address >> kLineLog2;
	bool on = false;
	for (unsigned table = 0; table < kCoalesceTables; table++) {
		uint64_t &last = runs_[table][run_slot(page, table)];
		const uint64_t step = line - (last & ~known) + kCoalesceReach;
		on |= last & known && step <= 2 * kCoalesceReach && step != kCoalesceReach &&
		      (last & ~known) >> (kPageLog2 - kLineLog2) == page;
		last = line | known;
	}
	return on;
}

bool SketchModel::sampled_out(unsigned channel)
{
	const uint32_t mask = (1u << config_.downsample) - 1;
	const uint32_t phase = config_.random ? sample_state_[channel] : sample_count_;
	sample_count_++;
	sample_state_[channel] = xorshift(sample_state_[channel]);
	return (phase & mask) != 0;
}

// First half: which requests are counted, and where. Touches the counters so that they are in the
// cache when the second half comes.
size_t SketchModel::admit(const uint64_t *requests, size_t count, Item *items)
{
	size_t admitted = 0;
	uint64_t reads = 0, writes = 0, busy = 0, type = 0, range = 0, run = 0, sample = 0,
		 offered = 0;
	for (size_t i = 0; i < count; i++) {
		const uint64_t request = requests[i];
		if (request & NP_REQ_NONE)
			continue;
		const bool write = request & NP_REQ_WRITE;
		writes += write;
		reads += !write;
		busy += !(i & 1) || (requests[i - 1] & NP_REQ_NONE);
		if (!enabled_)
			continue;
		offered++;
		const uint64_t address = request & NP_REQ_ADDR_MASK;
		const uint64_t bit = address >> kRangeLog2;
		if (write ? !config_.track_write : !config_.track_read) {
			type++;
		} else if (address >> kCapacityLog2 || !(range_[bit / 64] >> bit % 64 & 1)) {
			range++;
		} else if (config_.coalesce && goes_on(address)) {
			run++;
		} else if (sampled_out(i & 1)) {
			sample++;
		} else {
			const auto key =
			    static_cast<uint32_t>(address >> kMinUnitLog2 >> config_.unit_shift);
			const uint64_t part = address >> kLineLog2 >> config_.unit_shift;
			const uint64_t indexes = hash(key);
			if (!table_) {
				__builtin_prefetch(&rows_[0][static_cast<uint32_t>(indexes)], 1);
				__builtin_prefetch(&rows_[1][indexes >> 32], 1);
			}
			items[admitted++] = {
			    indexes, key, static_cast<uint32_t>(part & ((1u << kPartsLog2) - 1))};
		}
	}
	stats_.reads += reads;
	stats_.writes += writes;
	stats_.busy += busy;
	stats_.skip_type += type;
	stats_.skip_range += range;
	stats_.skip_run += run;
	stats_.skip_sample += sample;
	stats_.offered += offered;
	stats_.counted += admitted;
	return admitted;
}

template <bool Conservative> void SketchModel::count(const Item *items, size_t count)
{
	uint64_t saturated = 0;
	for (size_t i = 0; i < count; i++) {
		uint32_t &entry0 = rows_[0][static_cast<uint32_t>(items[i].indexes)];
		uint32_t &entry1 = rows_[1][items[i].indexes >> 32];
		// A word of another epoch is zero.
		uint32_t word0 = (entry0 ^ epoch_bits_) >> kEpochShift ? epoch_bits_ : entry0;
		uint32_t word1 = (entry1 ^ epoch_bits_) >> kEpochShift ? epoch_bits_ : entry1;
		const uint32_t before0 = word0 & kCountMax, before1 = word1 & kCountMax;
		const bool want0 = !Conservative || before0 <= before1;
		const bool want1 = !Conservative || before1 <= before0;
		const bool inc0 = want0 && before0 != kCountMax;
		const bool inc1 = want1 && before1 != kCountMax;
		saturated += (want0 && !inc0) + (want1 && !inc1);
		word0 += inc0;
		word1 += inc1;
		if (inc0 && edges_[before0 + 1])
			reached_[edges_[before0 + 1]]++;
		const uint32_t estimate = std::min(word0 & kCountMax, word1 & kCountMax);
		if (estimate > config_.threshold && !(word0 & word1 & kHot)) {
			if (report(items[i].key, estimate)) {
				word0 |= kHot;
				word1 |= kHot;
			}
		}
		entry0 = word0;
		entry1 = word1;
	}
	stats_.saturated += saturated;
}

// True if the hot list has taken the unit.
bool SketchModel::report(uint32_t key, uint32_t estimate)
{
	if (((head_ - tail_ - 1) & (ring_size_ - 1)) == 0) {
		stats_.refused++;
		refused_ = true;
		return false;
	}
	ring_[tail_] = uint64_t{key} << 16 | estimate;
	tail_ = (tail_ + 1) & (ring_size_ - 1);
	stats_.reports++;
	return true;
}

void SketchModel::count_in_table(const Item *items, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const Item &item = items[i];
		const TableOutcome outcome =
		    table_->request(static_cast<uint32_t>(item.indexes), item.key, item.part,
				    config_.by_parts, config_.threshold);
		stats_.counted -= !outcome.counted;
		stats_.skip_run += !outcome.counted;
		stats_.saturated += outcome.saturated;
		stats_.displaced += outcome.displaced;
		if (outcome.entered)
			reached_[outcome.entered]++;
		if (outcome.left)
			reached_[outcome.left]--;
		if (outcome.wanted && report(item.key, outcome.estimate))
			table_->mark();
	}
}

void SketchModel::push_cycles(const uint64_t *requests, size_t count)
{
	Item items[kBlock];
	const size_t admitted = admit(requests, count, items);
	if (table_)
		count_in_table(items, admitted);
	else if (config_.conservative)
		this->count<true>(items, admitted);
	else
		this->count<false>(items, admitted);
}

// ---------------------------------------------------------------- control
void SketchModel::enable(const Config &config)
{
	config_ = config;
	runs_ = {};
	window_ = part_window_ = 0;
	if (table_)
		table_->new_window();
	sample_count_ = 0;
	sample_state_ = kSampleSeeds;
	timer_ = 0;
	enabled_ = true;
}

void SketchModel::disable()
{
	enabled_ = false;
}

void SketchModel::new_epoch()
{
	stats_.epoch++;
	stats_.epoch_start = stats_.offered;
	reached_.fill(0);
	timer_ = 0;
	if (table_)
		table_->clear();
	const auto number = static_cast<uint32_t>(stats_.epoch & kEpochMask);
	epoch_bits_ = number << kEpochShift;
	// The short epoch number comes round: forget what is left of its last use.
	if (number == 0)
		for (auto &row : rows_)
			std::fill(row.begin(), row.end(), kEpochMask << kEpochShift);
}

void SketchModel::clear()
{
	new_epoch();
	mark_applied();
}

void SketchModel::reset()
{
	disable();
	new_epoch();
	const uint64_t epoch = stats_.epoch, sequence = stats_.sequence;
	stats_ = {};
	stats_.epoch = epoch;
	stats_.sequence = sequence;
	head_ = 0;
	tail_ = 0;
	refused_ = false;
}

void SketchModel::set_threshold(uint32_t threshold)
{
	config_.threshold = threshold;
	mark_applied();
}

void SketchModel::set_head(uint32_t head)
{
	head_ = head;
	mark_applied();
}

void SketchModel::mark_applied()
{
	stats_.applied_at = stats_.offered;
}

void SketchModel::set_range(unsigned word, uint64_t bits)
{
	range_[word] = bits;
}

// ---------------------------------------------------------------- what can be seen
uint32_t SketchModel::counter(unsigned row, uint32_t index) const
{
	if (table_)
		return table_->peek(row, index);
	const uint32_t entry = rows_[row][index];
	return (entry ^ epoch_bits_) >> kEpochShift ? 0 : entry & kCountMax;
}

uint32_t SketchModel::estimate(uint32_t key) const
{
	if (table_)
		return table_->count(index(0, key), key);
	return std::min(counter(0, index(0, key)), counter(1, index(1, key)));
}

uint64_t SketchModel::entry(uint32_t slot) const
{
	return slot < ring_size_ ? ring_[slot] : 0;
}

uint32_t SketchModel::tail() const
{
	return tail_;
}

uint32_t SketchModel::head() const
{
	return head_;
}

uint32_t SketchModel::reached(unsigned bin) const
{
	return bin == 0 ? 1u << log2_width_ : reached_[bin];
}

const Stats &SketchModel::stats() const
{
	return stats_;
}

bool SketchModel::take_refused()
{
	const bool was = refused_;
	refused_ = false;
	return was;
}

unsigned SketchModel::log2_width() const
{
	return log2_width_;
}

unsigned SketchModel::ring_size() const
{
	return ring_size_;
}

Tracker SketchModel::tracker() const
{
	return tracker_;
}

} // namespace neoprof
