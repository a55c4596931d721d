// SPDX-License-Identifier: Apache-2.0
// Loads a card library, so that one program can hold the RTL and the model.
#pragma once

#include "neoprof_card.h"

#include <string>

namespace neoprof
{

struct Library {
	explicit Library(const std::string &path); // throws std::runtime_error

	decltype(&np_card_kind) kind;
	decltype(&np_card_open) open;
	decltype(&np_card_close) close;
	decltype(&np_card_push) push;
	decltype(&np_card_read) read;
	decltype(&np_card_write) write;
	decltype(&np_card_settle) settle;
	decltype(&np_card_peek) peek;
};

// A card of a library; every failure is a std::runtime_error that says what was tried.
class Card
{
      public:
	explicit Card(const Library &library);
	~Card();
	Card(const Card &) = delete;
	Card &operator=(const Card &) = delete;

	std::string kind() const;
	void push(const uint64_t *requests, size_t count);
	uint64_t read(uint32_t offset);
	void write(uint32_t offset, uint64_t value); // and settles
	uint32_t peek(unsigned row, uint32_t index);
	// All ranges, both request types, always-on mode.
	void start(uint32_t threshold, bool conservative, bool coalesce, bool by_parts);
	void snapshot();

      private:
	void check(int err, const char *what, uint32_t where) const;
	const Library &library_;
	np_card *card_;
};

} // namespace neoprof
