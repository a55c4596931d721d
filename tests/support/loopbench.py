# SPDX-License-Identifier: Apache-2.0
"""A service with made-up rooms: what the loop does is seen in what they were told."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
from fakeheat import ArrayHeat, pages
from policies import watermarks

from tierd.config.model import Config
from tierd.config.whole import loads
from tierd.core.access import (
    AccessBatch,
    AccessSource,
    Availability,
    EventDrivenSource,
    F32Array,
    Seen,
    WatchedTarget,
)
from tierd.core.errors import UnavailableError
from tierd.core.migration import Fate, MigrationPlan, MigrationResult, U8Array
from tierd.core.pagekey import PAGE_SIZE, I16Array, I64Array, U64Array
from tierd.core.tiermap import (
    MemoryKind,
    MemoryNode,
    NodeUsage,
    Provenance,
    Quantity,
    Tier,
    TierMap,
)
from tierd.engine.components import ComponentFactory, Components
from tierd.engine.groups import ResidentBytes
from tierd.engine.loop import Service
from tierd.engine.pressure import CgroupPressureMonitor, PressureMonitor
from tierd.engine.process import needed
from tierd.hotness.view import HeatStats
from tierd.observe.tick_record import TickRecord
from tierd.policy.watermark import WatermarkPolicy
from tierd.sources.selection import SourceSelector
from tierd.workloads.bounded_reads import BoundedReads
from tierd.workloads.target import Target

PAGES = 10_000
FREE = watermarks().high_watermark
"""Of the fast node: what comes in has something leave."""
CONFIG = """
[loop]
interval = "10ms"
cpu_limit = "100%"
[heat]
half_life = "100ms"
"""
HALF_LIFE_S = 0.1


def tier_map(*latencies: float) -> TierMap:
    tiers, nodes = [], {}
    for rank, latency in enumerate(latencies):
        figures = (Quantity(latency, Provenance.HMAT), Quantity(1e11, Provenance.HMAT))
        kind = MemoryKind.CXL if rank else MemoryKind.DRAM
        nodes[rank] = MemoryNode(rank, PAGES * 4096, frozenset(), kind, *figures)
        tiers.append(Tier(rank, str(kind), kind, (rank,), PAGES * 4096, *figures))
    return TierMap(tuple(tiers), nodes)


class Heat(ArrayHeat):
    """An array heat that also takes what the loop gives."""

    def __init__(self) -> None:
        super().__init__(pages((500, 0, 0), (50, 90, 1)))
        self.ingested = 0
        self.reports: list[MigrationResult] = []
        self.half_lives: list[float] = []

    def stats(self) -> HeatStats:
        return HeatStats(2, 0, PAGES, 24 * PAGES, self.ingested, 3, 0, 0, {"full": 4})

    @property
    def half_life_s(self) -> float:
        return self.half_lives[-1] if self.half_lives else HALF_LIFE_S

    def of(self, page: U64Array) -> tuple[F32Array, float]:
        return np.zeros(len(page), np.float32), 2.5

    def set_half_life(self, half_life_s: float) -> None:
        self.half_lives.append(half_life_s)

    def advance(self, time_ns: int) -> None:
        pass

    def ingest(self, batch: AccessBatch) -> None:
        self.ingested += len(batch)

    def moved(self, report: MigrationResult) -> None:
        self.reports.append(report)


class Tracking:
    """One target; every page has been walked."""

    all_walked = True
    closed = False
    reads = BoundedReads()
    not_answering: Sequence[int] = ()
    given_up = 0
    registry = SimpleNamespace(
        left_out=5, unjudged={}, idle_matchers=[], new_processes=SimpleNamespace(dropped=0)
    )

    def __init__(self) -> None:
        self.pids = {0: 1}
        self.ticks = 0
        self.on_tick: Callable[[int], object] = lambda count: None
        self.configured: list[tuple[object, ...]] = []
        self.targets = {0: Target(0, 1, 1, -1, "init", "/init.scope", 0, 1 << 20)}
        self.skipped = Counter({"not anonymous": 6})
        self.rules = {0: 0}
        self.resident_bytes = ResidentBytes()
        self.places: dict[int, int] = {}

    def mappings(self, target: int) -> U64Array:
        return np.empty((0, 2), np.uint64)

    def leave_alone(self, numbers: frozenset[int]) -> None:
        pass

    def configure(self, *settings: object) -> None:
        self.configured.append(settings)

    def refresh(self, now_ns: int) -> bool:
        return False

    def locate(self, max_pages: int, least: float = -1.0) -> int:
        self.ticks += 1
        self.on_tick(self.ticks)
        return 0

    def walk(self, now_ns: int, max_pages: int, insert_on: Collection[int]) -> int:
        return 0

    def where(self, keys: U64Array) -> tuple[I16Array, U8Array]:
        """Where the mover has put pages."""
        nodes = [self.places.get(int(key), -1) for key in keys]
        return np.array(nodes, np.int16), np.zeros(len(keys), np.uint8)

    def watched(self) -> list[WatchedTarget]:
        return []

    def collect(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


class Source(AccessSource):
    seen: Seen | None = None
    left_out: int | None = None
    unwatched: int | None = None
    passed_over: int | None = None
    untracked: Mapping[str, int] = MappingProxyType({})

    def __init__(self, name: str = "made-up") -> None:
        self.name = name
        self.ok = True
        self.closed = 0
        self.on_close: Callable[[], object] = lambda: None
        self.watched: Sequence[WatchedTarget] = ()
        self.polls = 0
        self.on_poll: Callable[[int], object] = lambda count: None

    def available(self) -> Availability:
        return Availability(self.ok, "as the test says")

    def watch(self, targets: Sequence[WatchedTarget]) -> None:
        self.watched = targets

    def poll(self) -> list[AccessBatch]:
        self.polls += 1
        self.on_poll(self.polls)
        if not self.ok:
            raise UnavailableError("gone")
        page = np.array([1], np.uint64)
        return [AccessBatch(page, np.ones(1, np.float32), 0, self.name, lost=2)]

    def close(self) -> None:
        self.closed += 1
        self.on_close()


class ScanningSource(Source, EventDrivenSource):
    backlog = 0.0
    dilution = 1.0
    learning_ns = phase_change_ns = 0
    phase_change_fd = -1
    changed: Callable[[], bool] = staticmethod(lambda: False)

    def phase_changed(self) -> bool:
        return self.changed()


class Mover:
    """Moves everything at once; `stop` is heard."""

    def __init__(self) -> None:
        self.plans: list[MigrationPlan] = []
        self.taken = 0
        self.stopped = threading.Event()
        self.closed = False
        self.blocks = False
        self.settings: list[tuple[str, float]] = []

    def set_rate(self, rate_bytes_per_s: int) -> None:
        self.settings.append(("rate", rate_bytes_per_s))

    def set_limits(self, *, busy_retries: int, cpu_share: float) -> None:
        self.settings += [("retries", busy_retries), ("cpu", cpu_share)]

    def take_calls(self) -> tuple[I64Array, int]:
        """Each plan was one call, of 2 us for each of its pages."""
        pages = [plan.bytes_planned // PAGE_SIZE for plan in self.plans[self.taken :]]
        self.taken = len(self.plans)
        return np.array([(2000 * n, n) for n in pages if n], np.int64).reshape(-1, 2), 0

    def execute(self, plan: MigrationPlan, pids: dict[int, int]) -> MigrationResult:
        self.plans.append(plan)
        if self.blocks:
            assert self.stopped.wait(10), "stop was never called"
            return MigrationResult.not_tried(plan)
        fate = np.full(len(plan), Fate.MOVED, np.uint8)
        return MigrationResult(plan, fate, plan.dest, {}, plan.bytes_planned, 1, 1, 0)

    def stop(self) -> None:
        self.stopped.set()

    def resume(self) -> None:
        self.stopped.clear()

    def close(self) -> None:
        self.closed = True


class Hotplug:
    def __init__(self) -> None:
        self.pending = False

    def fileno(self) -> int:
        return -1

    def changed(self) -> bool:
        pending, self.pending = self.pending, False
        return pending

    def close(self) -> None:
        pass


class Bench:
    """A service and the rooms it was given."""

    def __init__(
        self,
        tiers: TierMap,
        *,
        wait: bool = False,
        later: TierMap | None = None,
        steering: Any = None,
        source: Source | None = None,
    ) -> None:
        self.source, self.mover, self.heat = source or Source(), Mover(), Heat()
        self.tracking, self.hotplug = Tracking(), Hotplug()
        made: Any = (self.tracking, self.heat, self.mover, self.hotplug)
        tracking, heat, mover, hotplug = made
        rooms: Any = Components(
            sources=SourceSelector([self.source]),
            tracking=tracking,
            heat=heat,
            policy=WatermarkPolicy(watermarks()),
            mover=mover,
            read_tiers=lambda: later or tiers,
            read_usage=lambda _: {
                0: NodeUsage(PAGES * 4096, int(FREE * PAGES) * 4096, 0),
                1: NodeUsage(PAGES * 4096, 9000 * 4096, 0),
            },
            hotplug=hotplug,
            pressure_monitor=PressureMonitor(Path("/nowhere")),
            cgroup_pressure=CgroupPressureMonitor(Path("/nowhere")),
            fast_path=steering,
        )
        self.seen: list[TickRecord] = []
        self.fresh: dict[str, Source] = {}
        """Sources that a reload makes, by name."""
        self.lacks: frozenset[str] = frozenset()
        """Capabilities that the loop has not."""
        makers = ComponentFactory(
            policy=lambda config: WatermarkPolicy(watermarks(margin=config.policy.hysteresis)),
            sources=self._make_sources,
            read_tiers=lambda config: lambda: later or tiers,
            lacking=lambda config: self.lacks & needed(config),
        )
        self.service = Service(
            loads(CONFIG), rooms, tiers, wait=wait, observers=[self], factory=makers
        )

    def _make_sources(self, config: Config) -> list[Source]:
        return [self.fresh.setdefault(name, Source(name)) for name in config.sources.order]

    def on_tick(self, tick: TickRecord) -> None:
        self.seen.append(tick)


def interrupt_at(number: int) -> Callable[[int], None]:
    def on_count(count: int) -> None:
        if count == number:
            os.kill(os.getpid(), signal.SIGTERM)

    return on_count
