# SPDX-License-Identifier: Apache-2.0
"""The scan source with a module that is played by the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakering import page_record

from tierd.config.watching import ScanConfig
from tierd.core.access import Seen, WatchedRange, WatchedTarget
from tierd.core.errors import SecondMmuError, TargetGoneError, UnavailableError
from tierd.core.tuning import SCAN
from tierd.sources.kmod.netlink import TargetState
from tierd.sources.kmod.uapi import DEVICE, MAX_RANGES, PARAMETERS, RECORD, Kind, PageFlags
from tierd.sources.scan import ScanSource
from tierd.sources.scan_module import merged
from tierd.sources.scan_records import ScanSummary, summaries


class FakeControl:
    """Keeps what was asked; pids in `gone` do not exist, and `broken` refuses all."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.gone: set[int] = set()
        self.second_mmu: set[int] = set()
        self.broken = False
        self.closed = False
        self.sampling_intervals: list[int] = []
        self.periods: list[int] = []
        self.stats: dict[int, dict[str, int]] = {}

    def _note(self, *call: Any) -> None:
        if self.broken:
            raise UnavailableError("refused")
        self.calls.append(call)

    def scan_set(self, **settings: Any) -> None:
        if "sampling_interval_us" in settings:
            self.sampling_intervals.append(settings["sampling_interval_us"])
        if "period_us" in settings:
            self.periods.append(settings["period_us"])
        if "budget_ppm" in settings:
            self._note("set", settings["period_us"], settings["budget_ppm"])
        elif "period_us" in settings:
            self._note("pace", settings["period_us"])
        else:
            self._note("classes", settings["hot_scans"], settings["cold_scans"])

    def target_add(self, target: int, pid: int, ranges: Any) -> None:
        if pid in self.gone:
            raise TargetGoneError("gone")
        if pid in self.second_mmu:
            raise SecondMmuError("unseen")
        self._note("add", target, pid, list(ranges))

    def target_set(self, target: int, ranges: Any) -> None:
        self._note("ranges", target, list(ranges))

    def target_del(self, target: int) -> None:
        self._note("del", target)

    def targets(self) -> list[TargetState]:
        return [TargetState(number, 1, stats) for number, stats in self.stats.items()]

    def close(self) -> None:
        self.closed = True


class FakeRing:
    """Records in lists."""

    def __init__(self) -> None:
        self.unread: list[np.ndarray] = []
        self.dropped = 0
        self.capacity = 1024
        self.closing = False
        self.closed = False
        self.consumed = 0

    @property
    def waiting(self) -> int:
        return sum(map(len, self.unread))

    def views(self) -> list[np.ndarray]:
        return list(self.unread)

    def consume(self, count: int) -> None:
        self.consumed += count
        self.unread.clear()

    def fileno(self) -> int:
        return 99

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def control() -> FakeControl:
    return FakeControl()


@pytest.fixture
def ring() -> FakeRing:
    return FakeRing()


@pytest.fixture
def source(control: FakeControl, ring: FakeRing) -> ScanSource:
    opened_control: Any = lambda: control  # noqa: E731
    opened_ring: Any = lambda root: ring  # noqa: E731
    return ScanSource(
        ScanConfig(interval_ns=100_000_000, cpu_limit=0.02, min_sampling_interval_ns=50_000_000),
        clock=lambda: 77,
        open_control=opened_control,
        open_ring=opened_ring,
    )


def target(number: int, pid: int, *ranges: tuple[int, int]) -> WatchedTarget:
    return WatchedTarget(number, pid, tuple(WatchedRange(*pair) for pair in ranges))


def test_the_pace_may_change_while_it_runs_and_before(
    source: ScanSource, control: FakeControl
) -> None:
    source.pace(800_000)
    source.watch([target(1, 10, (0, 5))])
    source.pace(1_200_000)
    # Four times as fast, as it knows nothing yet.
    assert control.calls == [
        ("set", 200_000, 20_000),
        ("add", 1, 10, [(0, 5)]),
        ("pace", 300_000),
    ]


def test_no_sampling_interval_is_asked_for_where_the_module_cannot_flush_the_tlb(
    control: FakeControl, ring: FakeRing, tmp_path: Path
) -> None:
    opened_control: Any = lambda: control  # noqa: E731
    opened_ring: Any = lambda root: ring  # noqa: E731
    source = ScanSource(
        ScanConfig(interval_ns=400_000_000, min_sampling_interval_ns=2_000_000),
        root=tmp_path,
        clock=lambda: 77,
        open_control=opened_control,
        open_ring=opened_ring,
    )
    # The module comes later than the source.
    (tmp_path / PARAMETERS).mkdir(parents=True)
    (tmp_path / PARAMETERS / "can_flush").write_text("N\n")
    source.watch([target(1, 10, (0, 1000))])
    source.aim, source.longest_us = 0.1, 20_000
    period = {"round_pages": 1000, "round_accessed": 1000, "period_ns": 400_000_000}
    for rounds in range(1, 30):
        control.stats = {1: {"rounds": rounds, **period}}
        source.progress()
    assert set(control.sampling_intervals) == {0}


def test_page_tables_that_the_module_has_no_memory_for_are_told(tmp_path: Path) -> None:
    source = ScanSource(root=tmp_path)
    assert source.unwatched is None
    (tmp_path / PARAMETERS).mkdir(parents=True)
    (tmp_path / PARAMETERS / "history_full").write_text("12\n")
    assert source.unwatched == 12


def test_a_target_with_a_second_mmu_is_unseen_and_asked_again_when_its_mappings_change(
    source: ScanSource, control: FakeControl
) -> None:
    control.second_mmu = {10}
    both = [target(1, 10, (0, 5)), target(2, 20, (0, 5))]
    source.watch(both)
    assert source.unseen == {1}
    control.second_mmu = set()
    source.watch(both)
    assert source.unseen == {1}
    source.watch([target(1, 10, (8, 9)), both[1]])
    assert source.unseen == frozenset()
    assert [call[:3] for call in control.calls if call[0] == "add"] == [
        ("add", 2, 20),
        ("add", 1, 10),
    ]


def test_a_target_that_the_module_lets_go_of_is_unseen(
    source: ScanSource, control: FakeControl
) -> None:
    both = [target(1, 10, (0, 5)), target(2, 20, (0, 5))]
    source.watch(both)
    control.stats = {1: {"rounds": 1}, 2: {"rounds": 1}}
    source.progress()
    assert source.unseen == frozenset()
    del control.stats[1]
    control.second_mmu = {10}
    source.progress()
    assert source.unseen == {1}
    source.watch([both[1]])
    assert source.unseen == frozenset()


def test_watch_sends_settings_once_and_then_only_what_changed(
    source: ScanSource, control: FakeControl
) -> None:
    source.watch([target(1, 10, (0, 5)), target(2, 20, (7, 9))])
    source.watch([target(1, 10, (0, 5)), target(2, 20, (7, 10))])
    source.watch([target(2, 20, (7, 10)), target(3, 30, (1, 2))])
    assert control.calls == [
        ("set", 50_000, 20_000),
        ("add", 1, 10, [(0, 5)]),
        ("add", 2, 20, [(7, 9)]),
        ("ranges", 2, [(7, 10)]),
        ("del", 1),
        ("add", 3, 30, [(1, 2)]),
    ]


def test_a_number_that_another_process_has_now_is_registered_anew(
    source: ScanSource, control: FakeControl
) -> None:
    source.watch([target(1, 10, (0, 5))])
    source.watch([target(1, 11, (0, 5))])
    assert control.calls[-2:] == [("del", 1), ("add", 1, 11, [(0, 5)])]


def test_a_process_that_ended_spoils_nothing(source: ScanSource, control: FakeControl) -> None:
    control.gone = {10}
    source.watch([target(1, 10, (0, 5)), target(2, 20, (7, 9))])
    assert control.calls[-1] == ("add", 2, 20, [(7, 9)])


def test_nothing_is_opened_for_nothing(source: ScanSource, control: FakeControl) -> None:
    source.watch([])
    assert control.calls == []
    assert source.poll() == []


def test_a_refusal_closes_and_is_told(
    source: ScanSource, control: FakeControl, ring: FakeRing
) -> None:
    control.broken = True
    with pytest.raises(UnavailableError):
        source.watch([target(1, 10, (0, 5))])
    assert control.closed
    assert ring.closed


def test_when_the_module_wants_to_go_poll_lets_go_and_raises(
    source: ScanSource, control: FakeControl, ring: FakeRing
) -> None:
    source.watch([target(1, 10, (0, 5))])
    ring.closing = True
    with pytest.raises(UnavailableError, match="removed"):
        source.poll()
    assert control.closed
    assert ring.closed
    assert source.poll() == []


def test_poll_hands_on_pages_and_what_was_lost(source: ScanSource, ring: FakeRing) -> None:
    source.watch([target(1, 10, (0, 5))])
    mark = np.zeros(1, RECORD)
    mark["kind"] = Kind.ROUND
    ring.unread = [np.concatenate([page_record(5, 0xFF, 8), mark]), page_record(6, 0x80, 8)]
    ring.dropped = 3
    first, second = source.poll()
    assert (first.page.tolist(), second.page.tolist()) == ([5], [6])
    assert (first.lost, second.lost, first.time_ns) == (3, 0, 77)
    assert first.count[0] > second.count[0]
    assert ring.consumed == 3


def test_losses_are_told_without_records(source: ScanSource, ring: FakeRing) -> None:
    source.watch([target(1, 10, (0, 5))])
    ring.dropped = 9
    (batch,) = source.poll()
    assert (len(batch), batch.lost) == (0, 9)
    assert source.poll() == []


def test_an_overflow_raises_the_threshold_until_it_is_calm(
    source: ScanSource, control: FakeControl, ring: FakeRing
) -> None:
    source.watch([target(1, 10, (0, 5))])
    for dropped in (5, 9, 9):
        ring.dropped = dropped
        ring.unread = [np.repeat(page_record(5, 0xFF, 8), 500)]
        source.poll()
    for _ in range(3):
        ring.unread = [page_record(5, 0xFF, 8)]
        source.poll()
    assert control.calls[2:] == [
        ("classes", 3, 2),
        ("classes", 4, 3),
        ("classes", 3, 2),
        ("classes", 2, 1),
    ]


def test_ranges_are_joined_where_they_touch_and_bounded() -> None:
    assert merged(target(1, 1, (5, 9), (0, 5), (20, 30))) == [(0, 9), (20, 30)]
    many = target(1, 1, *((n * 10, n * 10 + 1) for n in range(MAX_RANGES + 500)))
    assert len(merged(many)) == MAX_RANGES


def test_available_says_what_is_missing(tmp_path: Path) -> None:
    source = ScanSource(root=tmp_path)
    assert "not loaded" in source.available().reason
    (tmp_path / DEVICE).parent.mkdir()
    (tmp_path / DEVICE).touch()
    assert source.available().ok
    (tmp_path / PARAMETERS).mkdir(parents=True)
    (tmp_path / PARAMETERS / "closing").write_text("Y\n")
    assert "let go" in source.available().reason


class World:
    """A source that looks at one target, and what the module tells of it."""

    def __init__(self, *, period_us: int = 800_000) -> None:
        self.control, self.now = FakeControl(), 10**9
        control: Any = lambda: self.control  # noqa: E731
        self.ring = FakeRing()
        ring: Any = lambda root: self.ring  # noqa: E731
        self.source = ScanSource(
            ScanConfig(interval_ns=period_us * 1000),
            clock=lambda: self.now,
            open_control=control,
            open_ring=ring,
        )
        self.source.aim = 0.3
        self.source.watch([target(1, 10, (0, 5))])
        self.rounds = 0

    def look(self, share: float, interval_ms: float) -> tuple[int, int]:
        """A scan that found a share accessed; period and sampling interval set after it, in us."""
        self.rounds += 1
        self.now += 10**9
        self.control.stats[1] = {
            "rounds": self.rounds,
            "round_pages": 10_000,
            "round_accessed": int(10_000 * share),
            "period_ns": self.control.periods[-1] * 1000,
            "sampling_interval_ns": int(interval_ms * 1e6),
        }
        self.source.poll()
        return self.control.periods[-1], self.control.sampling_intervals[-1]


def test_the_module_looks_as_what_it_tells_asks_for() -> None:
    """Whole periods at first; short intervals at once where all is used, and slower when known."""
    world = World()
    assert (world.control.periods, world.control.sampling_intervals) == ([200_000], [0])
    assert world.look(0.97, 0) == (200_000, 0)  # of the time before
    assert world.look(0.97, 0) == (50_000, 12_500)
    assert world.source.progress()[0] < SCAN.known_scans
    world.look(0.97, 0)  # the round that was under way
    for _ in range(SCAN.warmup_scans):
        assert world.look(0.4, 12.5)[1] == 12_500
    rounds, period_s = world.source.progress()
    assert rounds >= SCAN.known_scans
    assert period_s == pytest.approx(0.8)
    assert world.control.periods[-1] == 800_000
    assert world.source.dilution == pytest.approx(12.5 / 800)
    assert world.source.seen == Seen(0.4, pytest.approx(0.0125), pytest.approx(0.8))


def test_a_source_that_begins_anew_knows_nothing() -> None:
    world = World()
    for _ in range(6):
        world.look(0.97, 0)
    world.source.close()
    world.control.stats.clear()
    assert world.source.progress() == (0, 0.8)
    assert world.source.seen is None
    world.source.watch([target(1, 10, (0, 5))])
    assert (world.control.periods[-1], world.control.sampling_intervals[-1]) == (200_000, 0)
    assert world.source.progress()[0] == 0


def test_a_target_that_is_not_watched_teaches_nothing() -> None:
    world = World()
    world.control.stats[2] = {"rounds": 9, "round_pages": 10**6, "round_accessed": 970_000}
    assert [world.look(0.1, 0) for _ in range(SCAN.warmup_scans + 1)][-1] == (800_000, 0)
    assert world.source.progress()[0] >= SCAN.known_scans


def test_a_bound_holds_from_the_first_look_on_and_may_come_before_the_source_is_in_use() -> None:
    world = World()
    world.source.longest_us = 7_800
    assert (world.control.periods[-1], world.control.sampling_intervals[-1]) == (50_000, 7_800)
    assert world.source.longest_us == 7_800
    world.source.close()
    world.source.longest_us = 15_600
    assert len(world.control.sampling_intervals) == 2
    world.source.watch([target(1, 10, (0, 5))])
    assert world.control.sampling_intervals[-1] == 15_600


def ended(
    *,
    accessed: int = 0,
    newly_hot: int = 0,
    newly_idle: int = 0,
    newly_hot_fraction: int = 0,
    newly_idle_fraction: int = 0,
) -> np.ndarray:
    """The module's record of a look that found this; shares of 255."""
    record = np.zeros(1, RECORD)
    record["kind"], record["page"] = Kind.ROUND, 7 << 48 | accessed
    record["pfn"] = np.array([newly_hot, newly_idle], np.uint32).view(np.uint64)
    record["order"], record["history"] = newly_hot_fraction, newly_idle_fraction
    return record


def test_what_looks_found_is_read_of_the_records_of_their_ends() -> None:
    record = ended(
        accessed=5,
        newly_hot=2**32 - 1,
        newly_idle=3,
        newly_hot_fraction=51,
        newly_idle_fraction=255,
    )
    other = page_record(1, 0xFF, 8)
    (found,) = list(summaries(np.concatenate([other, record, other])))
    assert found == ScanSummary(5, 2**32 - 1, 0.2, 3, 1.0)
    assert list(summaries(np.empty(0, RECORD))) == []


def test_news_are_read_without_consuming_and_make_looks_quick_when_polled() -> None:
    world = World()
    for _ in range(SCAN.warmup_scans + 1):
        world.look(0.1, 0)
    assert (world.source.phase_changed(), world.source.learning_ns) == (False, 0)
    pages = [page_record(n, 0b11000000, 8, PageFlags.HOT) for n in range(100)]
    world.ring.unread = [np.concatenate([*pages, ended(accessed=9)])]
    assert world.source.phase_change_fd == 99
    assert not world.source.phase_changed()
    world.ring.unread = [
        world.ring.unread[0],
        ended(accessed=100, newly_idle=100, newly_idle_fraction=255),
    ]
    assert world.source.phase_changed()
    assert world.source.phase_changed()  # until it is polled
    assert world.ring.consumed == 0
    assert world.control.periods[-1] == 800_000
    batch, _ = world.source.poll()
    assert (len(batch), world.ring.consumed) == (100, 102)
    assert world.control.periods[-1] == 200_000
    assert (world.source.learning_ns, world.source.phase_change_ns) == (400_000_000, world.now)
    assert not world.source.phase_changed()
    world.ring.closing = True
    assert world.source.phase_changed()  # `poll` lets go of it
    world.source.close()
    assert (world.source.phase_change_fd, world.source.phase_changed()) == (-1, False)
    assert world.source.learning_ns == 0
