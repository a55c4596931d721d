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
constexpr unsigned kRingSize = 4096;
constexpr unsigned kPagesLog2 = 24;
constexpr uint64_t kRequests = 50000000;
constexpr size_t kChunk = 1 << 16;

struct Run {
	std::vector<uint32_t> exact = std::vector<uint32_t>(size_t{1} << kPagesLog2);
	std::vector<bool> reported = std::vector<bool>(size_t{1} << kPagesLog2);
	SketchModel card{kLog2Width, kRingSize, 40000};
	uint64_t twice = 0;

	void drain();
	void feed(const char *stream, bool conservative, uint32_t threshold);
	uint32_t estimate(uint32_t page) const;
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

void Run::feed(const char *name, bool conservative, uint32_t threshold)
{
	const auto stream = make_stream(name, 1);
	for (unsigned word = 0; word < kRangeWords; word++)
		card.set_range(word, ~0ull);
	Config config;
	config.conservative = conservative;
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

uint32_t Run::estimate(uint32_t page) const
{
	return std::min(card.counter(0, card.index(0, page)), card.counter(1, card.index(1, page)));
}

// The card's error bound: bin of the W/2-th largest counter of row 0.
unsigned Run::bound_bin() const
{
	unsigned bin = kBins - 1;
	while (bin && card.reached(bin) < 1u << (kLog2Width - 1))
		bin--;
	return bin;
}

void print_precision(const Run &run, const char *update, uint32_t threshold)
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
	       update, threshold, hot, reported,
	       reported ? static_cast<double>(right) / static_cast<double>(reported) : 1.0,
	       hot ? static_cast<double>(right) / static_cast<double>(hot) : 1.0,
	       reported ? static_cast<double>(sure) / static_cast<double>(reported) : 1.0,
	       run.twice, run.card.stats().refused);
}

void print_errors(const Run &run, const char *update)
{
	std::vector<uint32_t> errors;
	uint64_t under = 0, capped = 0;
	for (uint32_t page = 0; page < run.exact.size(); page++) {
		const uint32_t exact = run.exact[page], estimate = run.estimate(page);
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
	       update, at(0.5), at(0.75), at(0.99), limit, share(above), hist_low(bin),
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
		for (const bool conservative : {false, true}) {
			auto run = std::make_unique<Run>();
			run->feed("zipf-0.99", conservative, threshold);
			print_precision(*run, conservative ? "conservative" : "plain", threshold);
			fflush(stdout);
			if (threshold == kErrorsAt)
				kept[conservative] = std::move(run);
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
	for (const bool conservative : {false, true})
		print_errors(*kept[conservative], conservative ? "conservative" : "plain");
	return 0;
}
