# SPDX-License-Identifier: Apache-2.0
"""Has the kernel page out memory of other processes: process_madvise(2), MADV_PAGEOUT."""

from __future__ import annotations

from collections.abc import Sequence

from tierd._native import ffi, lib


def page_out(pid: int, runs: Sequence[tuple[int, int]]) -> int:
    """Page out runs [start, end) of page numbers of a process.

    Locked mappings are refused. Single pages that others map as well, or that are busy, stay where
    they are, and nothing tells. An agent makes the call, so that it can be given up.

    Returns:
        Bytes that were advised, or a negative errno where none were.
    """
    spans = ffi.new("struct tierd_span[]", [{"start": start, "end": end} for start, end in runs])
    return int(lib.tierd_advise(pid, spans, len(runs), lib.TIERD_ADVICE_PAGE_OUT))
