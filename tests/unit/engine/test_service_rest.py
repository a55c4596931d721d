# SPDX-License-Identifier: Apache-2.0
"""What the service does between two passes, and what ends its rest."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from types import SimpleNamespace
from typing import Any

from loopbench import Bench, ScanningSource, interrupt_at, tier_map

from tierd.core.errors import ExitCode
from tierd.engine.wakeups import EventPoller


class Resting:
    """Rests for a minute after each pass; something comes up at the third question."""

    def __init__(self) -> None:
        self.asked = 0

    def pause_ns(self, loop: Any, rooms: Any, tick: Any) -> int:
        return 60 * 10**9

    def must_tick(self, rooms: Any, tick: Any, now_ns: int) -> bool:
        self.asked += 1
        return self.asked == 3


def test_a_rest_ends_when_something_comes_up_or_targets_change() -> None:
    bench = Bench(tier_map(118, 430))
    resting = bench.service.pacer = Resting()  # type: ignore[assignment]
    targets = dataclasses.replace(bench.service.config.targets, refresh_interval_ns=1)
    bench.service.work.config = dataclasses.replace(bench.service.config, targets=targets)
    bench.tracking.refresh = lambda now_ns: bench.service.totals.ticks == 2  # type: ignore[method-assign]
    bench.source.on_poll = interrupt_at(3)
    assert bench.service.run() == ExitCode.OK
    # The first rest ends with the third question, the second before any.
    assert resting.asked == 3


def test_targets_that_end_wait_for_the_cpu_budget_and_for_nothing_else() -> None:
    bench = Bench(tier_map(118, 430))
    bench.tracking.collect = lambda: True  # type: ignore[method-assign]
    bench.tracking.refresh = lambda now_ns: True  # type: ignore[method-assign]
    wake: Any = SimpleNamespace(wait=lambda seconds: (False, False, False), listen=lambda fd: None)
    now = time.monotonic_ns()
    bench.service._sleep(now + 50_000_000, now + 60 * 10**9, now + 60 * 10**9, wake)
    assert 50_000_000 <= time.monotonic_ns() - now < 30 * 10**9


def test_news_of_a_source_wait_for_the_cpu_budget_and_for_nothing_else() -> None:
    source = ScanningSource()
    bench = Bench(tier_map(118, 430), source=source)
    reader, writer = os.pipe()
    asked = 0

    def phase_changed() -> bool:
        nonlocal asked
        asked += 1
        return asked == 3

    source.phase_change_fd, source.changed = reader, phase_changed
    bench.service.components.sources.watch([], 0)
    os.write(writer, b"a look has ended")
    now = time.monotonic_ns()
    with EventPoller(-1, on_stop=lambda name: None, on_hang_up=lambda: None) as wake:
        later = now + 10 * 10**9
        bench.service._sleep(later, later, now + 50_000_000, wake)
        assert asked == 0  # there is no CPU time for a pass: it is asked for when there is
        # No news: it sleeps on, and asks again when another look has ended.
        threading.Timer(0.1, os.write, (writer, b"another has")).start()
        bench.service._sleep(now, now + 400_000_000, now + 400_000_000, wake)
        assert (asked, time.monotonic_ns() - now >= 400_000_000) == (2, True)
        bench.service._sleep(now, now + 60 * 10**9, now + 60 * 10**9, wake)
    assert asked == 3
    assert time.monotonic_ns() - now < 30 * 10**9
    os.close(reader)
    os.close(writer)


def test_news_are_counted_once() -> None:
    source = ScanningSource()
    bench = Bench(tier_map(118, 430), source=source)
    stop = interrupt_at(4)

    def tell(polls: int) -> None:
        source.phase_change_ns = (0, 7, 7, 9)[min(polls, 4) - 1]
        stop(polls)

    bench.source.on_poll = tell
    assert bench.service.run() == ExitCode.OK
    assert bench.service.totals.scan_phase_changes == 2
    assert bench.service.totals.as_json()["scan_phase_changes"] == 2


def test_nobody_is_watched_while_there_is_one_tier() -> None:
    bench = Bench(tier_map(118), wait=True, later=tier_map(118, 430))
    tiers: list[int] = []

    def refresh(now_ns: int) -> bool:
        tiers.append(len(bench.service.tiers.tiers))
        return True

    bench.tracking.refresh = refresh  # type: ignore[method-assign]
    threading.Timer(0.3, lambda: setattr(bench.hotplug, "pending", True)).start()
    bench.source.on_poll = interrupt_at(2)
    assert bench.service.run() == ExitCode.OK
    assert set(tiers) == {2}


def test_looks_at_targets_between_passes_are_paid_for_by_the_next() -> None:
    bench = Bench(tier_map(118, 430))
    work = bench.service.work
    loop = dataclasses.replace(work.config.loop, cpu_limit=0.001)
    work.config = dataclasses.replace(work.config, loop=loop)
    allowed: list[int] = []

    def between(allowed_ns: int, least_ns: int, until_ns: int, wake: Any) -> None:
        allowed.append(allowed_ns)
        work.refresh()
        work.targets_changed(time.monotonic_ns())
        work.stopping = len(allowed) == 2

    def refresh(now_ns: int) -> bool:
        end = time.thread_time_ns() + 50_000_000 * len(allowed)
        while time.thread_time_ns() < end:
            pass
        return False

    bench.tracking.refresh = refresh  # type: ignore[method-assign]
    bench.service._sleep = between  # type: ignore[method-assign]
    assert bench.service.run() == ExitCode.OK
    assert allowed[1] - allowed[0] >= 50_000_000 / 0.001
    assert bench.service.totals.part_cpu_ns["targets"] >= 50_000_000
