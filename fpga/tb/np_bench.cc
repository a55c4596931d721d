// SPDX-License-Identifier: Apache-2.0
// Requests a second of card libraries: np_bench LIBRARY.so...
// Prints wall time and processor time, because a busy machine makes the two differ.
#include "np_library.h"
#include "np_streams.h"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <stdexcept>

using namespace neoprof;

int main(int argc, char **argv)
{
	try {
		printf("%-6s %-12s %10s %14s %14s\n", "card", "stream", "requests", "wall M/s",
		       "processor M/s");
		for (int i = 1; i < argc; i++) {
			const Library library(argv[i]);
			for (const char *name : {"uniform", "zipf-0.99", "single"}) {
				Card card(library);
				card.start(100, false, false, false);
				const bool rtl = card.kind() == "rtl";
				std::vector<uint64_t> requests(rtl ? 4000000 : 20000000);
				make_stream(name, 1)->fill(requests);
				const std::clock_t cpu = std::clock();
				const auto wall = std::chrono::steady_clock::now();
				card.push(requests.data(), requests.size());
				const double wall_s = std::chrono::duration<double>(
							  std::chrono::steady_clock::now() - wall)
							  .count();
				const double cpu_s =
				    static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
				const double millions = static_cast<double>(requests.size()) * 1e-6;
				printf("%-6s %-12s %10zu %14.2f %14.2f\n", card.kind().c_str(),
				       name, requests.size(), millions / wall_s, millions / cpu_s);
			}
		}
	} catch (const std::exception &error) {
		fprintf(stderr, "np_bench: %s\n", error.what());
		return 1;
	}
	return 0;
}
