# SPDX-License-Identifier: Apache-2.0
"""What the records of looks' ends say: how much of what programs use was other memory before."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from tierd._native import ffi, lib
from tierd.core.pagekey import VPN_MASK
from tierd.sources.kmod.ring import RecordArray

WHOLE: Final = 255
"""What the module takes for a share of 1."""


class ScanSummary(NamedTuple):
    """What a look at one target found (struct tierd_record of kind ROUND).

    Attributes:
        accessed: pages in use.
        newly_hot: pages that became hot and were found by just the last two looks of eight.
        newly_hot_fraction: their share of those that became hot, 0 to 1.
        newly_idle: pages that the three looks before had found in use, and this one did not.
        newly_idle_fraction: their share of those that the three looks before had found in use.
    """

    accessed: int = 0
    newly_hot: int = 0
    newly_hot_fraction: float = 0.0
    newly_idle: int = 0
    newly_idle_fraction: float = 0.0


_PAGES = struct.Struct("=II")


def turnovers(records: RecordArray) -> Iterator[ScanSummary]:
    """What the looks that ended found, of `uapi.RECORD`[n]."""
    count = len(records)
    if not count:
        return
    memory = ffi.from_buffer("struct tierd_hot_record[]", np.ascontiguousarray(records))
    at = lib.tierd_scan_ended(memory, count, 0)
    while at < count:
        page, pages, _, _, _, newly_hot_fraction, newly_idle_fraction, _, _ = records[at].item()
        newly_hot, newly_idle = _PAGES.unpack(pages.to_bytes(_PAGES.size, sys.byteorder))
        yield ScanSummary(
            page & VPN_MASK,
            newly_hot,
            newly_hot_fraction / WHOLE,
            newly_idle,
            newly_idle_fraction / WHOLE,
        )
        at = lib.tierd_scan_ended(memory, count, at + 1)
