# SPDX-License-Identifier: Apache-2.0
"""Sampled cache misses of a lab machine as an access source: stands for PEBS in raw mode.

The lab's plugin samples one in `period` misses of each node (NPW_SAMPLES_* of
fpga/include/neoprof_window.h) into a ring that the guest maps. Samples are in the order of
time, with a page and whether it was a store, as those of a PMU are.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence

import numpy as np
from card_window import BYTES, find_device

from tierd.core.access import AccessBatch, AccessSource, Availability, WatchedTarget
from tierd.core.pagekey import make_keys

SLOTS = 4096


class WindowSource(AccessSource):
    """An `AccessSource`; see the module's text."""

    name = "pmu"  # what it stands for; the configuration knows no other

    lines_per_count = 0.0

    def __init__(self, period: int) -> None:
        fd = os.open(find_device(), os.O_RDWR | os.O_SYNC)
        self._map = mmap.mmap(fd, 128 << 10, mmap.MAP_SHARED)
        os.close(fd)
        self._words = np.frombuffer(self._map, np.uint32)
        self._quads = np.frombuffer(self._map, np.uint64)
        self._tail = self._head()
        self._targets: Sequence[WatchedTarget] = ()
        self.lines_per_count = float(period)
        self.taken = self.lost = 0
        self._words[BYTES // 4] = period

    def _head(self) -> int:
        return int(self._quads[(BYTES + 8) // 8])

    def available(self) -> Availability:
        """Always: the window was mapped."""
        return Availability(True, "the lab samples misses")

    def watch(self, targets: Sequence[WatchedTarget]) -> None:
        """Take samples in the ranges of these."""
        self._targets = targets

    def poll(self) -> list[AccessBatch]:
        """What was sampled since the last time."""
        head = self._head()
        lost = max(0, head - self._tail - SLOTS)
        at = np.arange(self._tail + lost, head) % SLOTS + (BYTES + 0x40) // 8
        self._tail = head
        words = self._quads[at]
        page = words >> np.uint64(8)
        target = np.full(len(page), -1, np.int64)
        for each in self._targets:
            for part in each.ranges:
                inside = (page >= np.uint64(part.start)) & (page < np.uint64(part.end))
                target[inside] = each.target
        known = target >= 0
        self.taken += len(words)
        self.lost += lost
        if not known.any() and not lost:
            return []
        keys = make_keys(0, page[known]) | target[known].astype(np.uint64) << np.uint64(48)
        return [
            AccessBatch(
                keys,
                np.ones(len(keys), np.float32),
                time.monotonic_ns(),
                self.name,
                (words[known] & np.uint64(1)).astype(np.bool_),
                lost,
                ordered=True,
            )
        ]

    def close(self) -> None:
        """Sample no more."""
        self._words[BYTES // 4] = 0
