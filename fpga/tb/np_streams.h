// SPDX-License-Identifier: Apache-2.0
// Request streams for benches and studies. The same name and seed give the same stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace neoprof
{

class Random // splitmix64
{
      public:
	explicit Random(uint64_t seed) : state_(seed)
	{
	}
	uint64_t next();
	double uniform(); // [0, 1)

      private:
	uint64_t state_;
};

// Ranks 1 to n with probability proportional to rank^-s, by rejection-inversion.
class Zipf
{
      public:
	Zipf(uint64_t n, double s);
	uint64_t rank(Random &random) const;

      private:
	double integral(double x) const;
	double inverse(double x) const;
	double n_, s_, first_, last_, shortcut_;
};

class Stream
{
      public:
	virtual ~Stream() = default;
	virtual uint64_t page() = 0;
	virtual uint64_t address(); // any line of the next page, unless told otherwise

	// Requests for np_card_push(): pages of this stream, about a third of them written.
	void fill(std::vector<uint64_t> &requests);

      private:
	Random offsets_{7};
	uint64_t offset_ = 0;
};

struct StreamKind {
	std::string name;
	std::string about;
};

const std::vector<StreamKind> &stream_kinds();
std::unique_ptr<Stream> make_stream(const std::string &name, uint64_t seed);

// Rank r of a Zipf stream over 2^24 pages is this page: hot pages are scattered.
uint64_t scattered_page(uint64_t rank);

// Keys that the hash of a row sends to one index, all 2^(32 - log2_width) of them.
std::vector<uint32_t> same_entry_keys(unsigned row, unsigned log2_width);

} // namespace neoprof
