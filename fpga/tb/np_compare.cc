// SPDX-License-Identifier: Apache-2.0
// Feeds the same streams, two requests a clock, to two card libraries (the Verilated RTL and the
// model) and compares all that can be seen: statistics, histogram, error bound, hot list entry by
// entry as it fills, and at the end every counter of the sketch.
//
//   np_compare FIRST.so SECOND.so [REQUESTS [STREAM...]]
//
// Prints one line of JSON a stream; exit status 1 on the first difference.
#include "neoprof_regs.h"
#include "np_library.h"
#include "np_streams.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

using namespace neoprof;

namespace
{
constexpr uint64_t kChunk = 1000000;
constexpr unsigned kTableRows = 10; // what can be seen of an entry

struct Result {
	uint64_t offered = 0, counted = 0, entries = 0, sum[2] = {0, 0}, largest = 0;
	uint64_t reports = 0, refused = 0, saturated = 0, runs = 0, displaced = 0, compared = 0;
};

struct Mode {
	bool conservative, coalesce, by_parts;
};

class Comparison
{
      public:
	Comparison(const Library &first, const Library &second) : cards_{Card(first), Card(second)}
	{
	}

	Result run(const std::string &name, uint64_t requests, const Mode &mode);
	bool table();
	uint32_t width();

      private:
	uint64_t same(uint32_t offset, const char *what);
	void write(uint32_t offset, uint64_t value);
	void visible();
	void drain(Result &result);
	void counters(Result &result);

	Card cards_[2];
	std::string name_;
};

uint64_t Comparison::same(uint32_t offset, const char *what)
{
	const uint64_t first = cards_[0].read(offset), second = cards_[1].read(offset);
	if (first == second)
		return first;
	char text[200];
	snprintf(text, sizeof(text), "%s: %s at 0x%x: %s has 0x%" PRIx64 ", %s has 0x%" PRIx64,
		 name_.c_str(), what, offset, cards_[0].kind().c_str(), first,
		 cards_[1].kind().c_str(), second);
	throw std::runtime_error(text);
}

void Comparison::write(uint32_t offset, uint64_t value)
{
	for (auto &card : cards_)
		card.write(offset, value);
}

void Comparison::visible()
{
	for (auto &card : cards_)
		card.snapshot();
	// Cycles differ: accesses to the registers take time in the RTL only.
	for (uint32_t offset = NEOPROF_SNAPSHOT_BUSY_CYCLES; offset <= NEOPROF_SNAPSHOT_DISPLACED;
	     offset += 8)
		same(offset, "statistic");
	for (uint32_t bin = 0; bin < NEOPROF_HISTOGRAM_BIN_COUNT; bin++)
		same(NEOPROF_HISTOGRAM_BIN + bin * NEOPROF_HISTOGRAM_BIN_STRIDE, "histogram bin");
	same(NEOPROF_VENDOR_ERROR_BOUND, "error bound");
	same(NEOPROF_CHMU0_STATUS, "status");
	same(NEOPROF_VENDOR_CONFIG_ERROR, "configuration errors");
}

void Comparison::drain(Result &result)
{
	const uint64_t pointers = same(NEOPROF_CHMU0_HOTLIST, "head and tail");
	const uint64_t slots = NEOPROF_HOTLIST_BYTES / 8;
	uint64_t head = pointers & NEOPROF_CHMU0_HOTLIST_HEAD_MASK;
	const uint64_t tail =
	    (pointers & NEOPROF_CHMU0_HOTLIST_TAIL_MASK) >> NEOPROF_CHMU0_HOTLIST_TAIL_SHIFT;
	for (; head != tail; head = (head + 1) % slots) {
		same(NEOPROF_HOTLIST + static_cast<uint32_t>(8 * head), "hot list entry");
		result.entries++;
	}
	write(NEOPROF_CHMU0_HOTLIST, tail);
}

bool Comparison::table()
{
	return same(NEOPROF_VENDOR_TRACKER, "tracker") & NEOPROF_VENDOR_TRACKER_KIND_MASK;
}

uint32_t Comparison::width()
{
	return 1u << ((same(NEOPROF_VENDOR_GEOMETRY, "geometry") &
		       NEOPROF_VENDOR_GEOMETRY_LOG2_WIDTH_MASK) >>
		      NEOPROF_VENDOR_GEOMETRY_LOG2_WIDTH_SHIFT);
}

void Comparison::counters(Result &result)
{
	const uint32_t counters = width();
	for (unsigned row = 0; row < (table() ? kTableRows : 2); row++) {
		for (uint32_t index = 0; index < counters; index++) {
			const uint32_t first = cards_[0].peek(row, index);
			const uint32_t second = cards_[1].peek(row, index);
			if (first != second) {
				char text[160];
				snprintf(text, sizeof(text),
					 "%s: counter %u of row %u: %s has %u, %s has %u",
					 name_.c_str(), index, row, cards_[0].kind().c_str(), first,
					 cards_[1].kind().c_str(), second);
				throw std::runtime_error(text);
			}
			result.compared++;
			if (row >= 2)
				continue;
			result.sum[row] += first;
			if (row == 0 || !table())
				result.largest = std::max<uint64_t>(result.largest, first);
		}
	}
}

Result Comparison::run(const std::string &name, uint64_t requests, const Mode &mode)
{
	Result result;
	name_ = name + (mode.conservative ? ", conservative" : "") +
		(mode.coalesce ? ", coalesced" : "") + (mode.by_parts ? ", by parts" : "");
	for (auto &card : cards_)
		card.start(30, mode.conservative, mode.coalesce, mode.by_parts);
	const auto stream = make_stream(name, 1);
	std::vector<uint64_t> chunk;
	for (uint64_t done = 0, part = 0; done < requests; done += chunk.size(), part++) {
		chunk.resize(std::min(kChunk, requests - done));
		stream->fill(chunk);
		for (auto &card : cards_)
			card.push(chunk.data(), chunk.size());
		visible();
		// The hot list is left to run full every other time; the threshold changes while
		// counters stand.
		if (part % 2)
			drain(result);
		if (part == 5)
			write(NEOPROF_CHMU0_CFG0, 3 | NEOPROF_CHMU0_CFG0_ENABLE_MASK |
						      12ull << NEOPROF_CHMU0_CFG0_THRESHOLD_SHIFT);
	}
	drain(result);
	visible();
	counters(result);
	result.offered = same(NEOPROF_SNAPSHOT_OFFERED, "offered");
	result.counted = same(NEOPROF_SNAPSHOT_COUNTED, "counted");
	result.reports = same(NEOPROF_SNAPSHOT_REPORTS, "reports");
	result.refused = same(NEOPROF_SNAPSHOT_REPORTS_REFUSED, "refused reports");
	result.saturated = same(NEOPROF_SNAPSHOT_SATURATED, "saturated");
	result.runs = same(NEOPROF_SNAPSHOT_SKIPPED_RUN, "coalesced");
	result.displaced = same(NEOPROF_SNAPSHOT_DISPLACED, "displaced");
	if (result.offered != requests || result.counted + result.runs != requests ||
	    (!mode.coalesce && !mode.by_parts && result.runs))
		throw std::runtime_error(
		    name_ + ": requests were lost: offered " + std::to_string(result.offered) +
		    ", counted " + std::to_string(result.counted) + ", coalesced " +
		    std::to_string(result.runs) + " of " + std::to_string(requests));
	// Without conservative update every request is in both rows, or was seen to saturate; in
	// the table it is in its entry, or has taken one off another or that one's place.
	if (table() ? result.sum[0] > result.counted - result.saturated - result.displaced ||
			  result.sum[0] + 2 * result.displaced + result.saturated < result.counted
		    : !mode.conservative &&
			  result.sum[0] + result.sum[1] + result.saturated != 2 * result.counted)
		throw std::runtime_error(name_ + ": the counters do not add up to the requests");
	if (result.entries != result.reports)
		throw std::runtime_error(name_ + ": hot list entries were lost");
	return result;
}

// Conservative update has its hazards between rows: where rows differ most. Coalescing and parts
// have their own where requests are near each other, in memory and in time.
std::vector<Mode> modes_of(const std::string &name, bool table)
{
	std::vector<Mode> modes = {{false, false, false}};
	if (table) {
		modes.push_back({false, false, true});
		if (name == "runs")
			modes.push_back({false, true, true});
		return modes;
	}
	if (name == "zipf-0.99" || name == "hazards" || name.rfind("same-entry", 0) == 0)
		modes.push_back({true, false, false});
	if (name == "hazards" || name == "runs" || name == "single")
		modes.push_back({true, true, false});
	return modes;
}

int run(int argc, char **argv)
{
	const Library first(argv[1]), second(argv[2]);
	const uint64_t requests = argc > 3 ? strtoull(argv[3], nullptr, 10) : 10000000;
	std::vector<std::string> names(argv + std::min(argc, 4), argv + argc);
	if (names.empty())
		for (const auto &kind : stream_kinds())
			names.push_back(kind.name);
	Comparison comparison(first, second);
	for (const auto &name : names) {
		for (const Mode &mode : modes_of(name, comparison.table())) {
			const Result r = comparison.run(name, requests, mode);
			printf("{\"stream\": \"%s\", \"conservative\": %s, \"coalesce\": %s"
			       ", \"by_parts\": %s, \"requests\": %" PRIu64 ", \"lost\": %" PRIu64
			       ", \"coalesced\": %" PRIu64 ", \"counters_compared\": %" PRIu64
			       ", \"displaced\": %" PRIu64
			       ", \"counters_different\": 0, \"largest_counter\": %" PRIu64
			       ", \"saturated\": %" PRIu64 ", \"hot_entries\": %" PRIu64
			       ", \"reports_refused\": %" PRIu64 "}\n",
			       name.c_str(), mode.conservative ? "true" : "false",
			       mode.coalesce ? "true" : "false", mode.by_parts ? "true" : "false",
			       requests, requests - r.counted - r.runs, r.runs, r.compared,
			       r.displaced, r.largest, r.saturated, r.entries, r.refused);
			fflush(stdout);
		}
	}
	return 0;
}
} // namespace

int main(int argc, char **argv)
{
	if (argc < 3) {
		fprintf(stderr, "usage: np_compare FIRST.so SECOND.so [REQUESTS [STREAM...]]\n");
		return 2;
	}
	try {
		return run(argc, argv);
	} catch (const std::exception &error) {
		fprintf(stderr, "np_compare: %s\n", error.what());
		return 1;
	}
}
