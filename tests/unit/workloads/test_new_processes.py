# SPDX-License-Identifier: Apache-2.0
"""Processes that began a moment ago: found when they have grown, not at the next refresh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_proc import FakeEvents, FakeProc

from tierd.config.whole import loads
from tierd.core import bounds
from tierd.workloads.readings import NewProcesses
from tierd.workloads.registry import TargetRegistry

MIB = 1 << 20
SECOND = 10**9


class World:
    """A registry that hears of processes, and a clock."""

    def __init__(self, root: Path, text: str) -> None:
        self.proc = FakeProc(root)
        self.events = FakeEvents()
        self.now = SECOND
        self.registry = TargetRegistry(
            loads(f"[targets]\n{text}").targets,
            root=root,
            own_pid=4000,
            open_events=lambda: self.events,
            pidfd_open=self.proc.pidfd_open,
            clock=lambda: self.now,
        )
        self.registry.refresh(self.now)

    def begin(self, pid: int, **what: Any) -> None:
        self.proc.add(pid, **what)
        self.events.queued.executed.add(pid)

    def pids(self) -> list[int]:
        return [target.pid for target in self.registry.targets.values()]

    def after(self, seconds: float) -> bool:
        """Whether a refresh is worth while then."""
        self.now += int(seconds * SECOND)
        return self.registry.collect()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, 'min_rss = "16MiB"\ndeny = [{ uid = 7 }]')


def test_a_process_that_grows_is_asked_for_when_it_is_large_enough(world: World) -> None:
    world.begin(10, rss_bytes=MIB)
    assert not world.after(0)
    assert not world.after(0.3)
    world.proc.add(10, rss_bytes=64 * MIB)
    assert not world.after(0.1)  # its next look is at half a second
    assert world.after(0.2)
    world.registry.refresh(world.now)
    assert world.pids() == [10]
    assert not world.after(1)


def test_one_that_refreshes_passed_over_is_read_again(world: World) -> None:
    world.begin(10, rss_bytes=MIB)
    for _ in range(4):  # nothing of it changed: it rests
        world.registry.refresh(world.now)
    world.proc.add(10, rss_bytes=64 * MIB)
    assert world.after(1)
    world.registry.refresh(world.now)
    assert world.pids() == [10]


@pytest.mark.parametrize("before", range(1, 8))
def test_a_large_process_that_is_put_into_a_control_group_is_found_at_the_next_refresh(
    tmp_path: Path, before: int
) -> None:
    world = World(tmp_path, 'match = { cgroup = "/tiered" }')
    world.begin(10, rss_bytes=64 * MIB)
    for _ in range(before):
        world.registry.refresh(world.now)
    world.proc.add(10, rss_bytes=64 * MIB, cgroup="/tiered")
    world.registry.refresh(world.now)
    assert world.pids() == [10]


@pytest.mark.parametrize("what", [{"rss_bytes": MIB}, {"uid": 7}, {"ppid": 4000}])
def test_no_refresh_for_one_that_is_small_denied_or_tierds_own(
    world: World, what: dict[str, int]
) -> None:
    world.begin(10, **what)
    assert not any(world.after(0.25) for _ in range(60))


def test_one_that_ends_is_forgotten(world: World) -> None:
    world.begin(10)
    world.proc.end(10)
    assert not any(world.after(0.25) for _ in range(60))


def test_looks_are_few_and_newcomers_bounded() -> None:
    newcomers, asked = NewProcesses(), []

    def small(pid: int) -> bool:
        asked.append(pid)
        return False

    newcomers.begin(range(bounds.NEW_PROCESSES + 5), 0)
    assert (len(newcomers), newcomers.dropped) == (bounds.NEW_PROCESSES, 5)
    for now in range(0, 20 * SECOND, SECOND // 4):
        assert newcomers.grown(now, small) == set()
    assert len(asked) == bounds.NEW_PROCESSES * len(bounds.NEW_PROCESS_AGES_NS)
    assert len(newcomers) == 0


def test_a_late_look_stands_for_those_missed() -> None:
    newcomers, asked = NewProcesses(), []

    def small(pid: int) -> bool:
        asked.append(pid)
        return False

    newcomers.begin([1], 0)
    newcomers.grown(5 * SECOND, small)
    newcomers.grown(5 * SECOND + 1, small)
    assert asked == [1]
