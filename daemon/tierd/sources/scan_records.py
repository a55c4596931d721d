# SPDX-License-Identifier: Apache-2.0
"""What the kernel module's records say of accesses to pages, and of the scans that ended.

A page that was accessed in k of n scans is counted with -ln(1 - k/n) accesses a scan: the
chance that a Poisson stream leaves an interval empty, turned round, as for DAMON's
regions. k = n says only "more than that", and is counted as k = n - 1/2. A PMD-mapped page
has one accessed bit: its count holds for each of its 4 KiB pages, as nothing tells them
apart.

A page that stays hot is reported in one scan of `report_scans`, and its record stands for
so many. One that has become hot was not reported before: its first record stands for the
scans that found it accessed. (For all scans since the first of them would be nearer to the truth
for pages that are seldom touched, and would take more of them for hot by chance.)
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from tierd._native import ffi, lib
from tierd.core.access import AccessBatch, F32Array
from tierd.core.pagekey import VPN_MASK, BoolArray
from tierd.sources.kmod.ring import RecordArray
from tierd.sources.kmod.uapi import HISTORY, SEEN, WHOLE, Kind


def _count_table() -> F32Array:
    """Accesses a scan, float32[history depth, history byte]."""
    depth = np.arange(HISTORY + 1)[:, None]
    share = np.minimum(SEEN[None, :], np.maximum(depth, 1) - 0.5) / np.maximum(depth, 1)
    counts: F32Array = (-np.log1p(-share)).astype(np.float32)
    return counts


COUNTS: Final = _count_table()


def _fresh_table(least: int) -> F32Array:
    """The same for pages that may just have begun to be used.

    Scans before the first that found an access do not count, where `least` are left.
    """
    counts = COUNTS.copy()
    for history in range(1, 1 << HISTORY):
        scans = HISTORY + 1 - (history & -history).bit_length()
        if scans >= least:
            counts[scans:, history] = COUNTS[scans, history]
    return counts


class WarmupState(IntEnum):
    """What may have begun a few scans ago; its value: scans that it takes to report a page."""

    NOTHING = 0
    START = 2
    """Programs began to run."""
    OTHERS = 3
    """Programs use other memory, or pass through it: it takes more scans to find what stays."""


TABLES: Final = {fresh: _fresh_table(fresh) if fresh else COUNTS for fresh in WarmupState}


class ScanRecords:
    """Makes batches of records. `writes`: whether the dirty bits tell writes from reads."""

    def __init__(self, source: str, report_scans: int, *, writes: bool) -> None:
        self._source = source
        self._writes = writes
        # Accesses a record stands for, float32[depth, history], of pages that stay hot and
        # of those that have become hot.
        self._tables = {
            fresh: ((counts * report_scans).astype(np.float32), (counts * SEEN).astype(np.float32))
            for fresh, counts in TABLES.items()
        }
        assert COUNTS.shape == (lib.TIERD_DEPTHS, lib.TIERD_HISTORIES)

    def batch(
        self,
        records: RecordArray,
        now: int,
        *,
        lost: int = 0,
        keep: Callable[[RecordArray], BoolArray] | None = None,
        fresh: WarmupState = WarmupState.NOTHING,
    ) -> AccessBatch:
        """The hot pages among `records`; one that has cooled is told once and has no accesses.

        Args:
            records: `uapi.RECORD`[n].
            now: time of the batch, ns.
            keep: which of them to count if they are hot, bool[n] for records[n]; None counts all.
            fresh: what may just have begun.
        """
        page = np.empty(len(records), np.uint64)
        count = np.empty(len(records), np.float32)
        node = np.empty(len(records), np.int16)
        dirty = np.empty(len(records) if self._writes else 0, np.uint8)
        kept = None if keep is None else keep(records).view(np.uint8)
        found = 0
        stays, becomes = self._tables[fresh]
        if len(records):
            found = lib.tierd_scan_records(
                ffi.from_buffer("struct tierd_hot_record[]", np.ascontiguousarray(records)),
                len(records),
                ffi.NULL if kept is None else ffi.from_buffer("uint8_t[]", kept),
                ffi.from_buffer("float[]", stays),
                ffi.from_buffer("float[]", becomes),
                ffi.from_buffer("uint64_t[]", page),
                ffi.from_buffer("float[]", count),
                ffi.from_buffer("uint8_t[]", dirty) if self._writes else ffi.NULL,
                ffi.from_buffer("int16_t[]", node),
            )
        if found < len(records):
            # What was made room for is not kept.
            page, count, node = page[:found].copy(), count[:found].copy(), node[:found].copy()
        return AccessBatch(
            page=page,
            count=count,
            time_ns=now,
            source=self._source,
            is_write=dirty[:found] != 0 if self._writes else None,
            lost=lost,
            node=node,
        )


class ScanSummary(NamedTuple):
    """What a scan of one target found (struct tierd_record of kind ROUND).

    Attributes:
        newly_hot: pages that became hot and were found by just the last two scans of eight.
        newly_hot_fraction: their share of those that became hot, 0 to 1.
        newly_idle: pages that the three scans before had found in use, and this one did not.
        newly_idle_fraction: their share of those that the three scans before had found in use.
    """

    accessed: int = 0
    newly_hot: int = 0
    newly_hot_fraction: float = 0.0
    newly_idle: int = 0
    newly_idle_fraction: float = 0.0


_PAGES = struct.Struct("=II")


def summaries(records: RecordArray) -> Iterator[ScanSummary]:
    """What the scans that ended found, of `uapi.RECORD`[n]."""
    for at in np.flatnonzero(records["kind"] == Kind.ROUND):
        page, pages, _, _, _, newly_hot_fraction, newly_idle_fraction, _, _ = records[at].item()
        newly_hot, newly_idle = _PAGES.unpack(pages.to_bytes(_PAGES.size, sys.byteorder))
        yield ScanSummary(
            page & VPN_MASK,
            newly_hot,
            newly_hot_fraction / WHOLE,
            newly_idle,
            newly_idle_fraction / WHOLE,
        )
