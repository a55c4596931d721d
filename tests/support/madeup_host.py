# SPDX-License-Identifier: Apache-2.0
"""A host made of arrays, on which the real loop works: for recordings with known truth.

Pages have nodes, accesses follow a hot set that moves, folios split and join, processes
end, moves fail. All of it is drawn from one seed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tierd.config.model import Config
from tierd.config.whole import loads
from tierd.core import bounds
from tierd.core.access import AccessBatch, AccessSource, Availability, WatchedRange, WatchedTarget
from tierd.core.migration import Fate, MigrationPlan, MigrationResult
from tierd.core.pagekey import I64Array, U64Array, make_keys, target_of, vpn_of
from tierd.core.tiermap import (
    MemoryKind,
    MemoryNode,
    NodeUsage,
    Provenance,
    Quantity,
    Tier,
    TierMap,
)
from tierd.engine.bandwidth import BandwidthMonitor
from tierd.engine.build import make_policy
from tierd.engine.components import Components
from tierd.engine.groups import ResidentBytes
from tierd.engine.loop import Service
from tierd.observe.recording.recorder import Recorder, RecorderStats
from tierd.observe.recording.records import RecordedTarget, RecordingHeat
from tierd.sources.selection import SourceSelector
from tierd.workloads.bounded_reads import BoundedReads
from tierd.workloads.target import Target

KINDS = ((MemoryKind.DRAM, 118.0), (MemoryKind.CXL, 430.0))
START_NS = 5 * 10**9


def two_tiers(pages: Sequence[int]) -> TierMap:
    """A DRAM tier and a CXL tier of so many pages."""
    tiers, nodes = [], {}
    for node, (kind, latency) in enumerate(KINDS):
        figures = (Quantity(latency, Provenance.HMAT), Quantity(1e11, Provenance.DEFAULT))
        size = pages[node] * 4096
        nodes[node] = MemoryNode(node, size, frozenset({node}), kind, *figures, {0: 10, 1: 20})
        tiers.append(Tier(node, kind.value, kind, (node,), size, *figures))
    return TierMap(tuple(tiers), nodes, ("one difference",), ("a note",))


NO_MAPPINGS = np.empty((0, 2), np.uint64)


class MadeUpHost(AccessSource):
    """Processes, their pages, and where those are; every room of the loop but heat and policy."""

    name = "made-up"
    event_fd = -1
    all_walked = True
    reads = BoundedReads()
    not_answering: Sequence[int] = ()
    given_up = 0
    registry = SimpleNamespace(
        left_out=0, unjudged={}, idle_matchers=[], new_processes=SimpleNamespace(dropped=0)
    )

    def __init__(
        self,
        seed: int,
        config: Config,
        *,
        targets: int = 2,
        pages: int = 2000,
        fast_pages: int = 800,
        samples: int = 400,
        trouble: float = 0.1,
        heat_pages: int = 200_000,
        huge: bool = True,
        recorder: Recorder | None = None,
    ) -> None:
        self.random = np.random.default_rng(seed)
        # Of its own, so that accesses do not depend on what is moved.
        self.access_random = np.random.default_rng(seed + 1)
        self.config = config
        self.now = START_NS
        self.samples, self.trouble, self.pages = samples, trouble, pages
        self.capacity = (fast_pages, 4 * targets * pages)
        self.tiers = two_tiers(self.capacity)
        self.resident_bytes = ResidentBytes()
        self.targets: dict[int, Target] = {}
        self.live = dict.fromkeys(range(targets), True)
        self.node: dict[int, Any] = {
            t: np.where(self.random.random(pages) < 0.2, 0, 1).astype(np.int16)
            for t in range(targets)
        }
        self.hot = {t: int(self.random.integers(0, pages)) for t in range(targets)}
        self.huge = {t: bool(self.random.random() < 0.5) and huge for t in range(targets)}
        self.heat = RecordingHeat(
            recorder.take if recorder is not None else lambda op: None,
            capacity_pages=min(
                (config.heat.memory_bytes or bounds.HEAT_LEAST_BYTES) // bounds.HEAT_BYTES_PER_PAGE,
                heat_pages,
            ),
            half_life_s=config.heat.half_life_ns / 1e9,
        )
        self.service = Service(
            config,
            Components(
                sources=SourceSelector([self]),
                tracking=self,  # type: ignore[arg-type]
                heat=self.heat,
                policy=make_policy(config),
                mover=self,  # type: ignore[arg-type]
                read_tiers=lambda: self.tiers,
                read_usage=lambda tiers: self.usage(),
                hotplug=self,  # type: ignore[arg-type]
                loads=None if config.policy.name != "cost" else BandwidthMonitor(self.heat, 5.0),
            ),
            self.tiers,
            observers=[recorder] if recorder is not None else [],
            clock=lambda: self.now,
        )
        if recorder is not None:
            self.service.work.on_decided = recorder.decided
            recorder.targets = lambda: [
                RecordedTarget(t, 100 + t, f"job {t}", "/jobs") for t in self.live if self.live[t]
            ]

    def leave_alone(self, numbers: frozenset[int]) -> None:
        pass

    def run(self, ticks: int) -> None:
        """So many passes of the loop, half a second of made-up time apart."""
        with ThreadPoolExecutor(1) as worker:
            for _ in range(ticks):
                self.now += int(self.config.loop.interval_ns * self.random.uniform(0.9, 1.3))
                self.service.paused = bool(self.random.random() < self.trouble / 4)
                self.service.work.run(self.now, worker, gather=False)
                if self.random.random() < self.trouble:
                    self.hot[int(self.random.integers(len(self.hot)))] = int(
                        self.random.integers(0, self.pages)
                    )

    def usage(self) -> Mapping[int, NodeUsage]:
        """How full the nodes are."""
        used = [sum(int((each == node).sum()) for each in self.node.values()) for node in (0, 1)]
        return {
            node: NodeUsage(self.capacity[node] * 4096,
                            max(0, self.capacity[node] - used[node]) * 4096, 8192)
            for node in (0, 1)
        }  # fmt: skip

    # Tracking

    def mappings(self, target: int) -> U64Array:
        """One mapping has all pages."""
        return np.array([[0, 1 << 40]], np.uint64) if target in self.live else NO_MAPPINGS

    @property
    def pids(self) -> dict[int, int]:
        """Target number → pid."""
        return {t: 100 + t for t, alive in self.live.items() if alive}

    @property
    def rules(self) -> dict[int, int]:
        """Target number → its rule: one after the other, the last target has none."""
        last = len(self.live) - 1
        return {
            t: t % len(self.config.rules) if self.config.rules and t < last else -1
            for t in self.live
        }

    def refresh(self, now_ns: int) -> bool:
        """Now and then a process shrinks, or ends and another takes its number."""
        for target, node in self.node.items():
            self.resident_bytes.begin(target)
            self.resident_bytes.count(target, node, np.zeros(len(node), np.uint8))
            self.resident_bytes.finish(target)
        if self.random.random() < self.trouble / 2:
            self.heat.set_half_life(float(self.random.uniform(0.5, 20.0)))
        if self.random.random() < self.trouble:
            target = int(self.random.integers(len(self.live)))
            if self.random.random() < 0.5:
                self.heat.keep_ranges(target, (WatchedRange(0, self.pages // 2),))
            else:
                self.heat.forget_target(target)
                self.node[target][:] = 1
        return False

    def _where(self, target: int, vpn: Any) -> tuple[Any, Any, Any]:
        node = self.node[target][vpn].copy()
        node[self.random.random(len(node)) < self.trouble / 10] = -2
        order = np.zeros(len(vpn), np.uint8)
        if self.huge[target] and self.random.random() < 0.5:
            order[vpn < 1024] = 9
        return make_keys(target, vpn.astype(np.uint64)), node, order

    def locate(self, max_pages: int, least: float = -1.0) -> int:
        """Some hot pages of unknown node."""
        keys = self.heat.unplaced(min(max_pages, 200))
        for target in np.unique(target_of(keys)).astype(int):
            own = vpn_of(keys[target_of(keys) == target]).astype(np.int64)
            self.heat.place(*self._where(target, own[own < self.pages]), insert_on=())
        return len(keys)

    def walk(self, now_ns: int, max_pages: int, insert_on: Collection[int]) -> int:
        """A chunk of one target."""
        target = int(self.random.integers(len(self.live)))
        first = int(self.random.integers(0, self.pages))
        vpn = np.arange(first, min(self.pages, first + 600))
        self.heat.place(*self._where(target, vpn), insert_on=insert_on)
        return len(vpn)

    def watched(self) -> list[WatchedTarget]:
        """Everything."""
        return []

    def collect(self) -> bool:
        """No events."""
        return False

    # Source
    def available(self) -> Availability:
        """Always."""
        return Availability(True, "made up")

    def watch(self, targets: Sequence[WatchedTarget]) -> None:
        """All is watched."""

    def poll(self) -> list[AccessBatch]:
        """Accesses around each target's hot place, counted, and some anywhere."""
        batches = []
        for target in self.live:
            near = np.abs(self.access_random.normal(0, self.pages / 20, self.samples)).astype(
                np.int64
            )
            vpn = (self.hot[target] + near) % self.pages
            count = self.access_random.integers(1, 30, len(vpn)).astype(np.float32)
            if target % 2:
                count *= self.access_random.random(len(vpn)).astype(np.float32)
            batches.append(
                AccessBatch(
                    make_keys(target, vpn.astype(np.uint64)),
                    count,
                    self.now - int(self.access_random.integers(0, 10**8)),
                    self.name,
                    is_write=self.access_random.random(len(vpn)) < 0.3 if target % 2 else None,
                    lost=int(self.access_random.integers(0, 3)),
                )
            )
        return batches

    # Mover
    def take_calls(self) -> tuple[I64Array, int]:
        """No call of the kernel was made."""
        return np.empty((0, 2), np.int64), 0

    def execute(self, plan: MigrationPlan, pids: Mapping[int, int]) -> MigrationResult:
        """Move most; some are busy, gone or not tried."""
        draw = self.random.random(len(plan))
        fate = np.full(len(plan), Fate.MOVED, np.uint8)
        fate[draw < self.trouble] = Fate.BUSY
        fate[draw < self.trouble / 2] = Fate.GONE
        fate[draw < self.trouble / 4] = Fate.NOT_TRIED
        node = np.where(fate == Fate.MOVED, plan.dest, plan.source).astype(np.int16)
        node[fate == Fate.GONE] = -1
        for index in np.flatnonzero(fate == Fate.MOVED):
            first = int(vpn_of(plan.page[index : index + 1])[0])
            last = first + (1 << int(plan.order[index]))
            self.node[int(target_of(plan.page[index : index + 1])[0])][first:last] = node[index]
        size = np.int64(4096) << plan.order.astype(np.int64)
        moved = int(size[fate == Fate.MOVED].sum())
        return MigrationResult(
            plan, fate, node, {16: int((fate == Fate.BUSY).sum())}, moved, 5, 4, 3
        )

    # Mover and hotplug
    def stop(self) -> None:
        """Nothing to stop."""

    def close(self) -> None:
        """Nothing to close."""


def record(
    path: Path, seed: int, *, text: str = "", ticks: int = 40, limit: int = 1 << 30, **host: Any
) -> tuple[MadeUpHost, RecorderStats]:
    """A recording of a made-up host in `path`."""
    recorder = Recorder(path, limit)
    made = MadeUpHost(seed, loads(text), recorder=recorder, **host)
    made.run(ticks)
    return made, recorder.close()
