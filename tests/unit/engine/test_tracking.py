# SPDX-License-Identifier: Apache-2.0
"""Tracking: what is read of a process that did nothing, and of one that did."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tierd.config.model import TargetsConfig
from tierd.core import bounds
from tierd.core.access import WatchedRange
from tierd.engine.tracking import Tracking
from tierd.workloads.bounded_reads import BoundedReads
from tierd.workloads.mappings import MovableRanges
from tierd.workloads.target import Target, TargetChanges

SECOND = 10**9
INTERVAL = 20 * SECOND


class Registry:
    events = None

    def __init__(self) -> None:
        self.targets = {0: Target(0, 70, 1, -1, "a", "/", 0, 1 << 30, activity=(b"1",))}
        self.rss_bytes = 1 << 30

    def configure(self, config: TargetsConfig, rules: object) -> None:
        pass

    def refresh(self, now_ns: int) -> TargetChanges:
        return TargetChanges()

    def acts(self) -> None:
        """The target did something."""
        target = self.targets[0]
        did = (*target.activity, b"x")
        self.targets[0] = dataclasses.replace(target, activity=did, rss_bytes=self.rss_bytes)


class Reads(BoundedReads):
    """Take no time."""

    cpu_ns = 0  # type: ignore[assignment]


class Maps:
    def __init__(self) -> None:
        self.reads = 0
        self.found = MovableRanges((WatchedRange(0, 100),), {"tiny": 2})

    def movable_ranges(self, target: Target, now_ns: int) -> MovableRanges:
        self.reads += 1
        return self.found


class Scanner:
    def __init__(self) -> None:
        self.scans = self.cpu_ns = self.cost_ns = 0
        self.next_vpn: int | None = None

    def scan(self, target: Any, cursor: int, most: int) -> Any:
        self.scans += 1
        self.cpu_ns += self.cost_ns

        @dataclasses.dataclass
        class Found:
            page = np.arange(4, dtype=np.uint64)
            node = np.zeros(4, np.int16)
            order = np.zeros(4, np.uint8)
            next_vpn = self.next_vpn

        return Found()


class Heat:
    def __init__(self) -> None:
        self.forgotten: list[int] = []

    def place(self, *args: object, **options: object) -> None:
        pass

    def keep_ranges(self, *args: object) -> None:
        pass

    def forget_target(self, number: int) -> None:
        self.forgotten.append(number)


@dataclasses.dataclass
class Followed:
    registry: Registry
    maps: Maps
    scanner: Scanner
    tracking: Tracking
    heat: Heat


@pytest.fixture
def followed() -> Followed:
    registry, maps, scanner, heat = Registry(), Maps(), Scanner(), Heat()
    parts: Any = (registry, scanner, heat, maps)
    tracking = Tracking(*parts, INTERVAL, cpu_clock=lambda: scanner.cpu_ns, reads=Reads())
    return Followed(registry, maps, scanner, tracking, heat)


def test_mappings_of_a_process_that_did_nothing_are_not_read_again_for_a_while(followed: Followed):
    for second in range(0, bounds.REREAD_NS // SECOND, 5):
        followed.tracking.refresh(second * SECOND)
    assert followed.maps.reads == 1
    followed.tracking.refresh(bounds.REREAD_NS)
    assert followed.maps.reads == 2
    assert followed.tracking.skipped == {"tiny": 2}


def test_mappings_of_a_process_that_acts_are_read_each_time(followed: Followed):
    for second in range(4):
        followed.registry.acts()
        followed.tracking.refresh(second * SECOND)
    assert followed.maps.reads == 4


def test_mappings_with_unread_policies_are_read_until_they_are_known(followed: Followed):
    followed.maps.found = MovableRanges((WatchedRange(0, 100),), {"unread": 3})
    for second in range(3):
        followed.tracking.refresh(second * SECOND)
    assert followed.maps.reads == 3


def test_a_kernel_that_tells_no_activity_has_everything_read(followed: Followed):
    followed.registry.targets[0] = dataclasses.replace(followed.registry.targets[0], activity=())
    for second in range(3):
        followed.tracking.refresh(second * SECOND)
    assert followed.maps.reads == 3


def test_a_target_whose_accesses_the_source_cannot_see_is_left_alone_and_said(followed: Followed):
    tracking = followed.tracking
    tracking.refresh(0)
    tracking.leave_alone(frozenset({0}))
    tracking.leave_alone(frozenset({0}))
    assert followed.heat.forgotten == [0]
    assert tracking.walk(0, 1000, (0,)) == 0
    assert (tracking.spans(), tracking.all_walked) == ([], True)
    assert tracking.skipped == {"tiny": 2, "second mmu": 100}
    # The source goes on being asked.
    assert [each.target for each in tracking.watched()] == [0]
    tracking.leave_alone(frozenset())
    assert tracking.walk(SECOND, 1000, (0,)) > 0
    assert tracking.skipped == {"tiny": 2}


def walks_until(followed: Followed, seconds: int, *, acts: bool) -> int:
    for second in range(seconds):
        if acts:
            followed.registry.acts()
        followed.tracking.refresh(second * SECOND)
        followed.tracking.walk(second * SECOND, 1000, ())
    return followed.scanner.scans


def test_a_process_that_acts_is_walked_at_each_interval(followed: Followed):
    assert walks_until(followed, 2 * INTERVAL // SECOND + 1, acts=True) == 3


def test_a_process_that_does_nothing_is_walked_less_often(followed: Followed):
    assert walks_until(followed, (INTERVAL + bounds.REREAD_NS) // SECOND, acts=False) == 1
    seconds = INTERVAL + bounds.REREAD_NS
    assert followed.tracking.walk(seconds, 1000, ()) > 0


def walk_times(followed: Followed, *seconds: int) -> list[int]:
    """Of these seconds, in which the target acts, those in which it was walked."""
    found = []
    for second in seconds:
        before = followed.scanner.scans
        followed.registry.acts()
        followed.tracking.refresh(second * SECOND)
        followed.tracking.walk(second * SECOND, 1000, ())
        found += [second] * (followed.scanner.scans - before)
    return found


def test_walks_that_take_long_are_rare(followed: Followed):
    followed.scanner.cost_ns = SECOND // 10
    due = round(0.1 / bounds.READING_CPU_FRACTION)
    assert due > INTERVAL // SECOND
    assert walk_times(followed, 0, 20, due - 1, due, 2 * due - 1, 2 * due) == [0, due, 2 * due]
    followed.scanner.cost_ns = 3600 * SECOND
    latest = bounds.WALK_WAIT_NS // SECOND
    at = 3 * due
    assert walk_times(followed, at, at + latest - 1, at + latest) == [at, at + latest]


def test_the_time_that_walks_take_is_that_of_all_targets(followed: Followed):
    followed.registry.targets[1] = dataclasses.replace(followed.registry.targets[0], number=1)
    followed.scanner.cost_ns = SECOND // 10
    due = round(0.2 / bounds.READING_CPU_FRACTION)
    # The other one does nothing, which alone would have it wait for less.
    assert walk_times(followed, 0, due // 2, due - 1, due) == [0, 0, due, due]


def test_walks_that_take_long_are_no_less_rare_over_a_process_that_does_nothing(followed: Followed):
    followed.scanner.cost_ns = SECOND
    due = round(1 / bounds.READING_CPU_FRACTION)
    assert due > bounds.REREAD_NS // SECOND
    followed.tracking.refresh(0)
    walked = [t for t in (0, due - 1, due) if followed.tracking.walk(t * SECOND, 1000, ())]
    assert walked == [0, due]


@pytest.mark.parametrize("share", [1.2, 0.8])
def test_a_process_whose_memory_has_changed_much_is_walked_sooner(followed: Followed, share: float):
    followed.scanner.cost_ns = SECOND
    assert walk_times(followed, 0, 20) == [0]
    followed.registry.rss_bytes = int(share * (1 << 30))
    assert walk_times(followed, 21, 40) == [21]


def test_a_walk_under_way_goes_on_whatever_it_takes(followed: Followed):
    followed.scanner.cost_ns = SECOND
    followed.scanner.next_vpn = 50
    assert walk_times(followed, 0, 1, 2) == [0, 1, 2]
    followed.scanner.next_vpn = None
    due = 3 + round(4 / bounds.READING_CPU_FRACTION)
    assert walk_times(followed, 3, 3 + INTERVAL // SECOND, due - 1, due) == [3, due]


def test_new_ranges_are_walked_at_once_whatever_the_process_does(followed: Followed):
    assert walks_until(followed, 1, acts=False) == 1
    followed.maps.found = MovableRanges((WatchedRange(0, 200),), {})
    followed.registry.acts()
    followed.tracking.refresh(2 * SECOND)
    followed.tracking.walk(2 * SECOND, 1000, ())
    assert followed.scanner.scans == 2


def test_a_few_new_pages_wait_for_the_next_walk_until_they_are_many(followed: Followed):
    followed.maps.found = MovableRanges((WatchedRange(0, 3200), WatchedRange(9000, 9032)), {})
    assert walks_until(followed, 1, acts=False) == 1
    for end, scans in ((3250, 1), (3600, 1), (3700, 2), (3800, 2)):
        parts = (WatchedRange(0, end), WatchedRange(9000, 9032))
        followed.maps.found = MovableRanges(parts, {})
        followed.registry.acts()
        followed.tracking.refresh(2 * SECOND)
        followed.tracking.walk(2 * SECOND, 1000, ())
        assert followed.scanner.scans == scans, end
        assert followed.tracking.spans()[0] == (0, end)


def test_many_pages_that_come_during_a_walk_have_another_one(followed: Followed):
    followed.scanner.next_vpn = 50
    followed.tracking.refresh(0)
    followed.tracking.walk(0, 4, ())
    followed.maps.found = MovableRanges((WatchedRange(0, 200),), {})
    followed.registry.acts()
    followed.tracking.refresh(SECOND)
    followed.scanner.next_vpn = None
    for scans in (2, 3, 3):
        followed.tracking.walk(SECOND, 4, ())
        assert followed.scanner.scans == scans


def test_what_is_watched_is_the_same_object_while_nothing_changed(followed: Followed):
    walks_until(followed, 1, acts=False)
    first = followed.tracking.watched()[0].ranges
    assert followed.tracking.watched()[0].ranges is first
    followed.maps.found = MovableRanges((WatchedRange(0, 2000),), {})
    followed.registry.acts()
    followed.tracking.refresh(2 * SECOND)
    assert followed.tracking.watched()[0].ranges is not first
