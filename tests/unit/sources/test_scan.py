# SPDX-License-Identifier: Apache-2.0
"""The scan source with a module that is played by the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tierd._native import lib
from tierd.access import WatchedRange, WatchedTarget
from tierd.errors import TargetGoneError, UnavailableError
from tierd.kmod.netlink import TargetState
from tierd.kmod.uapi import DEVICE, MAX_RANGES, PARAMETERS, RECORD, Kind, PageFlags
from tierd.sources._looks import Looks
from tierd.sources._scan_records import COUNTS, ScanRecords
from tierd.sources.scan import ScanSettings, ScanSource, merged


class FakeControl:
    """Keeps what was asked; pids in `gone` do not exist, and `broken` refuses all."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.gone: set[int] = set()
        self.broken = False
        self.closed = False
        self.exposures: list[int] = []
        self.periods: list[int] = []
        self.stats: dict[int, dict[str, int]] = {}

    def _note(self, *call: Any) -> None:
        if self.broken:
            raise UnavailableError("refused")
        self.calls.append(call)

    def scan_set(self, **settings: Any) -> None:
        if "exposure_us" in settings:
            self.exposures.append(settings["exposure_us"])
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

    def views(self) -> list[np.ndarray]:
        taken, self.unread = self.unread, []
        return taken

    def consume(self, count: int) -> None:
        self.consumed += count

    def close(self) -> None:
        self.closed = True


def record(
    page: int, history: int, depth: int, flags: int = PageFlags.HOT, order: int = 0
) -> np.ndarray:
    made = np.zeros(1, RECORD)
    made["page"], made["history"], made["value"] = page, history, depth
    made["kind"], made["flags"], made["order"] = Kind.PAGE, flags, order
    return made


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
        ScanSettings(period_us=100_000, cpu_share=0.02, least_exposure_us=50_000),
        clock=lambda: 77,
        open_control=opened_control,
        open_ring=opened_ring,
    )


def target(number: int, pid: int, *ranges: tuple[int, int]) -> WatchedTarget:
    return WatchedTarget(number, pid, tuple(WatchedRange(*pair) for pair in ranges))


def test_the_pace_may_change_while_it_runs_and_before(
    source: ScanSource, control: FakeControl
) -> None:
    source.pace(200_000)
    source.watch([target(1, 10, (0, 5))])
    source.pace(300_000)
    assert control.calls == [
        ("set", 200_000, 20_000),
        ("add", 1, 10, [(0, 5)]),
        ("pace", 300_000),
    ]


def test_watch_sends_settings_once_and_then_only_what_changed(
    source: ScanSource, control: FakeControl
) -> None:
    source.watch([target(1, 10, (0, 5)), target(2, 20, (7, 9))])
    source.watch([target(1, 10, (0, 5)), target(2, 20, (7, 10))])
    source.watch([target(2, 20, (7, 10)), target(3, 30, (1, 2))])
    assert control.calls == [
        ("set", 100_000, 20_000),
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
    ring.unread = [np.concatenate([record(5, 0xFF, 8), mark]), record(6, 0x80, 8)]
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
        ring.unread = [np.repeat(record(5, 0xFF, 8), 500)]
        source.poll()
    for _ in range(3):
        ring.unread = [record(5, 0xFF, 8)]
        source.poll()
    assert control.calls[2:] == [
        ("classes", 3, 2),
        ("classes", 4, 3),
        ("classes", 3, 2),
        ("classes", 2, 1),
    ]


def test_counts_are_those_of_a_poisson_stream() -> None:
    rng = np.random.default_rng(5)
    for rate in (0.05, 0.3, 1.0):
        looks = rng.poisson(rate, (20_000, 8)) > 0
        history = np.packbits(looks, axis=1)[:, 0]
        assert abs(COUNTS[8, history].mean() / rate - 1) < 0.15


def to_batch(records: np.ndarray, report_scans: int = 1, *, writes: bool = False) -> Any:
    return ScanRecords("scan", report_scans, writes=writes).batch(records, 0)


def test_a_page_that_has_cooled_has_no_accesses() -> None:
    records = np.concatenate([record(1, 1, 8, PageFlags.CHANGED), record(2, 1, 8)])
    batch = to_batch(records)
    assert batch.page.tolist() == [2]
    assert batch.is_write is None


def test_the_native_header_repeats_kinds_and_flags() -> None:
    assert lib.TIERD_KIND_PAGE == Kind.PAGE
    for flag in ("HOT", "CHANGED", "DIRTY", "PMD"):
        assert getattr(lib, f"TIERD_RECORD_{flag}") == PageFlags[flag]


def test_a_huge_page_counts_for_each_of_its_pages() -> None:
    huge = PageFlags.PMD | PageFlags.HOT
    records = np.concatenate([record(512, 0x80, 1, huge, 9), record(1, 0x80, 1, PageFlags.HOT, 4)])
    batch = to_batch(records)
    assert batch.count[0] == pytest.approx(512 * batch.count[1])


def test_writes_are_told_where_dirty_bits_are_read() -> None:
    dirty = PageFlags.DIRTY | PageFlags.HOT
    batch = to_batch(np.concatenate([record(1, 1, 8, dirty), record(2, 1, 8)]), writes=True)
    assert batch.is_write is not None
    assert batch.is_write.tolist() == [True, False]


@pytest.mark.parametrize("rate", [0.4, 0.8, 1.2])
@pytest.mark.parametrize("report_scans", [1, 2, 4])
def test_reports_in_turns_add_up_to_the_accesses(rate: float, report_scans: int) -> None:
    """Pages that are hot for a while, played as the module classifies and reports them."""
    rng = np.random.default_rng(report_scans)
    pages, looks, warm = 2000, 100, 80
    accesses = rng.poisson(rate, (looks, pages)) * (np.arange(looks) < warm)[:, None]
    history = np.zeros(pages, np.uint8)
    hot = np.zeros(pages, bool)
    told = 0.0
    for look in range(looks):
        history = history >> 1 | np.uint8(0x80) * (accesses[look] > 0)
        seen = np.unpackbits(history[:, None], axis=1).sum(axis=1)
        now = (seen >= 2) | (hot & (seen > 1))
        changed, hot = now != hot, now
        chosen = changed | (hot & ((np.arange(pages) // 8 + look) % report_scans == 0))
        records = np.zeros(int(chosen.sum()), RECORD)
        records["kind"], records["history"] = Kind.PAGE, history[chosen]
        records["value"] = min(look + 1, 8)
        records["flags"] = hot[chosen] * PageFlags.HOT + changed[chosen] * PageFlags.CHANGED
        told += float(to_batch(records, report_scans).count.sum())
    assert told / accesses.sum() == pytest.approx(1, abs=0.25)


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

    def __init__(self, *, period_us: int = 400_000) -> None:
        self.control, self.now = FakeControl(), 10**9
        control: Any = lambda: self.control  # noqa: E731
        ring: Any = lambda root: FakeRing()  # noqa: E731
        self.source = ScanSource(
            ScanSettings(period_us=period_us),
            clock=lambda: self.now,
            open_control=control,
            open_ring=ring,
        )
        self.source.aim = 0.3
        self.source.watch([target(1, 10, (0, 5))])
        self.rounds = 0

    def look(self, share: float, exposure_ms: float, *, rounds: int = 1) -> int:
        """Whole rounds that found a share accessed; the exposure set after them, in us."""
        self.rounds += rounds
        self.now += 10**9
        self.control.stats[1] = {
            "rounds": self.rounds,
            "round_pages": 10_000,
            "round_accessed": int(10_000 * share),
            "period_ns": self.control.periods[-1] * 1000,
            "exposure_ns": int(exposure_ms * 1e6),
        }
        self.source.poll()
        return self.control.exposures[-1]


def test_looks_stay_whole_where_little_is_used() -> None:
    world = World()
    assert (world.control.exposures, world.control.periods) == ([0], [400_000])
    assert world.source.learning
    for _ in range(5):
        assert world.look(0.1, 0) == 0
    assert not world.source.learning
    assert world.control.periods[-1] == 400_000
    assert world.source.dilution == 1.0


def test_looks_are_shortened_where_all_is_used_and_settle() -> None:
    world = World()
    world.look(0.97, 0)  # of the time before
    assert world.look(0.97, 0) == 25_000
    assert world.control.periods[-1] == 100_000
    world.look(0.97, 0)  # the round that was under way
    for _ in range(6):
        assert world.look(0.4, 25) == 25_000
    assert not world.source.learning
    assert world.control.periods[-1] == 400_000
    assert world.source.dilution == pytest.approx(25 / 400)


def test_programs_that_sleep_teach_nothing_for_a_while() -> None:
    world = World()
    for _ in range(20):
        assert world.look(0.0, 0) == 0
    assert world.source.learning
    assert world.source.taught_s == 0
    for _ in range(4):
        world.look(0.1, 0)
    assert not world.source.learning


def test_what_goes_on_sleeping_is_known_to_be_cold() -> None:
    world = World()
    for _ in range(40):
        world.look(0.0, 0)
    assert not world.source.learning


def looks(now: list[int]) -> Looks:
    made = Looks(400_000, 2_000, lambda: now[0])
    made.aim = 0.3
    return made


def stats(rounds: int, share: float, pages: int = 1000, us: int = 10_000) -> dict[str, int]:
    """As the module tells them, of looks with such an exposure."""
    accessed = int(pages * share)
    return {"rounds": rounds, "round_pages": pages, "round_accessed": accessed,
            "period_ns": 10**8, "exposure_ns": 1000 * us}  # fmt: skip


def test_a_process_that_comes_late_is_known_after_as_many_looks_at_it() -> None:
    made = looks([0])
    for rounds in range(1, 10):
        made.take({1: stats(rounds, 0.0)})  # asleep: counted anew from its ninth look
    for rounds in range(10, 5000, 1000):
        made.take({1: stats(rounds, 0.3)})
    assert not made.learning
    made.take({1: stats(5001, 0.3), 2: stats(0, 0.3, pages=0)})
    assert made.learning
    for rounds in range(1, 5):
        made.take({1: stats(5001 + rounds, 0.3), 2: stats(rounds, 0.3)})
    assert not made.learning


def test_a_number_that_another_process_has_now_counts_from_its_beginning() -> None:
    made = looks([0])
    for rounds in range(1, 20):
        made.take({1: stats(300 + rounds, 0.0)})
    for rounds in range(1, 6):
        made.take({1: stats(rounds, 0.3)})
    assert not made.learning


def test_when_far_more_memory_is_watched_learning_begins_anew() -> None:
    made = looks([0])
    for rounds in range(1, 40):
        made.take({1: stats(rounds, 0.0, us=made.exposure_us)})
    assert (made.exposure_us, made.learning) == (0, False)
    made.take({1: stats(41, 0.0), 2: stats(2, 0.9, pages=50_000)})
    assert made.learning
    for rounds in range(4, 12):
        made.take({1: stats(40 + rounds, 0.0), 2: stats(rounds, 0.3, pages=50_000)})
    assert not made.learning


def test_what_is_known_stays_known_when_use_changes_later() -> None:
    world = World()
    for _ in range(6):
        world.look(0.3, 0)
    assert not world.source.learning
    assert world.look(0.95, 0) == 0  # once is none
    assert world.look(0.3, 0) == 0
    assert [world.look(0.95, 0) for _ in range(3)] == [0, 0, 25_000]
    assert not world.source.learning


def test_without_word_of_fast_memory_the_exposure_stays() -> None:
    world = World()
    world.source.aim = None
    assert [world.look(0.95, 0) for _ in range(3)] == [0, 0, 0]


def test_a_short_period_is_always_whole() -> None:
    assert World(period_us=20_000).control.exposures == [0]
