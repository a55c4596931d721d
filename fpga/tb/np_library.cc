// SPDX-License-Identifier: Apache-2.0
#include "np_library.h"

#include "neoprof_regs.h"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <stdexcept>

namespace neoprof
{

namespace
{
template <typename Function> void bind(void *handle, const char *name, Function *function)
{
	void *symbol = dlsym(handle, name);
	if (!symbol)
		throw std::runtime_error(std::string("no ") + name +
					 " in the card library: " + dlerror());
	memcpy(function, &symbol, sizeof(symbol));
}
} // namespace

Library::Library(const std::string &path)
{
	void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		throw std::runtime_error("cannot load the card library: " + std::string(dlerror()) +
					 " (build it with make -C fpga build)");
	bind(handle, "np_card_kind", &kind);
	bind(handle, "np_card_open", &open);
	bind(handle, "np_card_close", &close);
	bind(handle, "np_card_push", &push);
	bind(handle, "np_card_read", &read);
	bind(handle, "np_card_write", &write);
	bind(handle, "np_card_settle", &settle);
	bind(handle, "np_card_peek", &peek);
}

Card::Card(const Library &library) : library_(library), card_(library.open(0, 0, 0))
{
	check(card_ ? 0 : -errno, "opening the card", 0);
}

Card::~Card()
{
	library_.close(card_);
}

std::string Card::kind() const
{
	return library_.kind();
}

void Card::check(int err, const char *what, uint32_t where) const
{
	if (!err)
		return;
	char text[160];
	snprintf(text, sizeof(text), "%s card: %s at 0x%x failed: %s", library_.kind(), what, where,
		 strerror(-err));
	throw std::runtime_error(text);
}

void Card::push(const uint64_t *requests, size_t count)
{
	check(library_.push(card_, requests, count), "pushing requests", 0);
}

uint64_t Card::read(uint32_t offset)
{
	uint64_t value;
	check(library_.read(card_, offset, 8, &value), "register read", offset);
	return value;
}

void Card::write(uint32_t offset, uint64_t value)
{
	check(library_.write(card_, offset, 8, value), "register write", offset);
	check(library_.settle(card_), "settling after a write", offset);
}

uint32_t Card::peek(unsigned row, uint32_t index)
{
	uint32_t count;
	check(library_.peek(card_, row, index, &count), "looking at counter", index);
	return count;
}

void Card::start(uint32_t threshold, bool conservative, bool coalesce, bool by_parts)
{
	write(NEOPROF_CHMU0_CFG0, NEOPROF_CHMU0_CFG0_RESET_MASK);
	for (uint32_t offset = 0; offset < NEOPROF_RANGE_BITMAP_BYTES; offset += 8)
		write(NEOPROF_RANGE_BITMAP + offset, ~0ull);
	write(NEOPROF_VENDOR_CONFIG, (conservative ? NEOPROF_VENDOR_CONFIG_CONSERVATIVE_MASK : 0) |
					 (coalesce ? NEOPROF_VENDOR_CONFIG_COALESCE_MASK : 0) |
					 (by_parts ? NEOPROF_VENDOR_CONFIG_BY_PARTS_MASK : 0));
	write(NEOPROF_CHMU0_CFG1, 12 | 1ull << NEOPROF_CHMU0_CFG1_MODE_SHIFT);
	write(NEOPROF_CHMU0_CFG0, 3 | NEOPROF_CHMU0_CFG0_ENABLE_MASK |
				      uint64_t{threshold} << NEOPROF_CHMU0_CFG0_THRESHOLD_SHIFT);
}

void Card::snapshot()
{
	check(library_.settle(card_), "settling", 0);
	write(NEOPROF_VENDOR_COMMAND, NEOPROF_VENDOR_COMMAND_SNAPSHOT_MASK);
}

} // namespace neoprof
