# SPDX-License-Identifier: Apache-2.0
"""Batches, places and reports for tests of the heat table."""

from __future__ import annotations

import ctypes
import functools
import math
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tierd._native import ffi
from tierd.core.access import AccessBatch
from tierd.core.migration import Fate, MigrationPlan, MigrationResult
from tierd.hotness.table import HeatTable

S = 10**9
T = 3 << 48
HUGE = 512
ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def _checker() -> Any:
    """The checks of heat_check.c, compiled for what the service's library has in memory."""
    with tempfile.TemporaryDirectory() as folder:
        built = f"{folder}/heat_check.so"
        source = ROOT / "tests/unit/hotness/heat_check.c"
        flags = ["-std=c11", "-O2", "-fPIC", "-shared", f"-I{ROOT / 'daemon/native'}"]
        subprocess.run(["cc", *flags, "-o", built, source], check=True)
        return ctypes.CDLL(built).heat_check


def check(table: HeatTable) -> None:
    """Check the table's counters, tags and probe sequences."""
    handle = int(ffi.cast("uintptr_t", table._heat))
    assert _checker()(ctypes.c_void_p(handle)) == 0


def batch(page: Any, count: Any = 1.0, *, at: int = S, node: Any = None) -> AccessBatch:
    pages = np.asarray(page, np.uint64)
    counts = np.broadcast_to(np.asarray(count, np.float32), pages.shape).copy()
    if node is not None:
        node = np.broadcast_to(np.asarray(node, np.int16), pages.shape).copy()
    return AccessBatch(pages, counts, at, "test", node=node)


def place(table: HeatTable, page: Any, node: Any, order: int = 0, insert_on: Any = ()) -> None:
    pages = np.asarray(page, np.uint64)
    nodes = np.broadcast_to(np.asarray(node, np.int16), pages.shape).copy()
    table.place(pages, nodes, np.full(len(pages), order, np.uint8), insert_on=insert_on)


def report(page: Any, fate: Fate, node: int) -> MigrationResult:
    pages = np.asarray(page, np.uint64)
    n = len(pages)
    plan = MigrationPlan(
        page=pages,
        order=np.zeros(n, np.uint8),
        source=np.zeros(n, np.int16),
        dest=np.full(n, node, np.int16),
        direction=np.zeros(n, np.uint8),
        heat=np.zeros(n, np.float32),
    )
    return MigrationResult(
        plan=plan,
        fate=np.full(n, fate, np.uint8),
        node=np.full(n, node, np.int16),
        errors={},
        moved_bytes=0,
        duration_ns=0,
        cpu_ns=0,
        retries=0,
    )


def table(capacity: int = 10_000, half_life_s: float = 1.0) -> HeatTable:
    return HeatTable(capacity_pages=capacity, half_life_s=half_life_s)


def heat_of(of: HeatTable, key: int) -> float:
    found = of.lookup(key)
    return float(found.heat[0]) if len(found) else math.nan
