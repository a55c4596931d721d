# SPDX-License-Identifier: Apache-2.0
"""The control loop with made-up rooms: order, endings, and what a failure does."""

from __future__ import annotations

import dataclasses
import io
import logging
import os
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loopbench import FREE, PAGES, Bench, interrupt_at, tier_map

from tierd.core import bounds
from tierd.core.errors import ExitCode, UnavailableError
from tierd.core.migration import Fate, MigrationPlan, MigrationResult, SplitFate
from tierd.engine.pressure import CgroupPressureMonitor
from tierd.engine.wakeups import EventPoller, LoopExecutor
from tierd.observe.tick_record import TickRecord
from tierd.policy.inputs import Inputs, Policy


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


def test_once_ends_where_no_sample_comes():
    """It decides after some half-lives, says so, and moves by what else is known."""
    bench = Bench(tier_map(118, 430))
    bench.source.poll = lambda: []  # type: ignore[method-assign]
    assert bench.service.run(once=True) == ExitCode.OK
    waited = bench.seen[-1].time_ns - bench.seen[0].time_ns
    half_life_ns = bench.service.config.heat.half_life_ns
    assert waited >= bounds.ONCE_HALF_LIVES * half_life_ns
    assert [tick.budget is not None for tick in bench.seen] == [False] * (len(bench.seen) - 1) + [
        True
    ]
    assert bench.service.totals.samples == 0


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


def test_a_second_tier_that_goes_and_comes_again_is_waited_for(caplog: pytest.LogCaptureFixture):
    """Memory is offlined while the service runs: it ended for good with exit status 4."""
    both, one = tier_map(118, 430), tier_map(118)
    bench = Bench(both)
    tiers = iter([one, both])
    bench.service.work.components = dataclasses.replace(
        bench.service.components, read_tiers=lambda: next(tiers)
    )
    waits = threading.Event()

    def gone(count: int) -> None:
        if count == 1:
            bench.hotplug.pending = True
            threading.Timer(0.2, come_again).start()
        interrupt_at(3)(count)

    def come_again() -> None:
        assert len(bench.service.tiers.tiers) == 1
        waits.set()
        bench.hotplug.pending = True

    bench.source.on_poll = gone
    with caplog.at_level(logging.WARNING):
        assert bench.service.run() == ExitCode.OK
    assert waits.is_set()
    assert bench.service.totals.ticks >= 3
    assert len([r for r in caplog.records if "event=waiting" in r.getMessage()]) == 1


def test_sigterm_stops_a_mover_that_is_at_work():
    bench = Bench(tier_map(118, 430))
    bench.mover.blocks = True
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
    before = signal.getsignal(signal.SIGTERM)
    assert bench.service.run() == ExitCode.OK
    assert bench.mover.stopped.is_set()
    assert bench.heat.reports[0].count(Fate.NOT_TRIED) == len(bench.mover.plans[0])
    assert signal.getsignal(signal.SIGTERM) == before


def test_after_sigterm_nothing_begins_that_may_wait_for_an_answer(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """Files of stuck processes are read in each of these; the read in hand is all that is waited
    for, and the log tells how many were."""
    bench = Bench(tier_map(118, 430))
    begun: list[str] = []

    def refresh(now_ns: int) -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        bench.tracking.given_up += 1
        return True

    for name in ("locate", "walk", "watched", "collect", "where"):
        monkeypatch.setattr(bench.tracking, name, lambda *_, name=name: begun.append(name))
    monkeypatch.setattr(bench.tracking, "refresh", refresh)
    bench.tracking.given_up = 7
    with caplog.at_level(logging.INFO, "tierd.engine"):
        assert bench.service.run() == ExitCode.OK
    assert begun == []
    assert bench.mover.plans == []
    stopped = [r.getMessage() for r in caplog.records if "event=stopped" in r.getMessage()]
    assert len(stopped) == 1
    assert stopped[0].startswith("event=stopped given_up=1 seconds=")


def test_after_sigterm_in_a_pause_nothing_begins_that_may_wait(monkeypatch: pytest.MonkeyPatch):
    bench = Bench(tier_map(118, 430))
    begun: list[str] = []
    wait = EventPoller.wait

    def interrupted(poller: EventPoller, seconds: float) -> tuple[bool, bool, bool]:
        monkeypatch.setattr(bench.tracking, "collect", lambda: begun.append("collect"))
        monkeypatch.setattr(bench.tracking, "refresh", lambda _: begun.append("refresh"))
        os.kill(os.getpid(), signal.SIGTERM)
        wait(poller, seconds)
        return True, False, True

    monkeypatch.setattr(EventPoller, "wait", interrupted)
    monkeypatch.setattr(bench.service, "_between", bench.service.manager.beat)
    assert bench.service.run() == ExitCode.OK
    assert begun == []


def test_sigterm_in_the_middle_of_a_write_to_stderr_is_logged_after_it(monkeypatch):
    class Interrupted(io.RawIOBase):
        """As write(2) on a pipe: Python looks for signals before it is back from the buffer."""

        taken = b""

        def writable(self) -> bool:
            return True

        def write(self, data: Any, /) -> int:
            if b"in the middle" in bytes(data) and b"middle" not in self.taken:
                signal.raise_signal(signal.SIGTERM)
            self.taken += bytes(data)
            return len(bytes(data))

    raw = Interrupted()
    stream = io.TextIOWrapper(io.BufferedWriter(raw), line_buffering=True)
    monkeypatch.setattr(sys, "stderr", stream)
    handler = logging.StreamHandler(stream)
    logger = logging.getLogger("tierd")
    monkeypatch.setattr(logger, "handlers", [handler])
    level = logger.level
    logger.setLevel(logging.INFO)
    bench = Bench(tier_map(118, 430))
    bench.source.on_poll = lambda _count: logging.getLogger("tierd.test").warning("in the middle")
    try:
        assert bench.service.run() == ExitCode.OK
    finally:
        logger.setLevel(level)
    lines = raw.taken.decode().splitlines()
    assert lines.count("in the middle") == 1
    assert "event=stopping signal=SIGTERM" in lines
    assert not [line for line in lines if "Traceback" in line or "Logging error" in line]


def test_sources_are_read_while_the_mover_works():
    bench = Bench(tier_map(118, 430))
    bench.mover.blocks = True
    polls_at_work = []

    def on_poll(count: int) -> None:
        if bench.mover.plans and not bench.mover.stopped.is_set():
            polls_at_work.append(count)
            if len(polls_at_work) == 2:
                bench.mover.stopped.set()
        elif polls_at_work:
            os.kill(os.getpid(), signal.SIGTERM)

    bench.source.on_poll = on_poll
    assert bench.service.run() == ExitCode.OK
    assert len(polls_at_work) == 2
    assert len(bench.seen[1].batches) >= 3
    assert bench.heat.ingested == bench.service.totals.samples == bench.source.polls


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


def test_companions_live_as_long_as_the_loop():
    bench = Bench(tier_map(118, 430))
    seen: list[tuple[str, int]] = []

    class Beside:
        name = "beside"

        def start(self) -> None:
            seen.append(("start", bench.service.totals.ticks))
            raise UnavailableError("not here")  # which must not matter

        def close(self) -> None:
            seen.append(("close", bench.service.totals.ticks))

    bench.service.work.components = dataclasses.replace(
        bench.service.work.components, background=(Beside(),)
    )
    bench.source.on_poll = interrupt_at(3)
    assert bench.service.run() == ExitCode.OK
    assert seen == [("start", 0), ("close", 3)]


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
    assert first.usage[0].free_bytes == int(FREE * PAGES) * 4096


def test_an_observer_that_fails_is_told_no_more_and_the_loop_goes_on(caplog):
    bench = Bench(tier_map(118, 430))
    told = []

    class Broken:
        def on_tick(self, tick: TickRecord) -> None:
            told.append(tick)
            raise OSError("disk full")

    bench.service.work.observers.insert(0, Broken())
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


def test_a_resumed_service_does_not_wait_for_the_end_of_a_long_interval():
    bench = Bench(tier_map(118, 430))
    service, hour_ns = bench.service, 3600 * 10**9
    service.work.config = dataclasses.replace(
        service.config, loop=dataclasses.replace(service.config.loop, interval_ns=hour_ns)
    )
    service.paused = True
    askers: list[threading.Thread] = []

    def resume() -> None:
        service.calls.post(lambda: setattr(service, "paused", False)).result(60)

    class Observer:
        def on_tick(self, tick: TickRecord) -> None:
            if not askers:
                askers.append(threading.Thread(target=resume))
                askers[0].start()
            else:
                os.kill(os.getpid(), signal.SIGTERM)

    service.observe(Observer())
    alarm = threading.Timer(60, os.kill, (os.getpid(), signal.SIGTERM))
    alarm.start()
    try:
        assert service.run() == ExitCode.OK
    finally:
        alarm.cancel()
    askers[0].join(60)
    assert bench.mover.plans


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
    calls = LoopExecutor()
    waiting = [calls.post(dict) for _ in range(LoopExecutor.LIMIT)]
    with pytest.raises(queue.Full):
        calls.post(dict)
    calls.refuse("the service is stopping")
    assert all(str(future.exception(0)) == "the service is stopping" for future in waiting)


class FastPathController:
    """Writes down when it is called; between two ticks it has moved five pages up."""

    promotes = settled = False
    exchanged: frozenset[int] = frozenset()
    stats = staticmethod(lambda: None)

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.paused: list[bool] = []

    def listen(self) -> None:
        self.calls.append("listen")

    def restart_epoch(self, now_ns: int) -> bool:
        self.calls.append("restart_epoch")
        return True

    def prepare(self, tiers: Any, read_usage: Any) -> None:
        self.calls.append("prepare")

    def begin(self, now_ns: int) -> MigrationResult:
        self.calls.append("begin")
        plan = MigrationPlan(
            page=np.arange(5, dtype=np.uint64),
            order=np.zeros(5, np.uint8),
            source=np.ones(5, np.int16),
            dest=np.zeros(5, np.int16),
            direction=np.ones(5, np.uint8),
            heat=np.ones(5, np.float32),
        )
        fate = np.full(5, Fate.MOVED, np.uint8)
        return MigrationResult(plan, fate, plan.dest, {}, plan.bytes_planned, 1, 1, 0)

    def allow(self, plan: MigrationPlan) -> MigrationPlan:
        self.calls.append("allow")
        return plan

    def end(
        self,
        now_ns: int,
        tiers: Any,
        usage: Any,
        report: Any,
        *,
        phase_age_s: float,
        paused: bool,
        groups: Any,
    ) -> None:
        self.calls.append("end")
        self.paused.append(paused)
        assert phase_age_s >= 0

    def tell(self, totals: Any) -> None:
        totals.ping_pong_pages = 3

    def close(self) -> None:
        self.calls.append("close")


def test_the_native_path_is_steered_once_a_tick_and_its_moves_are_counted():
    steering = FastPathController()
    bench = Bench(tier_map(118, 430), steering=steering)
    bench.source.on_poll = interrupt_at(3)
    assert bench.service.run() == ExitCode.OK
    ticks = bench.service.totals.ticks
    assert ticks >= 2
    assert steering.calls == [
        *["listen", "restart_epoch", "prepare", "begin", "allow", "end"] * ticks,
        "close",
    ]
    assert steering.paused[0] is False
    totals = bench.service.totals
    own = sum(report.count(Fate.MOVED) for report in bench.heat.reports)
    assert totals.fates["moved"] == own + 5 * ticks
    assert totals.as_json()["ping_pong_pages"] == 3
    assert all(tick.between is not None for tick in bench.seen)


def test_moves_of_the_native_path_have_their_control_groups_pressure_read(tmp_path: Path) -> None:
    folder = tmp_path / "init.scope"
    folder.mkdir()
    (folder / "cpu.pressure").write_text("some avg10=99.00 avg60=0.00 avg300=0.00 total=1\n")
    bench = Bench(tier_map(118, 430), steering=FastPathController())
    bench.service.work.components = dataclasses.replace(
        bench.service.components, cgroup_pressure=CgroupPressureMonitor(tmp_path)
    )
    bench.source.on_poll = interrupt_at(1)
    bench.service.run()
    # Before any tick moved a page.
    groups = bench.seen[0].groups
    assert groups is not None
    assert groups.of_target.tolist() == [0]


def test_a_paused_service_holds_the_native_path():
    steering = FastPathController()
    bench = Bench(tier_map(118, 430), steering=steering)
    bench.service.paused = True
    bench.source.on_poll = interrupt_at(2)
    bench.service.run()
    assert set(steering.paused) == {True}
    assert "prepare" not in steering.calls


def test_splits_are_carried_out_without_moves_and_heat_is_told_of_those_in_pieces() -> None:
    bench = Bench(tier_map(118, 430))
    keys = np.array([512, 1024, 1536, 2048], np.uint64)
    fates = np.array([getattr(SplitFate, n) for n in ("DONE", "REFUSED", "ALREADY", "GONE")])
    plans: list[MigrationPlan] = []
    placed: list[tuple[list[int], list[int], int]] = []

    class Splits(Policy):
        name = "splits"

        def decide(self, inputs: Inputs) -> MigrationPlan:
            return dataclasses.replace(MigrationPlan.empty(), split=keys)

    def execute(plan: MigrationPlan, pids: dict[int, int]) -> MigrationResult:
        plans.append(plan)
        report = MigrationResult.not_tried(plan)
        return dataclasses.replace(report, split_fate=fates.astype(np.uint8))

    def place(page: np.ndarray, node: np.ndarray, order: np.ndarray, **_: object) -> None:
        placed.append((page.tolist(), order.tolist(), len(bench.heat.reports)))

    heat: Any = bench.heat
    heat.place, heat.where = place, lambda page: np.zeros(len(page), np.int16)
    mover: Any = bench.mover
    mover.execute = execute
    rooms: Any = dataclasses.replace(bench.service.work.components, policy=Splits())
    bench.service.work.components = rooms
    assert bench.service.run(once=True) == ExitCode.OK
    assert [plan.split.tolist() for plan in plans] == [keys.tolist()]
    # Before heat is told of the report: replays keep that order.
    assert placed == [([512, 1536], [0, 0], 0)]
    assert bench.service.totals.splits == {"done": 1, "refused": 1, "already": 1, "gone": 1}
    assert bench.service.totals.as_json()["splits"]["done"] == 1
