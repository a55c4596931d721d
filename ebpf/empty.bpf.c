// SPDX-License-Identifier: GPL-2.0-only
/* Does nothing: what the kernel's own part of a sample costs (benchmarks only). */
#include "dialect.h"

PROGRAM("perf_event") int on_nothing(struct bpf_perf_event_data *ctx)
{
	return 0;
}
