// SPDX-License-Identifier: Apache-2.0
#include "np_streams.h"

#include "neoprof_card.h"
#include "np_seeds.h"

#include <array>
#include <cmath>
#include <stdexcept>

namespace neoprof
{

namespace
{
constexpr unsigned kPageLog2 = 12;
constexpr uint64_t kLine = 64, kPageLines = 64;
constexpr unsigned kZipfPagesLog2 = 24;

class UniformStream : public Stream
{
      public:
	explicit UniformStream(uint64_t seed) : random_(seed)
	{
	}
	uint64_t page() override
	{
		return random_.next() & ((1u << kZipfPagesLog2) - 1);
	}

      private:
	Random random_;
};

class ZipfStream : public Stream
{
      public:
	ZipfStream(double s, uint64_t seed) : random_(seed), zipf_(1u << kZipfPagesLog2, s)
	{
	}
	uint64_t page() override
	{
		return scattered_page(zipf_.rank(random_));
	}

      private:
	Random random_;
	Zipf zipf_;
};

// Cache lines in order: 64 requests to a page.
class SequentialStream : public Stream
{
      public:
	uint64_t page() override
	{
		return line_++ / 64;
	}

      private:
	uint64_t line_ = 0;
};

class SingleStream : public Stream
{
      public:
	uint64_t page() override
	{
		return 0x12345;
	}
};

// All requests at one entry of a row, both channels in every cycle, different pages.
class SameEntryStream : public Stream
{
      public:
	SameEntryStream(unsigned row, uint64_t seed)
	    : random_(seed), keys_(same_entry_keys(row, 19))
	{
		// Pages that the card can hold.
		std::vector<uint32_t> kept;
		for (const uint32_t key : keys_)
			if (key < 1u << 28)
				kept.push_back(key);
		keys_ = kept;
	}
	uint64_t page() override
	{
		return keys_[random_.next() % keys_.size()];
	}

      private:
	Random random_;
	std::vector<uint32_t> keys_;
};

// Few pages again and again at every distance from 0 to 7 cycles.
class HazardStream : public Stream
{
      public:
	explicit HazardStream(uint64_t seed) : random_(seed)
	{
	}
	uint64_t page() override
	{
		if (left_-- == 0) {
			left_ = 64;
			base_ = random_.next() & 0xffffff;
			spread_ = 1 + random_.next() % 8;
		}
		return base_ + random_.next() % spread_;
	}

      private:
	Random random_;
	uint64_t base_ = 0, spread_ = 1;
	unsigned left_ = 0;
};

// Interleaved runs of lines, up and down, in one of them for some requests and in another then.
class RunStream : public Stream
{
      public:
	explicit RunStream(uint64_t seed) : random_(seed)
	{
		for (auto &run : runs_)
			run = begin();
	}
	uint64_t page() override
	{
		return runs_[at_].line / kPageLines;
	}
	uint64_t address() override
	{
		if (left_-- == 0) {
			left_ = random_.next() % 4;
			at_ = random_.next() % runs_.size();
		}
		Run &run = runs_[at_];
		if (run.left-- == 0)
			run = begin();
		run.line += run.step;
		return run.line * kLine;
	}

      private:
	struct Run {
		uint64_t line;
		int64_t step;
		unsigned left;
	};
	Run begin()
	{
		static constexpr std::array<int64_t, 8> steps = {1, 1, 1, -1, 2, -4, 5, 0};
		return {kPageLines + (random_.next() & 0x3fffffff),
			steps[random_.next() % steps.size()],
			static_cast<unsigned>(random_.next() % 100)};
	}
	Random random_;
	std::array<Run, 40> runs_;
	size_t at_ = 0;
	unsigned left_ = 0;
};
} // namespace

uint64_t Random::next()
{
	state_ += 0x9e3779b97f4a7c15ull;
	uint64_t z = state_;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

double Random::uniform()
{
	return static_cast<double>(next() >> 11) * 0x1p-53;
}

// W. Hoermann, G. Derflinger: Rejection-inversion to generate variates from monotone discrete
// distributions, ACM TOMACS 6 (1996). integral() is the antiderivative of x^-s.
Zipf::Zipf(uint64_t n, double s) : n_(static_cast<double>(n)), s_(s)
{
	first_ = integral(1.5) - 1.0;
	last_ = integral(n_ + 0.5);
	shortcut_ = 2.0 - inverse(integral(2.5) - std::pow(2.0, -s_));
}

double Zipf::integral(double x) const
{
	const double log_x = std::log(x);
	const double t = (1.0 - s_) * log_x;
	return std::fabs(t) > 1e-8 ? std::expm1(t) / (1.0 - s_) : log_x * (1.0 + t / 2);
}

double Zipf::inverse(double x) const
{
	const double t = std::fmax(x * (1.0 - s_), -1.0);
	return std::exp(std::fabs(t) > 1e-8 ? std::log1p(t) / (1.0 - s_) : x * (1.0 - t / 2));
}

uint64_t Zipf::rank(Random &random) const
{
	for (;;) {
		const double u = last_ + random.uniform() * (first_ - last_);
		const double x = inverse(u);
		const double k = std::fmin(std::fmax(std::floor(x + 0.5), 1.0), n_);
		if (k - x <= shortcut_ || u >= integral(k + 0.5) - std::pow(k, -s_))
			return static_cast<uint64_t>(k);
	}
}

uint64_t Stream::address()
{
	return page() << kPageLog2 | offset_;
}

void Stream::fill(std::vector<uint64_t> &requests)
{
	for (auto &request : requests) {
		const uint64_t bits = offsets_.next();
		offset_ = bits & 0xfc0;
		request = address();
		if (bits >> 32 & 1 && bits >> 33 & 1)
			request |= NP_REQ_WRITE;
	}
}

uint64_t scattered_page(uint64_t rank)
{
	// An odd multiplier permutes the pages.
	return rank * 0x9e3779b1u & ((1u << kZipfPagesLog2) - 1);
}

std::vector<uint32_t> same_entry_keys(unsigned row, unsigned log2_width)
{
	// Kernel of the row's matrix: eliminate, keeping which key bits made up each remainder.
	const uint32_t mask = (1u << log2_width) - 1;
	std::array<uint32_t, 32> pivots{}, made_of{};
	std::vector<uint32_t> kernel;
	for (unsigned bit = 0; bit < 32; bit++) {
		uint32_t word = kSeeds[row][bit] & mask, from = 1u << bit;
		for (unsigned top = 32; top-- > 0 && word;) {
			if (!(word >> top & 1))
				continue;
			if (!pivots[top]) {
				pivots[top] = word;
				made_of[top] = from;
				word = 0;
				from = 0;
				break;
			}
			word ^= pivots[top];
			from ^= made_of[top];
		}
		if (from)
			kernel.push_back(from);
	}
	std::vector<uint32_t> keys;
	for (uint64_t choice = 0; choice < 1ull << kernel.size(); choice++) {
		uint32_t key = 0x12345;
		for (size_t i = 0; i < kernel.size(); i++)
			if (choice >> i & 1)
				key ^= kernel[i];
		keys.push_back(key);
	}
	return keys;
}

const std::vector<StreamKind> &stream_kinds()
{
	static const std::vector<StreamKind> kinds = {
	    {"uniform", "16 M pages, all alike"},
	    {"zipf-0.8", "16 M pages, Zipf 0.8, scattered"},
	    {"zipf-0.99", "16 M pages, Zipf 0.99, scattered"},
	    {"zipf-1.2", "16 M pages, Zipf 1.2, scattered"},
	    {"sequential", "cache lines in order"},
	    {"single", "one page"},
	    {"runs", "forty runs of lines, up and down, interleaved"},
	    {"same-entry-0", "different pages, one entry of row 0"},
	    {"same-entry-1", "different pages, one entry of row 1"},
	    {"hazards", "few pages at distances of 0 to 7 cycles"},
	};
	return kinds;
}

std::unique_ptr<Stream> make_stream(const std::string &name, uint64_t seed)
{
	if (name == "uniform")
		return std::make_unique<UniformStream>(seed);
	if (name.rfind("zipf-", 0) == 0)
		return std::make_unique<ZipfStream>(std::stod(name.substr(5)), seed);
	if (name == "sequential")
		return std::make_unique<SequentialStream>();
	if (name == "single")
		return std::make_unique<SingleStream>();
	if (name == "runs")
		return std::make_unique<RunStream>(seed);
	if (name == "same-entry-0" || name == "same-entry-1")
		return std::make_unique<SameEntryStream>(name.back() - '0', seed);
	if (name == "hazards")
		return std::make_unique<HazardStream>(seed);
	throw std::runtime_error("no stream named " + name);
}

} // namespace neoprof
