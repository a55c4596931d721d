# SPDX-License-Identifier: Apache-2.0
"""Steering with a real promoter, mover and heat table; cards and ring are made up.

The pages are this process's own, on the one node it has: records say that they are on
node 1, so that the promoter asks the kernel for them and finds them there already.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from fakecards import FakeCards, card, host
from fakering import FakeRing, hot_records
from policies import watermarks

from tierd.config.model import Config
from tierd.core.access import AccessBatch, Seen, WatchedRange, WatchedTarget
from tierd.core.migration import MigrationResult
from tierd.core.tiermap import (
    MemoryKind,
    MemoryNode,
    NodeUsage,
    Provenance,
    Quantity,
    Tier,
    TierMap,
)
from tierd.engine.fastpath.controller import FastPathController
from tierd.engine.fastpath.thresholds import HotnessThresholdController
from tierd.engine.fastpath.update import FastPathSettings
from tierd.hotness.table import HeatTable
from tierd.migration import NativeMover
from tierd.policy.neomem import NeoMemSettings
from tierd.sources.kmod.ring import Ring
from tierd.sources.kmod.uapi import DEVICE, PARAMETERS
from tierd.sources.neoprof import NeoProfSource
from tierd.sources.selection import SourceSelector

S = 10**9
GIB = 1 << 30
PAGES = 64
LONG_S = 60.0


def two_tiers() -> TierMap:
    tiers, nodes = [], {}
    for rank, (latency, kind) in enumerate(((118, MemoryKind.DRAM), (430, MemoryKind.CXL))):
        figures = (Quantity(latency, Provenance.HMAT), Quantity(1e11, Provenance.HMAT))
        nodes[rank] = MemoryNode(rank, GIB, frozenset(), kind, *figures)
        tiers.append(Tier(rank, str(kind), kind, (rank,), GIB, *figures))
    return TierMap(tuple(tiers), nodes)


class Tracking:
    """This process and one of its ranges."""

    def __init__(self, start: int) -> None:
        self.pids = {0: os.getpid()}
        self.start = start

    def movable(self) -> list[tuple[int, int]]:
        return self.spans()

    def spans(self) -> list[tuple[int, int]]:
        return [(self.start, self.start + PAGES)]


class Scanner:
    """Has scanned often enough."""

    dilution, taught_s = 1.0, 60.0
    aim: float | None = None
    seen: Seen | None = None

    def watch(self, targets: Any) -> None:
        pass

    def poll(self) -> list[AccessBatch]:
        return []

    def progress(self) -> tuple[int, float]:
        return 10, 0.4

    def wake(self) -> None:
        pass

    def pace(self, period_us: int) -> None:
        pass

    def close(self) -> None:
        pass


class Bench:
    def __init__(self, root: Path, mover: Any = None) -> None:
        host(root, {0: (0, 4), 1: (4, 8)})
        for folder in (DEVICE, PARAMETERS):
            (root / folder).parent.mkdir(parents=True, exist_ok=True)
        (root / DEVICE).touch()
        for node in (0, 1):
            text = f"Node {node} MemTotal: 1048576 kB\nNode {node} MemFree: 524288 kB\n"
            (root / f"sys/devices/system/node/node{node}/meminfo").write_text(text)
        self.memory = mmap.mmap(-1, PAGES * mmap.PAGESIZE)
        for page in range(PAGES):
            self.memory[page * mmap.PAGESIZE] = 1
        self.vpn = ctypes.addressof(ctypes.c_char.from_buffer(self.memory)) >> 12
        self.cards = FakeCards(card(0, (512, 1024)))
        self.rings: list[FakeRing] = []
        self.source = NeoProfSource(
            root=root,
            open_cards=self.cards.open,  # type: ignore[arg-type]
            open_ring=self.open_ring,
            make_scan=lambda *_: Scanner(),  # type: ignore[arg-type]
        )
        self.selector = SourceSelector([self.source])
        self.heat = HeatTable(capacity_pages=10_000, half_life_s=5.0)
        self.mover = mover or NativeMover(rate_bytes_per_s=GIB)
        self.tracking = Tracking(self.vpn)
        self.fast_path = FastPathController(
            FastPathSettings(True, 5_000_000, 256_000_000, 5.0, 1.0),
            watermarks(),
            heat=self.heat,
            tracking=self.tracking,  # type: ignore[arg-type]
            sources=self.selector,
            mover=self.mover,
            thresholds=HotnessThresholdController(NeoMemSettings.of(Config()), S),
            open_ring=self.open_ring,
            root=root,
        )
        self.usage = {node: NodeUsage(GIB, GIB // 2, 0) for node in (0, 1)}
        self.heat.advance(time.monotonic_ns())

    def open_ring(self, root: Path, kinds: Any) -> Ring:
        self.rings.append(FakeRing())
        return Ring(self.rings[-1].memory)

    def watch(self) -> None:
        target = WatchedTarget(0, os.getpid(), (WatchedRange(self.vpn, self.vpn + PAGES),))
        self.selector.watch([target], time.monotonic_ns())

    def tick(self, report: MigrationResult | None = None, **more: Any) -> MigrationResult | None:
        now = time.monotonic_ns()
        between = self.fast_path.begin(now)
        self.fast_path.end(now, two_tiers(), self.usage, report, phase_age_s=0.0, **more)
        return between

    def put(self, pages: range, count: int = 40) -> None:
        records = hot_records(
            np.array(pages, np.uint64) + np.uint64(self.vpn), count, time.monotonic_ns()
        )
        self.rings[-1].put(records)

    def until_read(self) -> None:
        end = time.monotonic() + LONG_S
        while self.rings[-1].unread:
            assert time.monotonic() < end, "the promoter does not read"
            time.sleep(0.002)
