// SPDX-License-Identifier: GPL-2.0-only
/* Makes the tracepoints that trace.h declares. */
#define CREATE_TRACE_POINTS
#include "trace.h"

EXPORT_TRACEPOINT_SYMBOL_GPL(neoprof_drain);
