# SPDX-License-Identifier: Apache-2.0
"""Plans for the mover's checks inside a lab guest, and what the kernel says of pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from guest_holder import Holder

from tierd.core.migration import Fate, MigrationPlan, MigrationResult
from tierd.migration import NativeMover
from tierd.workloads.residency import ResidencyScanner

TARGET = 7
FAST_RATE = 10**12
HUGE_PAGES = 512
BALLAST_TRIES = 3

Result = dict[str, Any]


def keys(vpn: int, pages: int, step: int = 1, target: int = TARGET) -> np.ndarray:
    """Keys of every `step`-th of `pages` pages from `vpn` on."""
    return (np.arange(vpn, vpn + pages, step, dtype=np.uint64)) | np.uint64(target << 48)


def plan(
    page: np.ndarray, dest: int | np.ndarray, *, order: int = 0, source: int = 0
) -> MigrationPlan:
    """A plan that moves `page` to `dest`."""
    n = len(page)
    return MigrationPlan(
        page=page,
        order=np.full(n, order, np.uint8),
        source=np.full(n, source, np.int16),
        dest=np.broadcast_to(np.asarray(dest, np.int16), (n,)).copy(),
        direction=np.zeros(n, np.uint8),
        heat=np.zeros(n, np.float32),
    )


def fates(report: MigrationResult) -> dict[str, int]:
    """Number of folios by fate."""
    values, counts = np.unique(report.fate, return_counts=True)
    return {Fate(int(value)).name: int(count) for value, count in zip(values, counts, strict=True)}


def nodes_of(holder: Holder, page: np.ndarray) -> dict[int, int]:
    """Number of pages by node, as the kernel says."""
    node, _ = ResidencyScanner().query(holder.pid, page & np.uint64((1 << 48) - 1))
    values, counts = np.unique(node, return_counts=True)
    return {int(value): int(count) for value, count in zip(values, counts, strict=True)}


class Machine:
    """Where checks move pages.

    Args:
        near, far: nodes: one with CPUs, and another one.
        pages: moves while somebody writes.
    """

    def __init__(self, near: int, far: int, pages: int) -> None:
        self.near = near
        self.far = far
        self.pages = pages

    @staticmethod
    def mover(**options: Any) -> NativeMover:
        """A mover without limits that matter, unless given."""
        return NativeMover(**{"rate_bytes_per_s": FAST_RATE, **options})

    def _ballast(self, leave_bytes: int) -> Holder:
        # A process that takes the far node's free memory but for `leave_bytes`. The kernel ends it
        # if somebody else takes more than that meanwhile; then it is made again.
        path = Path(f"/sys/devices/system/node/node{self.far}/meminfo")
        tries = 0
        while True:
            line = next(each for each in path.read_text().splitlines() if "MemFree:" in each)
            free_bytes = int(line.split()[3]) * 1024
            pages = max(0, free_bytes - leave_bytes) // 4096
            try:
                return Holder(pages, "ballast", node=self.far)
            except json.JSONDecodeError:  # it ended without an answer
                tries += 1
                if tries == BALLAST_TRIES:
                    raise
