// SPDX-License-Identifier: Apache-2.0
// Fields of registers, by their masks.
#pragma once

#include <cstdint>

namespace neoprof
{

inline uint64_t field(uint64_t value, uint64_t mask)
{
	return (value & mask) >> __builtin_ctzll(mask);
}

inline uint64_t place(uint64_t value, uint64_t mask)
{
	return value << __builtin_ctzll(mask) & mask;
}

} // namespace neoprof
