# SPDX-License-Identifier: Apache-2.0
"""What a promoter was told, told to another: it chooses the same, and moves nothing."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from fastpath_bench import PAGES, Bench
from promoter_world import FAST, MS, SETTINGS, SLOW, World, moves_of_a_tick

from tierd._native import ffi as real_ffi
from tierd._native import lib as real_lib
from tierd.core.migration import Direction
from tierd.migration import promoter as binding
from tierd.migration.promoter import Promoter
from tierd.migration.tap import COLUMNS, FastPathLog, TapKind
from tierd.observe.recording.fastpath import decode_fast_path, encode_fast_path
from tierd.replay.component import DROPPED, MISSING, Part
from tierd.replay.fast_path import DIFFERED, FastReplay

CALLS_MAX = 8192
"""Calls that the tap has room for between two looks."""


def test_columns_and_kinds_are_those_of_c() -> None:
    parts = real_ffi.typeof("enum tierd_tap_part").relements
    assert {f"TIERD_TAP_{name.upper()}S": i for i, name in enumerate(COLUMNS)} == parts
    kinds = real_ffi.typeof("enum tierd_tap_kind").relements
    assert {f"TIERD_TAP_{each.name}": each.value for each in TapKind} == kinds


def again(logs: list[FastPathLog]) -> tuple[Part, int]:
    """The logs through a recording's bytes and the service's own C code; moves compared."""
    with mock.patch.object(binding, "ffi", real_ffi), mock.patch.object(binding, "lib", real_lib):
        replay, spans = FastReplay(), None
        for number, log in enumerate(logs, 1):
            read = decode_fast_path(encode_fast_path(log, None), spans)
            for name, column in log.columns.items():
                assert read.columns[name].tobytes() == column.tobytes()
            assert read.dropped == log.dropped
            replay.tick(number, read)
        return replay.part, replay.moves


class Course:
    """A promoter that is told anything, from a seed."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.random = world, np.random.default_rng(seed)
        self.logs: list[FastPathLog] = []
        rate = int(self.random.choice([2 << 20, 20 << 20, 1 << 30]))
        world.settings = replace(
            SETTINGS,
            quota_bytes_per_s=rate,
            residency_s=float(self.random.choice([0.05, 1.0])),
            expected=bool(self.random.random() < 0.5),
            return_rate=float(self.random.choice([0.0, 300.0])),
            least_rate=float(self.random.choice([0.0, 10.0])),
        )
        for page in range(2000):
            chance = self.random.random()
            busy, error = 2 * (chance < 0.1), 16 * (chance > 0.95)
            world.lib.fake_page(page, FAST if page < 300 else SLOW, int(busy), int(error))
        world.short(int(self.random.choice([0, 30, 400])), held=10, low=5)

    def begin(self) -> Promoter:
        """Make the promoter, tapped before all else."""
        world = self.world
        with mock.patch.object(World, "steer", lambda world: None):
            made = world.build()
        made.tap()
        self._steer()
        return made

    def _steer(self) -> None:
        world, random = self.world, self.random
        chosen = random.choice(300, int(random.integers(0, 60)), replace=False)
        heat = np.sort(random.uniform(0, 30, len(chosen)))
        world.victims = [(int(page), float(each)) for page, each in zip(chosen, heat, strict=True)]
        if random.random() < 0.3:
            world.epoch_ns = world.now
        world.steer()

    def one(self, promoter: Promoter) -> None:
        """One thing that happens."""
        world, random = self.world, self.random
        match int(random.integers(12)):
            case 0:
                self._steer()
            case 1:
                changed = replace(world.settings, margin=float(random.uniform(0, 1)))
                promoter.set(changed)
            case 2:
                first = int(random.integers(0, 1900))
                direction = Direction(int(random.integers(2)))
                promoter.note(moves_of_a_tick(range(first, first + 20), direction), world.now)
            case 3:
                assert promoter.quota_left() >= 0
            case 4:
                world.short(int(random.integers(0, 100)), held=int(random.integers(0, 20)), low=5)
            case 5:
                with promoter.held():
                    world.run()
            case _:
                pages = random.integers(0, 2000, int(random.integers(0, 80)))
                world.report(pages, count=int(random.integers(1, 200)))
                world.run(int(random.integers(1, 6)))

    def look(self, promoter: Promoter) -> None:
        """A tick ends."""
        log = promoter.tapped()
        assert log is not None
        self.logs.append(log)


@pytest.mark.parametrize("seed", range(12))
def test_a_promoter_that_is_told_the_same_chooses_the_same(world: World, seed: int) -> None:
    course = Course(world, seed)
    promoter = course.begin()
    for number in range(240):
        course.one(promoter)
        if number % 12 == 11:
            course.look(promoter)
        promoter.take()
    part, moves = again(course.logs)
    assert (part.first, part.ended, part.differing) == (None, "", 0)
    assert part.decisions > 50
    chosen = sum(len(log.columns["move"]) for log in course.logs)
    assert moves == chosen > 50
    world.made = None


def test_a_tap_changes_nothing(promoter_native: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def course(tapped: bool) -> list[Any]:
        world = World(promoter_native, monkeypatch)
        made = Course(world, 3)
        with mock.patch.object(Promoter, "tap", Promoter.tap if tapped else lambda promoter: None):
            promoter = made.begin()
        for _ in range(60):
            made.one(promoter)
        return [promoter.take().tobytes(), dict(promoter.stats().counters)]

    assert course(True) == course(False)


def test_once_it_is_untapped_nothing_is_noted(world: World) -> None:
    promoter = Course(world, 1).begin()
    world.report(range(300, 330))
    world.run()
    promoter.untap()
    assert promoter.tapped() is None
    world.report(range(330, 360))
    assert world.run() >= 0
    assert promoter.tapped() is None


def test_what_is_too_much_is_counted_and_ends_the_replay(world: World) -> None:
    promoter = Course(world, 1).begin()
    steps = 2 * CALLS_MAX
    for _ in range(steps):
        promoter.step()
    world.report(range(300, 400))
    world.run()
    first = promoter.tapped()
    promoter.step()
    second = promoter.tapped()
    assert first is not None and second is not None
    # NEW and STEER came before; once something was left out, all after it is.
    assert len(first.columns["call"]) == CALLS_MAX
    assert first.dropped == steps + 1 + 2 - CALLS_MAX
    assert (len(second.columns["call"]), second.dropped) == (0, first.dropped + 1)
    part, _ = again([first, second])
    assert (part.differing, part.ended) == (0, DROPPED)


def test_records_that_are_too_many_are_left_out_call_by_call(world: World) -> None:
    promoter = Course(world, 1).begin()
    for _ in range(40):
        world.report(np.arange(300, 4396) % 65000)
        world.run()
    log = promoter.tapped()
    assert log is not None
    call = log.columns["call"]
    assert log.dropped > 0
    assert int(call["records"].sum()) == len(log.columns["record"]) <= 1 << 17
    assert int(call["clocks"].sum()) == len(log.columns["clock"])
    part, _ = again([log])
    assert (part.differing, part.ended) == (0, DROPPED)


def test_without_its_beginning_nothing_is_compared(world: World) -> None:
    promoter = Course(world, 2).begin()
    first = promoter.tapped()
    world.report(range(300, 330))
    world.run()
    second = promoter.tapped()
    assert first is not None and second is not None
    part, _ = again([second])
    assert (part.decisions, part.ended) == (0, MISSING)


def test_a_choice_that_differs_is_told_with_both_values(world: World) -> None:
    world.settings = replace(SETTINGS, confidence=0.5)
    world.slow(range(100))
    with mock.patch.object(World, "steer", lambda world: None):
        promoter = world.build()
    promoter.tap()
    world.steer()
    world.lib.fake_pass(10**9)
    world.report(range(20))
    world.run()
    log = promoter.tapped()
    assert log is not None
    others = {name: column.copy() for name, column in log.columns.items()}
    others["record"]["count"][4] += 1
    part, _ = again([FastPathLog(others, log.given)])
    assert (part.differing, part.ended) == (1, DIFFERED)
    assert part.first is not None
    assert part.first.tick == 1
    recorded, replayed = part.first.recorded, part.first.replayed
    assert (recorded["page"], recorded["heat"]) == (replayed["page"], replayed["heat"])
    # One more request makes it known a little better, and the bar lower.
    assert recorded["bar"] > replayed["bar"]


def test_a_real_thread_is_recorded_and_chooses_the_same(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    given = bench.fast_path.tap()
    assert given is not None
    bench.watch()
    logs = []
    for turn in range(12):
        bench.tick()
        first = 5 * turn % (PAGES - 5)
        bench.put(range(first, first + 5))
        bench.until_read()
        time.sleep(5 * MS / 1e9)
        log = given.tapped()
        assert log is not None
        logs.append(log)
    bench.fast_path.close()
    bench.mover.close()
    kinds = {int(kind) for log in logs for kind in log.columns["call"]["kind"]}
    assert kinds >= {TapKind.NEW, TapKind.SET, TapKind.STEER, TapKind.STEP}
    part, _ = again(logs)
    assert (part.first, part.ended, part.differing) == (None, "", 0)
    assert part.decisions >= 8
