// SPDX-License-Identifier: Apache-2.0
// Edges of the histogram's bins, see np_pkg.sv.
#include "np_sketch_model.h"

namespace neoprof
{

namespace
{
unsigned group_of(uint32_t value)
{
	const unsigned top = 31u - static_cast<unsigned>(__builtin_clz(value + 8));
	return top - 3;
}
} // namespace

unsigned hist_bin(uint32_t value)
{
	const unsigned group = group_of(value);
	if (group >= 8)
		return kBins - 1;
	return 8 * group + (((value + 8) >> group) & 7);
}

bool hist_is_edge(uint32_t value)
{
	const unsigned group = group_of(value);
	return group < 8 && ((value + 8) & ((1u << group) - 1)) == 0;
}

uint32_t hist_low(unsigned bin)
{
	return ((8 + bin % 8) << (bin / 8)) - 8;
}

uint32_t hist_high(unsigned bin)
{
	return bin + 1 == kBins ? kCountMax : hist_low(bin + 1) - 1;
}

} // namespace neoprof
