// SPDX-License-Identifier: Apache-2.0
// Accuracy of the card at its full size: prints the page docs/hardware/accuracy.md. Uses the
// reference model, which np_compare shows to be the RTL bit for bit, and an exact count per page.
#include "np_sketch_model.h"
#include "np_streams.h"

#include "neoprof_card.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <vector>

using namespace neoprof;

namespace
{
constexpr unsigned kLog2Width = 19;
constexpr unsigned kTableLog2 = 17;
constexpr unsigned kRingSize = 4096;
constexpr unsigned kPagesLog2 = 24;
constexpr uint64_t kRequests = 50000000;
constexpr size_t kChunk = 1 << 16;

// What counts, and how.
struct Design {
	const char *name;
	Tracker tracker;
	unsigned log2_width;
	bool conservative;
};

constexpr Design kPlain = {"plain", Tracker::kSketch, kLog2Width, false};
constexpr Design kConservative = {"conservative", Tracker::kSketch, kLog2Width, true};

// One copy of what counts, in Mibit: two rows of counters with their mark and a word of 64 bits for
// each 16 of them; or sets of eight entries with an epoch number.
double mibit(const Design &design)
{
	const double entries = static_cast<double>(1u << design.log2_width) / (1 << 20);
	if (design.tracker == Tracker::kSketch)
		return kRows * entries * (16 + 1 + 64 / 16.0);
	const unsigned tag = 32 - (design.log2_width - kWaysLog2);
	return entries * (1 + 16 + tag + 49.0 / kWays);
}

struct Run {
	explicit Run(const Design &what)
	    : design(what), card(what.log2_width, kRingSize, 40000, what.tracker)
	{
	}
	const Design design;
	std::vector<uint32_t> exact = std::vector<uint32_t>(size_t{1} << kPagesLog2);
	std::vector<bool> reported = std::vector<bool>(size_t{1} << kPagesLog2);
	SketchModel card;
	uint64_t twice = 0;

	void drain();
	void feed(const char *stream, uint32_t threshold);
	unsigned bound_bin() const;
};

void Run::drain()
{
	while (card.head() != card.tail()) {
		const uint64_t page = card.entry(card.head()) >> 16;
		twice += reported[page];
		reported[page] = true;
		card.set_head((card.head() + 1) % kRingSize);
	}
}

void Run::feed(const char *name, uint32_t threshold)
{
	const auto stream = make_stream(name, 1);
	for (unsigned word = 0; word < kRangeWords; word++)
		card.set_range(word, ~0ull);
	Config config;
	config.conservative = design.conservative;
	config.threshold = threshold;
	card.enable(config);
	std::vector<uint64_t> requests(kChunk);
	for (uint64_t done = 0; done < kRequests; done += requests.size()) {
		requests.resize(std::min<uint64_t>(kChunk, kRequests - done));
		stream->fill(requests);
		for (const uint64_t request : requests)
			exact[(request & NP_REQ_ADDR_MASK) >> kMinUnitLog2]++;
		card.push(requests.data(), requests.size());
		drain();
	}
}

// The card's error bound: bin of the W/2-th largest counter of row 0.
unsigned Run::bound_bin() const
{
	unsigned bin = kBins - 1;
	while (bin && card.reached(bin) < 1u << (kLog2Width - 1))
		bin--;
	return bin;
}

void print_precision(const Run &run, uint32_t threshold)
{
	const uint32_t margin = hist_high(run.bound_bin());
	uint64_t hot = 0, reported = 0, right = 0, sure = 0;
	for (size_t page = 0; page < run.exact.size(); page++) {
		hot += run.exact[page] > threshold;
		reported += run.reported[page];
		right += run.reported[page] && run.exact[page] > threshold;
		sure += run.reported[page] && run.exact[page] + margin > threshold;
	}
	printf("| %s | %u | %" PRIu64 " | %" PRIu64 " | %.4f | %.4f | %.4f | %" PRIu64 " | %" PRIu64
	       " |\n",
	       run.design.name, threshold, hot, reported,
	       reported ? static_cast<double>(right) / static_cast<double>(reported) : 1.0,
	       hot ? static_cast<double>(right) / static_cast<double>(hot) : 1.0,
	       reported ? static_cast<double>(sure) / static_cast<double>(reported) : 1.0,
	       run.twice, run.card.stats().refused);
}

// A line of the comparison of trackers.
void print_tracker(const Design &design, const char *stream, uint32_t threshold)
{
	Run run(design);
	run.feed(stream, threshold);
	uint64_t hot = 0, reported = 0, right = 0, over = 0;
	for (uint32_t page = 0; page < run.exact.size(); page++) {
		hot += run.exact[page] > threshold;
		reported += run.reported[page];
		right += run.reported[page] && run.exact[page] > threshold;
		over += run.card.estimate(page) > std::min(run.exact[page], kCountMax);
	}
	printf("| %s | %u | %s | %.1f | %" PRIu64 " | %" PRIu64 " | %.4f | %.4f | %" PRIu64
	       " | %" PRIu64 " |\n",
	       stream, threshold, design.name, mibit(design), hot, reported,
	       reported ? static_cast<double>(right) / static_cast<double>(reported) : 1.0,
	       hot ? static_cast<double>(right) / static_cast<double>(hot) : 1.0, over, run.twice);
	fflush(stdout);
}

void print_trackers()
{
	constexpr Design table = {"table, 16 K sets", Tracker::kTable, kTableLog2, false};
	constexpr Design twice = {"table, 32 K sets", Tracker::kTable, kTableLog2 + 1, false};
	constexpr Design fourfold = {"table, 64 K sets", Tracker::kTable, kTableLog2 + 2, false};
	printf(
	    "\n## The sketch and the tagged table\n\n"
	    "The same requests; Mibit: one copy of what counts, the table without its bits for "
	    "parts.\n"
	    "Above the truth: pages whose estimate is more than their count.\n\n"
	    "| stream | threshold | design | Mibit | truly hot | reported | precision | recall | "
	    "above the truth | reported twice |\n"
	    "|---|---|---|---|---|---|---|---|---|---|\n");
	for (const uint32_t threshold : {50u, 200u, 1000u})
		for (const Design &design : {kPlain, kConservative, table, twice, fourfold})
			print_tracker(design, "zipf-0.99", threshold);
	const struct {
		const char *stream;
		uint32_t threshold;
	} others[] = {{"zipf-0.8", 200}, {"zipf-1.2", 200}, {"uniform", 9}};
	for (const auto &[stream, threshold] : others)
		for (const Design &design : {kPlain, kConservative, table})
			print_tracker(design, stream, threshold);
}

void print_errors(const Run &run)
{
	std::vector<uint32_t> errors;
	uint64_t under = 0, capped = 0;
	for (uint32_t page = 0; page < run.exact.size(); page++) {
		const uint32_t exact = run.exact[page], estimate = run.card.estimate(page);
		if (exact >= kCountMax) {
			capped++; // the counter stopped: no error to speak of
			continue;
		}
		under += estimate < exact;
		errors.push_back(estimate - std::min(exact, estimate));
	}
	const auto at = [&](double share) {
		const auto place =
		    errors.begin() +
		    static_cast<long>(share * static_cast<double>(errors.size() - 1));
		std::nth_element(errors.begin(), place, errors.end());
		return *place;
	};
	const double limit = 2.0 * static_cast<double>(kRequests) / (1 << kLog2Width);
	uint64_t above = 0, above_bound = 0;
	const unsigned bin = run.bound_bin();
	for (const uint32_t error : errors) {
		above += error > limit;
		above_bound += error > hist_high(bin);
	}
	const auto share = [&](uint64_t count) {
		return static_cast<double>(count) / static_cast<double>(errors.size());
	};
	printf("| %s | %u | %u | %u | %.1f | %.6f | %u to %u | %.4f | %" PRIu64 " | %" PRIu64
	       " |\n",
	       run.design.name, at(0.5), at(0.75), at(0.99), limit, share(above), hist_low(bin),
	       hist_high(bin), share(above_bound), under, capped);
}
} // namespace

int main()
{
	constexpr uint32_t kErrorsAt = 200;
	std::unique_ptr<Run> kept[2];
	printf(
	    "<!-- SPDX-License-Identifier: Apache-2.0 -->\n"
	    "# Accuracy of the card\n\n"
	    "Written by `make -C fpga accuracy`; the same numbers come at each run.\n"
	    "W = 512 K, D = 2, 16-bit counters; Zipf 0.99 over 16 M pages, 50 M requests, one\n"
	    "epoch; the hot list is drained every 65,536 requests.\n\n"
	    "## Hot pages\n\n"
	    "Truly hot: counted exactly more often than the threshold. Within bound: share of the\n"
	    "reported pages whose true count is above threshold minus the card's error bound.\n\n"
	    "| update | threshold | truly hot | reported | precision | recall | within bound | "
	    "reported twice | reports refused |\n"
	    "|---|---|---|---|---|---|---|---|---|\n");
	for (const uint32_t threshold : {100u, 200u, 400u, 1000u, 4000u}) {
		for (const Design &design : {kPlain, kConservative}) {
			auto run = std::make_unique<Run>(design);
			run->feed("zipf-0.99", threshold);
			print_precision(*run, threshold);
			fflush(stdout);
			if (threshold == kErrorsAt)
				kept[design.conservative] = std::move(run);
		}
	}
	printf(
	    "\n## Error of the estimate\n\n"
	    "Over all 16 M pages at the end: estimate minus true count. Theory: above epsilon N =\n"
	    "2 N / W with probability at most delta = 1/4. The card's bound is the bin of the\n"
	    "W/2-th largest counter of row 0. Capped: pages with 65,535 requests or more, left "
	    "out.\n\n"
	    "| update | median | 75 %% | 99 %% | epsilon N | share above epsilon N | card's bound "
	    "| share above the bound | estimates below the truth | capped |\n"
	    "|---|---|---|---|---|---|---|---|---|---|\n");
	for (const auto &run : kept)
		print_errors(*run);
	print_trackers();
	return 0;
}
