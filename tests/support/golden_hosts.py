# SPDX-License-Identifier: Apache-2.0
"""Hosts of golden recordings: one process on two nodes, and the loop that moves its pages.

Time is a number: nothing sleeps, and nothing runs beside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from madeup_host import two_tiers
from madeup_module import FIRST_VPN, MadeUpModule, Pages

from tierd.config.model import Config
from tierd.core import bounds
from tierd.core.access import WatchedRange, WatchedTarget
from tierd.core.migration import Fate, MigrationPlan, MigrationResult
from tierd.core.pagekey import I64Array, U64Array
from tierd.core.tiermap import NodeUsage
from tierd.engine.build import make_fast_path, make_policy
from tierd.engine.components import Components
from tierd.engine.groups import ResidentBytes
from tierd.engine.loop import Service
from tierd.engine.pressure import PressureMonitor
from tierd.observe.recording.recorder import Recorder
from tierd.observe.recording.records import RecordedTarget, RecordingHeat
from tierd.replay.decided import listen, listen_to
from tierd.sources.scan import ScanSource
from tierd.sources.selection import SourceSelector
from tierd.workloads.bounded_reads import BoundedReads

MS, S = 10**6, 10**9
PAGE = 4096
START_NS = 5 * S
WALKED = 200
"""Pages whose place is looked up in a pass."""


class Inline:
    """A worker that is done when it is asked."""

    def submit(self, function: Callable[..., Any], *told: Any) -> Future[Any]:
        """Do it."""
        future: Future[Any] = Future()
        future.set_result(function(*told))
        return future


class Host:
    """One process on two nodes, and the loop; every component but those that decide.

    Args:
        recorder: of the loop.
        config: of the service.
        pages: the process'.
        fast_pages: of the fast node.
    """

    event_fd = -1
    all_walked = True
    reads = BoundedReads()

    def __init__(self, recorder: Recorder, config: Config, pages: Pages, fast_pages: int) -> None:
        self.recorder, self.config, self.pages = recorder, config, pages
        self.capacity = (fast_pages, 4 * pages.count)
        self.tiers = two_tiers(self.capacity)
        self.resident_bytes = ResidentBytes()
        self.targets: Mapping[int, Any] = {}
        self.pids, self.rules = {0: 100}, {0: -1}
        self.skipped = 0
        self._at = 0
        self.heat = RecordingHeat(
            recorder.take,
            # On whatever host it is made.
            capacity_pages=bounds.HEAT_LEAST_BYTES // bounds.HEAT_BYTES_PER_PAGE,
            half_life_s=5.0,
        )
        self.module = MadeUpModule(pages, self.now)

    def mappings(self, target: int) -> U64Array:
        return np.empty((0, 2), np.uint64)

    def leave_alone(self, numbers: frozenset[int]) -> None:
        pass

    @property
    def now(self) -> int:
        """CLOCK_MONOTONIC."""
        raise NotImplementedError

    def serve(self, source: Any, mover: Any, **places: Any) -> None:
        """Make the loop."""
        listen_to([source], self.recorder.journal)
        sources = SourceSelector([source])
        tracking: Any = self
        rooms = Components(
            sources=sources,
            tracking=tracking,
            heat=self.heat,
            policy=make_policy(self.config),
            mover=mover,
            read_tiers=lambda: self.tiers,
            read_usage=lambda tiers: self.usage(),
            hotplug=tracking,
            # The pressure of the host that makes the recording is none of it.
            pressure_monitor=PressureMonitor(Path("/nowhere")),
            fast_path=make_fast_path(self.config, self.heat, tracking, sources, mover, **places),
        )
        observers = [self.recorder]
        self.service = Service(
            self.config, rooms, self.tiers, observers=observers, clock=lambda: self.now
        )
        self.service.work.on_decided = self.recorder.decided
        self.recorder.targets = lambda: [RecordedTarget(0, 100, "job", "/jobs")]
        listen(self.service, self.recorder)

    def run(self, seconds: float, step: Callable[[], bool]) -> None:
        """Passes as the loop makes them; `step` lets 10 ms pass, and says if a pass must come."""
        end = self.now + int(seconds * S)
        service, worker, loop = self.service, Inline(), self.config.loop
        while self.now < end:
            start = self.now
            service.work.run(start, worker, gather=False)  # type: ignore[arg-type]
            until = start + service.pacer.pause_ns(loop, service.components, service.work.last)
            looked = start + loop.interval_ns
            while self.now < until and not step():
                if self.now >= looked and until > start + loop.interval_ns:
                    looked = self.now + 50 * MS
                    if service.pacer.must_tick(service.components, service.work.last, self.now):
                        break

    def usage(self) -> Mapping[int, NodeUsage]:
        """How full the nodes are."""
        used = np.bincount(self.pages.node[: self.pages.live], minlength=2)
        return {
            node: NodeUsage(size * PAGE, max(0, size - int(used[node])) * PAGE, 8 * PAGE)
            for node, size in enumerate(self.capacity)
        }

    # Tracking
    def refresh(self, now_ns: int) -> bool:
        """Count what is where; nothing has changed."""
        self.resident_bytes.begin(0)
        node = self.pages.node[: self.pages.live]
        self.resident_bytes.count(0, node, np.zeros(len(node), np.uint8))
        self.resident_bytes.finish(0)
        return False

    def _place(self, at: Any, insert_on: Sequence[int]) -> int:
        order = np.zeros(len(at), np.uint8)
        self.heat.place(self.pages.key[at], self.pages.node[at], order, insert_on=insert_on)
        return len(at)

    def locate(self, max_pages: int, least: float = -1.0) -> int:
        """Hot pages of unknown node."""
        keys = self.heat.unplaced(min(max_pages, 500))
        return self._place((keys - np.uint64(FIRST_VPN)).astype(np.int64), ())

    def walk(self, now_ns: int, max_pages: int, insert_on: Any) -> int:
        """Some pages in turn."""
        at = (self._at + np.arange(WALKED)) % self.pages.live
        self._at = (self._at + WALKED) % self.pages.live
        return self._place(at, tuple(insert_on))

    def watched(self) -> list[WatchedTarget]:
        """All of the process."""
        ranges = (WatchedRange(FIRST_VPN, FIRST_VPN + self.pages.count),)
        return [WatchedTarget(0, 100, ranges)]

    def movable(self) -> list[tuple[int, int]]:
        """All of it."""
        return self.spans()

    def spans(self) -> list[tuple[int, int]]:
        """All of it may be moved."""
        return [(FIRST_VPN, FIRST_VPN + self.pages.count)]

    def collect(self) -> bool:
        """No events."""
        return False

    def close(self) -> None:
        """Nothing to close."""


class ScanHost(Host):
    """Accessed bits tell of pages, and ticks move them."""

    def __init__(self, recorder: Recorder, config: Config, pages: Pages, fast_pages: int) -> None:
        self._now = START_NS
        super().__init__(recorder, config, pages, fast_pages)
        source = ScanSource(
            clock=lambda: self.now,
            open_control=self.module.open_control,
            open_ring=self.module.open_ring,
        )
        self.source = source
        # (What the module's files would say.)
        source.available = lambda: mock.Mock(ok=True, reason="")  # type: ignore[method-assign]
        self.serve(source, self)

    @property
    def now(self) -> int:
        """CLOCK_MONOTONIC."""
        return self._now

    def step(self) -> bool:
        """10 ms."""
        self._now += 10 * MS
        return self.module.advance(self.now) and self.source.phase_changed()

    def take_calls(self) -> tuple[I64Array, int]:
        """No call of the kernel was made."""
        return np.empty((0, 2), np.int64), 0

    def execute(self, plan: MigrationPlan, pids: Mapping[int, int]) -> MigrationResult:
        """Move most; some are busy."""
        fate = np.full(len(plan), Fate.MOVED, np.uint8)
        fate[self.pages.random.random(len(plan)) < 0.05] = Fate.BUSY
        moved = fate == Fate.MOVED
        node = np.where(moved, plan.dest, plan.source).astype(np.int16)
        self.pages.node[(plan.page - np.uint64(FIRST_VPN)).astype(np.int64)] = node
        busy = int((~moved).sum())
        return MigrationResult(plan, fate, node, {16: busy}, int(moved.sum()) * PAGE, 5, 4, 3)

    def stop(self) -> None:
        """Nothing to stop."""
