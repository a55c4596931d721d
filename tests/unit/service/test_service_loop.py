# SPDX-License-Identifier: Apache-2.0
"""The control loop with made-up rooms: order, endings, and what a failure does."""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pytest
from fakeheat import ArrayHeat, pages

from tierd.access import AccessBatch, Availability, Domain, WatchedTarget
from tierd.config import loads
from tierd.errors import ExitCode, UnavailableError
from tierd.moves import Fate, MovePlan, MoveReport
from tierd.policy.inputs import NodeUsage
from tierd.policy.watermark import WatermarkPolicy, WatermarkSettings
from tierd.service.loop import Rooms, Service
from tierd.service.selection import SourceSelector
from tierd.service.tick import Calls, TickRecord
from tierd.tiermap import MemoryKind, MemoryNode, Provenance, Quantity, Tier, TierMap

PAGES = 10_000
CONFIG = """
[loop]
tick = "10ms"
cpu = "100%"
[heat]
half_life = "100ms"
"""


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
        self.reports: list[MoveReport] = []

    def advance(self, time_ns: int) -> None:
        pass

    def ingest(self, batch: AccessBatch) -> None:
        self.ingested += len(batch)

    def moved(self, report: MoveReport) -> None:
        self.reports.append(report)


class Tracking:
    """One target; every page has been walked."""

    all_walked = True
    event_fd = -1
    closed = False

    def __init__(self) -> None:
        self.pids = {0: 1}
        self.ticks = 0
        self.on_tick: Callable[[int], None] = lambda count: None

    def refresh(self, now_ns: int) -> bool:
        return False

    def locate(self, max_pages: int) -> int:
        self.ticks += 1
        self.on_tick(self.ticks)
        return 0

    def walk(self, now_ns: int, max_pages: int, insert_on: Collection[int]) -> int:
        return 0

    def watched(self) -> list[WatchedTarget]:
        return []

    def collect(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


class Source:
    name = "made-up"

    def __init__(self) -> None:
        self.ok = True
        self.polls = 0
        self.on_poll: Callable[[int], None] = lambda count: None

    def available(self) -> Availability:
        return Availability(self.ok, "as the test says")

    def watch(self, targets: Sequence[WatchedTarget]) -> None:
        pass

    def poll(self) -> list[AccessBatch]:
        self.polls += 1
        self.on_poll(self.polls)
        if not self.ok:
            raise UnavailableError("gone")
        page = np.array([1], np.uint64)
        return [AccessBatch(Domain.VIRTUAL, page, np.ones(1, np.float32), 0, self.name, lost=2)]

    def close(self) -> None:
        pass


class Mover:
    """Moves everything at once; `stop` is heard."""

    def __init__(self) -> None:
        self.plans: list[MovePlan] = []
        self.stopped = threading.Event()
        self.closed = False
        self.blocks = False

    def execute(self, plan: MovePlan, pids: dict[int, int]) -> MoveReport:
        self.plans.append(plan)
        if self.blocks:
            assert self.stopped.wait(10), "stop was never called"
            return MoveReport.not_tried(plan)
        fate = np.full(len(plan), Fate.MOVED, np.uint8)
        return MoveReport(plan, fate, plan.dest, {}, plan.bytes_planned, 1, 1, 0)

    def stop(self) -> None:
        self.stopped.set()

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

    def __init__(self, tiers: TierMap, *, wait: bool = False, later: TierMap | None = None) -> None:
        self.source, self.mover, self.heat = Source(), Mover(), Heat()
        self.tracking, self.hotplug = Tracking(), Hotplug()
        rooms: Any = Rooms(
            sources=SourceSelector([self.source]),
            tracking=self.tracking,  # type: ignore[arg-type]
            heat=self.heat,  # type: ignore[arg-type]
            policy=WatermarkPolicy(WatermarkSettings()),
            mover=self.mover,  # type: ignore[arg-type]
            read_tiers=lambda: later or tiers,
            read_usage=lambda _: {
                0: NodeUsage(PAGES * 4096, 400 * 4096, 0),
                1: NodeUsage(PAGES * 4096, 9000 * 4096, 0),
            },
            hotplug=self.hotplug,  # type: ignore[arg-type]
        )
        self.seen: list[TickRecord] = []
        self.service = Service(loads(CONFIG), rooms, tiers, wait=wait, observers=[self])

    def on_tick(self, tick: TickRecord) -> None:
        self.seen.append(tick)


def interrupt_at(number: int) -> Callable[[int], None]:
    def on_count(count: int) -> None:
        if count == number:
            os.kill(os.getpid(), signal.SIGTERM)

    return on_count


def test_once_acts_on_a_half_life_of_samples_and_ends():
    bench = Bench(tier_map(118, 430))
    assert bench.service.run(once=True) == ExitCode.OK
    totals = bench.service.totals
    assert totals.samples == bench.heat.ingested >= 2
    assert totals.lost_samples == 2 * totals.samples
    assert len(bench.mover.plans) == len(bench.heat.reports) == 1
    assert totals.promoted_pages == totals.demoted_pages == 50
    assert bench.tracking.closed
    assert bench.mover.closed


def test_one_tier_is_nothing_to_do():
    bench = Bench(tier_map(118))
    assert bench.service.run() == ExitCode.NOTHING_TO_DO
    assert bench.source.polls == 0


def test_one_tier_with_wait_starts_when_a_second_is_plugged_in():
    bench = Bench(tier_map(118), wait=True, later=tier_map(118, 430))
    threading.Timer(0.1, lambda: setattr(bench.hotplug, "pending", True)).start()
    bench.source.on_poll = interrupt_at(2)
    assert bench.service.run() == ExitCode.OK
    assert bench.service.totals.ticks >= 2


def test_sigterm_stops_a_mover_that_is_at_work():
    bench = Bench(tier_map(118, 430))
    bench.mover.blocks = True
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
    before = signal.getsignal(signal.SIGTERM)
    assert bench.service.run() == ExitCode.OK
    assert bench.mover.stopped.is_set()
    assert bench.heat.reports[0].count(Fate.NOT_TRIED) == len(bench.mover.plans[0])
    assert signal.getsignal(signal.SIGTERM) == before


def test_no_source_at_the_start_is_an_error():
    bench = Bench(tier_map(118, 430))
    bench.source.ok = False
    with pytest.raises(UnavailableError, match="as the test says"):
        bench.service.run()
    assert bench.mover.closed


def test_a_source_lost_while_running_leaves_pages_where_they_are(caplog):
    bench = Bench(tier_map(118, 430))

    def on_poll(count: int) -> None:
        bench.source.ok = count < 3

    bench.source.on_poll = on_poll
    bench.tracking.on_tick = interrupt_at(10)
    with caplog.at_level("INFO", "tierd"):
        assert bench.service.run() == ExitCode.OK
    assert bench.source.polls == 3
    assert bench.service.totals.ticks == 10
    assert [r.levelname for r in caplog.records if "no_source" in r.message] == ["ERROR"]


def test_observers_see_what_a_tick_was_made_of():
    bench = Bench(tier_map(118, 430))
    bench.source.on_poll = interrupt_at(3)
    assert bench.service.run() == ExitCode.OK
    assert [t.number for t in bench.seen] == list(range(1, len(bench.seen) + 1))
    first = bench.seen[0]
    assert first.source == "made-up"
    assert [len(batch) for batch in first.batches] == [1]
    assert first.plan is bench.mover.plans[0]
    assert first.report is bench.heat.reports[0]
    assert first.budget is not None
    assert first.time_ns <= first.end_ns
    assert first.usage[0].free_bytes == 400 * 4096


def test_an_observer_that_fails_is_told_no_more_and_the_loop_goes_on(caplog):
    bench = Bench(tier_map(118, 430))
    told = []

    class Broken:
        def on_tick(self, tick: TickRecord) -> None:
            told.append(tick)
            raise OSError("disk full")

    bench.service._observers.insert(0, Broken())
    bench.source.on_poll = interrupt_at(3)
    assert bench.service.run() == ExitCode.OK
    assert len(told) == 1
    assert len(bench.seen) >= 3
    assert "observer_failed" in caplog.text


def test_paused_watches_and_moves_nothing_until_resumed():
    bench = Bench(tier_map(118, 430))
    bench.service.paused = True
    plans_while_paused = []

    def on_poll(count: int) -> None:
        if count == 3:
            plans_while_paused.append(len(bench.mover.plans))
            bench.service.paused = False
        if count == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    bench.source.on_poll = on_poll
    assert bench.service.run() == ExitCode.OK
    assert plans_while_paused == [0]
    assert bench.mover.plans
    assert bench.service.totals.notes["paused"] == 2
    assert bench.seen[0].budget is None


def test_a_call_from_another_thread_runs_between_ticks_in_the_loops_thread():
    bench = Bench(tier_map(118, 430))
    answers: list[object] = []

    def ask() -> None:
        answers.append(bench.service.calls.post(threading.get_ident).result(60))
        broken = bench.service.calls.post(lambda: 1 // 0)
        answers.append(type(broken.exception(60)))
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    assert bench.service.run() == ExitCode.OK
    asking.join(60)
    assert answers == [threading.get_ident(), ZeroDivisionError]


def test_calls_that_nobody_serves_are_bounded_and_refused_at_the_end():
    calls = Calls()
    waiting = [calls.post(dict) for _ in range(Calls.LIMIT)]
    with pytest.raises(queue.Full):
        calls.post(dict)
    calls.refuse("the service is stopping")
    assert all(str(future.exception(0)) == "the service is stopping" for future in waiting)
