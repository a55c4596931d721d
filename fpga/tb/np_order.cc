// SPDX-License-Identifier: Apache-2.0
// What counts as one use when requests are late or out of order: prints the page
// docs/hardware/order.md. Coalescing before the sketch, and the table's bits for touched parts, on
// the same requests.
#include "np_sketch_model.h"
#include "np_streams.h"

#include "neoprof_card.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

using namespace neoprof;

namespace
{
constexpr uint64_t kRequests = 4000000;
constexpr uint64_t kLines = 64; // of a page
constexpr uint64_t kPages = 1 << 20;
constexpr uint64_t kLine = 64;
constexpr unsigned kRunWindow = 10; // of 100 us, as the driver sets it
constexpr unsigned kUseWindow = 16; // of 5 us

// Requests as np_card_push() takes them, and how many uses of pages they are.
struct Traffic {
	std::string name;
	std::vector<uint64_t> requests;
	uint64_t uses;
};

uint64_t address(uint64_t line)
{
	return line % (kPages * kLines) * kLine;
}

uint64_t pages_of(uint64_t lines)
{
	return (lines + kLines - 1) / kLines;
}

// One reader; lines go to the channels in turn, so many at a time; channel 1 is late by some
// clocks.
Traffic late(unsigned interleave, unsigned clocks)
{
	Traffic traffic{"one reader, " + std::to_string(interleave * kLine) +
			    " B a channel, channel 1 late by " + std::to_string(clocks),
			{},
			pages_of(kRequests)};
	const auto line = [&](unsigned channel, uint64_t nth) {
		return nth / interleave * 2 * interleave + channel * interleave + nth % interleave;
	};
	for (uint64_t clock = 0; clock < kRequests / 2 + clocks; clock++) {
		traffic.requests.push_back(clock < kRequests / 2 ? address(line(0, clock))
								 : NP_REQ_NONE);
		traffic.requests.push_back(clock >= clocks ? address(line(1, clock - clocks))
							   : NP_REQ_NONE);
	}
	return traffic;
}

Traffic behind(unsigned lines)
{
	Traffic traffic{"two readers, " + std::to_string(lines) + " lines apart",
			{},
			2 * pages_of(kRequests / 2)};
	for (uint64_t at = 0; at < kRequests / 2; at++) {
		traffic.requests.push_back(address(at + lines));
		traffic.requests.push_back(address(at));
	}
	return traffic;
}

Traffic shuffled(unsigned within)
{
	Traffic traffic{"one reader, out of order within " + std::to_string(within) + " lines",
			{},
			pages_of(kRequests)};
	Random random(within);
	for (uint64_t first = 0; first < kRequests; first += within) {
		for (uint64_t i = 0; i < within; i++)
			traffic.requests.push_back(address(first + i));
		for (uint64_t i = within; i-- > 1;)
			std::swap(traffic.requests[first + i],
				  traffic.requests[first + random.next() % (i + 1)]);
	}
	return traffic;
}

Traffic readers(unsigned count)
{
	Traffic traffic{std::to_string(count) + " readers in random order", {}, 0};
	Random random(count);
	std::vector<uint64_t> next(count), begun(count);
	for (unsigned i = 0; i < count; i++)
		next[i] = begun[i] = i * (kPages / count) * kLines;
	for (uint64_t i = 0; i < kRequests; i++) {
		const uint64_t reader = random.next() % count;
		traffic.requests.push_back(address(next[reader]++));
	}
	for (unsigned i = 0; i < count; i++)
		traffic.uses += pages_of(next[i] - begun[i]);
	return traffic;
}

// Each request is a use: pages by Zipf's law, any line of them.
Traffic scattered(uint64_t pages)
{
	Traffic traffic{
	    "any line of " + std::to_string(pages) + " pages, Zipf 0.99", {}, kRequests};
	Random random(pages);
	const Zipf zipf(pages, 0.99);
	for (uint64_t i = 0; i < kRequests; i++) {
		const uint64_t page = zipf.rank(random) * 0x9e3779b1u % kPages;
		traffic.requests.push_back(address(page * kLines + random.next() % kLines));
	}
	return traffic;
}

Traffic one_line()
{
	return {"one line of one page", std::vector<uint64_t>(kRequests, address(77)), kRequests};
}

// Used at random, and read from one end to the other by two channels of which one is late.
struct Mixed {
	std::vector<uint64_t> requests;
	std::vector<uint32_t> uses = std::vector<uint32_t>(kPages);
};

Mixed mixed()
{
	Mixed mix;
	Random random(5);
	const Zipf zipf(kPages / 16, 0.99);
	const Traffic stream = late(1, 2);
	for (uint64_t i = 0; i < kRequests; i++) {
		const uint64_t page = zipf.rank(random) * 0x9e3779b1u % kPages;
		mix.uses[page]++;
		mix.requests.push_back(address(page * kLines + random.next() % kLines));
		mix.requests.push_back(stream.requests[i]);
		if (i % kLines == 0)
			mix.uses[i / kLines]++;
	}
	return mix;
}

SketchModel card(Tracker tracker, bool merge)
{
	SketchModel model(tracker == Tracker::kTable ? 17 : 19, 4096, 40000, tracker);
	for (unsigned word = 0; word < kRangeWords; word++)
		model.set_range(word, ~0ull);
	Config config;
	config.threshold = kCountMax;
	config.conservative = true;
	config.coalesce = merge && tracker == Tracker::kSketch;
	config.by_parts = merge && tracker == Tracker::kTable;
	config.run_window = kRunWindow;
	config.use_window = kUseWindow;
	model.enable(config);
	return model;
}

double share(const Traffic &traffic, Tracker tracker)
{
	SketchModel model = card(tracker, true);
	model.push(traffic.requests.data(), traffic.requests.size());
	return static_cast<double>(model.stats().counted) / static_cast<double>(traffic.uses);
}

// The pages with the most of something; ties go to the lower number.
std::vector<uint32_t> top(size_t count, const std::function<uint32_t(uint32_t)> &of)
{
	std::vector<uint32_t> amounts(kPages), pages(kPages);
	for (uint32_t page = 0; page < kPages; page++) {
		pages[page] = page;
		amounts[page] = of(page);
	}
	std::partial_sort(pages.begin(), pages.begin() + static_cast<long>(count), pages.end(),
			  [&](uint32_t a, uint32_t b) {
				  return amounts[a] != amounts[b] ? amounts[a] > amounts[b] : a < b;
			  });
	pages.resize(count);
	std::sort(pages.begin(), pages.end());
	return pages;
}

void print_recall(const Mixed &mix, const char *name, Tracker tracker, bool merge)
{
	SketchModel model = card(tracker, merge);
	model.push(mix.requests.data(), mix.requests.size());
	printf("| %s |", name);
	for (const size_t count : {100u, 1000u, 5000u}) {
		const auto truth = top(count, [&](uint32_t page) { return mix.uses[page]; });
		const auto found = top(count, [&](uint32_t page) { return model.estimate(page); });
		std::vector<uint32_t> both;
		std::set_intersection(truth.begin(), truth.end(), found.begin(), found.end(),
				      std::back_inserter(both));
		printf(" %.3f |",
		       static_cast<double>(both.size()) / static_cast<double>(truth.size()));
	}
	printf("\n");
}
} // namespace

int main()
{
	printf("<!-- SPDX-License-Identifier: Apache-2.0 -->\n"
	       "# Uses of a page when requests are late or out of order\n\n"
	       "Written by `make -C fpga order`, on the reference models; the same numbers come at "
	       "each "
	       "run. Four million\nrequests on two channels, at each clock of 2.5 ns; runs end "
	       "each 1 ms, uses "
	       "each 80 us.\n\n"
	       "Counted, as a multiple of the uses: 1.00 is right; for a reader, who uses a page "
	       "once, "
	       "64 is no merging at all.\n\n"
	       "| traffic | sketch, coalescing | table, by parts |\n|---|---|---|\n");
	std::vector<std::function<Traffic()>> all;
	for (const unsigned clocks : {0u, 1u, 2u, 3u, 8u, 32u})
		all.emplace_back([=] { return late(1, clocks); });
	for (const unsigned clocks : {3u, 4u, 8u})
		all.emplace_back([=] { return late(4, clocks); });
	for (const unsigned lines : {1u, 4u, 5u, 16u})
		all.emplace_back([=] { return behind(lines); });
	for (const unsigned within : {2u, 4u, 8u, 16u})
		all.emplace_back([=] { return shuffled(within); });
	for (const unsigned count : {16u, 64u, 128u, 512u})
		all.emplace_back([=] { return readers(count); });
	for (const uint64_t pages : {uint64_t{1}, uint64_t{1000}, kPages})
		all.emplace_back([=] { return scattered(pages); });
	all.emplace_back(one_line);
	for (const auto &make : all) {
		const Traffic traffic = make();
		printf("| %s | %.2f | %.2f |\n", traffic.name.c_str(),
		       share(traffic, Tracker::kSketch), share(traffic, Tracker::kTable));
		fflush(stdout);
	}
	printf(
	    "\nHalf of eight million requests go to any line of 65,536 pages by Zipf's law, half "
	    "are a "
	    "reader's, whose\nsecond channel is late by two clocks. Which share of the pages with "
	    "the most uses has the highest counts:\n\n"
	    "| design | of 100 | of 1,000 | of 5,000 |\n|---|---|---|---|\n");
	const Mixed mix = mixed();
	print_recall(mix, "sketch, each request", Tracker::kSketch, false);
	print_recall(mix, "sketch, coalescing", Tracker::kSketch, true);
	print_recall(mix, "table, each request", Tracker::kTable, false);
	print_recall(mix, "table, by parts", Tracker::kTable, true);
	return 0;
}
