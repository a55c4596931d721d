# SPDX-License-Identifier: Apache-2.0
"""The promoter on a fake kernel with a clock of its own: what is promoted, and what is not."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakering import FakeRing, hot_records

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fake_kernel
from fake_kernel import FIRST_PAGE

from tierd.kmod import uapi
from tierd.mover import promoter as binding
from tierd.mover.orders import OUTCOME, SPAN, VICTIM, Orders, PromoterSettings, Way
from tierd.mover.promoter import Promoter
from tierd.moves import Direction, Fate
from tierd.service.explain import Reason

FAST, SLOW = 0, 1
MS, S = 10**6, 10**9
PAGE = 4096
SETTINGS = PromoterSettings(
    interval_ns=10 * MS,
    quota_bytes_per_s=1 << 30,
    residency_s=10.0,
    bounce_s=5.0,
    patience_s=1.0,
    margin=0.5,
    confidence=2.5,
    heat_s=7.0,
    rate_cap=7.0,
)


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return fake_kernel.build(tmp_path_factory.mktemp("fake_promoter"), promoter=True)


class FakeMover:
    """A mover of the fake kernel, as the binding knows it."""

    def __init__(self, native: Any, rate: int = 10**12) -> None:
        made = native.ffi.new("struct tierd_mover **")
        assert native.lib.tierd_mover_new(rate, max(rate // 10, 2 << 20), 1, 1.0, made) == 0
        self.handle = native.ffi.gc(made[0], native.lib.tierd_mover_free)

    def processes(self, pids: Any) -> list[tuple[int, int, int]]:
        return [(target, pid, 1) for target, pid in sorted(pids.items())]


class World:
    """Pages on two nodes, a ring, and a promoter whose intervals the test calls."""

    def __init__(self, native: Any, monkeypatch: Any, tmp_path: Path) -> None:
        self.lib = native.lib
        monkeypatch.setattr(binding, "ffi", native.ffi)
        monkeypatch.setattr(binding, "lib", native.lib)
        monkeypatch.setattr(Promoter, "_descriptor", lambda self, node: node)
        self.native = native
        self.ring = FakeRing()
        self.lib.fake_reset(1000)
        self.settings = SETTINGS
        self.victims: list[tuple[int, float]] = []
        self.spans = [(FIRST_PAGE, FIRST_PAGE + 16384)]
        self.low = self.kept = 0
        self.epoch_ns = self.now
        self.made: Promoter | None = None

    @property
    def now(self) -> int:
        return int(self.lib.fake_now())

    def build(self, rate: int = 10**12) -> Promoter:
        self.mover = FakeMover(self.native, rate)
        self.made = Promoter(self.mover, self.settings)  # type: ignore[arg-type]
        self.made.attach(self.ring.memory)
        self.steer()
        return self.made

    def steer(self) -> None:
        assert self.made is not None
        victims = np.zeros(len(self.victims), VICTIM)
        victims["page"] = [FIRST_PAGE + page for page, _ in self.victims]
        victims["heat"] = [heat for _, heat in self.victims]
        self.made.steer(
            Orders(
                spans=np.array(self.spans, SPAN),
                pids={0: 1},
                victims=victims,
                epochs={0: (self.epoch_ns, self.epoch_ns, 1)},
                ways={
                    FAST: Way(down=(SLOW,), low_bytes=self.low, held_bytes=self.kept),
                    SLOW: Way(up=(FAST,)),
                },
            )
        )

    def slow(self, pages: range) -> None:
        for page in pages:
            self.lib.fake_page(page, SLOW, 0, 0)

    def report(self, pages: Any, count: int = 40, **more: Any) -> None:
        keys = np.asarray(list(pages), np.uint64) + np.uint64(FIRST_PAGE)
        self.ring.put(hot_records(keys, count, self.now, **more))

    def run(self, intervals: int = 1) -> int:
        assert self.made is not None
        moved = 0
        for _ in range(intervals):
            self.lib.fake_pass(10 * MS)
            moved += self.made.step()
        return moved

    def held(self, reason: Reason) -> int:
        assert self.made is not None
        return self.made.stats().held[reason]

    def counter(self, name: str) -> int:
        assert self.made is not None
        return int(self.made.stats().counters[name])

    def node(self, page: int) -> int:
        return int(self.lib.fake_node(page))


@pytest.fixture
def world(native: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return World(native, monkeypatch, tmp_path)


def test_reported_pages_are_promoted_within_an_interval(world: World) -> None:
    world.slow(range(100))
    promoter = world.build()
    world.lib.fake_pass(S)
    world.report(range(50))
    assert world.run() == 50
    assert [world.node(page) for page in range(100)] == [FAST] * 50 + [SLOW] * 50
    told = promoter.take()
    assert len(told) == 50
    assert set(told["fate"]) == {Fate.MOVED}
    assert set(told["direction"]) == {Direction.PROMOTE}
    assert set(told["reason"]) == {Reason.HOTTER_THAN_THE_COLDEST}
    assert (told["heat"] > told["bar"]).all()
    assert world.ring.unread == 0
    assert len(promoter.take()) == 0


def test_a_page_reported_twice_is_moved_once(world: World) -> None:
    world.slow(range(10))
    promoter = world.build()
    world.lib.fake_pass(S)
    world.report([3, 3, 3])
    assert world.run() == 1
    world.report([3])
    assert world.run() == 0
    assert len(promoter.take()) == 1
    assert world.counter("stale") == 1


def test_what_may_not_be_moved_is_held_back_and_told(world: World) -> None:
    world.slow(range(100))
    world.spans = [(FIRST_PAGE + 10, FIRST_PAGE + 20), (FIRST_PAGE + 30, FIRST_PAGE + 40)]
    promoter = world.build()
    world.lib.fake_pass(S)
    world.report(range(50))
    assert world.run() == 20
    told = promoter.take()
    kept = told[told["fate"] == Fate.NOT_TRIED]
    assert set(kept["reason"]) == {Reason.NOT_MOVABLE}
    assert world.held(Reason.NOT_MOVABLE) == len(kept) == 30
    moved = sorted(told["page"][told["fate"] == Fate.MOVED] - FIRST_PAGE)
    assert moved == [*range(10, 20), *range(30, 40)]


def test_part_of_a_huge_folio_is_left_to_the_tick(world: World) -> None:
    world.slow(range(10))
    world.build()
    world.lib.fake_pass(S)
    world.report(range(10), order=9)
    assert world.run() == 0
    assert world.held(Reason.PART_OF_HUGE) == 10


def test_a_page_on_a_node_that_nothing_is_promoted_from_is_counted_only(world: World) -> None:
    world.build()
    world.lib.fake_pass(S)
    world.report(range(10), node=FAST)
    world.report(range(10), node=3)
    world.report(range(10), node=-1)
    assert world.run() == 0
    assert world.counter("not_slow") == 30


@pytest.mark.parametrize(("count", "moves"), [(6, 0), (7, 1), (1000, 1)])
def test_too_few_accesses_are_no_reason_to_move(world: World, count: int, moves: int) -> None:
    """confidence² = 6.25 accesses, whatever their rate."""
    world.slow(range(1))
    world.build()
    world.lib.fake_pass(4 * S)
    world.report([0], count=count)
    assert world.run() == moves
    assert world.held(Reason.NOT_HOTTER) == 1 - moves


def test_the_quota_holds_in_every_second(world: World) -> None:
    quota = 400 * PAGE
    world.settings = PromoterSettings(
        **{
            **{name: getattr(SETTINGS, name) for name in SETTINGS.__slots__},
            "quota_bytes_per_s": quota,
            "patience_s": 60.0,
        }
    )
    world.slow(range(4000))
    world.build()
    world.lib.fake_pass(S)
    world.report(range(4000), count=100)
    world.run(500)
    times, pages = (np.zeros(65536, np.uint64) for _ in range(2))
    ffi = world.native.ffi
    n = world.lib.fake_log(
        ffi.from_buffer("uint64_t[]", times), ffi.from_buffer("uint64_t[]", pages)
    )
    times = times[:n].astype(np.int64)
    assert 1500 < n <= 400 * 5
    in_second = np.searchsorted(times, times + S) - np.arange(n)
    assert in_second.max() <= quota // PAGE
    told = world.counter("most_in_a_second") // PAGE
    assert 0.9 * in_second.max() <= told <= quota // PAGE
    assert world.counter("pending") == 4000 - n


def test_who_waits_too_long_for_the_quota_is_told_so(world: World) -> None:
    world.settings = PromoterSettings(
        **{
            **{name: getattr(SETTINGS, name) for name in SETTINGS.__slots__},
            "quota_bytes_per_s": 128 * PAGE,
        }
    )
    world.slow(range(1000))
    world.build()
    world.lib.fake_pass(S)
    world.report(range(1000), count=100)
    moved = world.run(150)
    assert 128 <= moved <= 256
    assert world.held(Reason.OVER_QUOTA) == 1000 - moved
    assert world.counter("pending") == 0


def test_without_room_the_coldest_makes_way_for_the_hotter(world: World) -> None:
    world.lib.fake_room(FAST, 0)
    world.slow(range(10))
    world.victims = [(100 + page, 0.0) for page in range(4)] + [(104, 30.0), (105, 30.0)]
    world.build()
    world.lib.fake_pass(5 * S)
    world.report(range(10), count=60)
    # 60 accesses in 5 s are capped at 7 a second, heat 49; over 30 that does not win.
    assert world.run() == 8
    assert sum(world.node(page) == FAST for page in range(10)) == 4
    assert [world.node(100 + page) for page in range(6)] == [SLOW] * 4 + [FAST] * 2
    assert world.held(Reason.NOT_HOTTER) == 6


def test_without_room_and_victims_pages_wait_for_the_next_orders(world: World) -> None:
    world.lib.fake_room(FAST, 0)
    world.slow(range(10))
    world.build()
    world.lib.fake_pass(S)
    world.report(range(10))
    assert world.run(10) == 0
    assert world.counter("pending") == 10
    world.victims = [(100 + page, 0.0) for page in range(20)]
    world.steer()
    world.run(2)
    assert all(world.node(page) == FAST for page in range(10))
    assert world.counter("demoted") >= 10


def test_the_low_watermark_is_never_passed(world: World) -> None:
    world.lib.fake_room(FAST, 120)
    world.low = 100 * PAGE
    world.slow(range(50))
    world.build()
    world.lib.fake_pass(S)
    world.report(range(50))
    assert world.run(5) == 20
    assert world.lib.fake_room_left(FAST) == 100


def test_room_is_made_ahead_of_the_next_interval(world: World) -> None:
    world.lib.fake_room(FAST, 0)
    world.slow(range(2000))
    world.victims = [(4000 + page, 0.0) for page in range(3000)]
    world.build()
    world.lib.fake_pass(S)
    for step in range(10):
        world.report(range(step * 100, step * 100 + 100), count=40)
        world.run()
    left = int(world.lib.fake_room_left(FAST))
    assert 0 < left <= 100
    assert world.counter("promoted") == 1000
    assert world.counter("demoted") == 1000 + left


def test_free_pages_that_a_cpu_holds_are_room(world: World) -> None:
    world.lib.fake_room(FAST, 30)
    world.lib.fake_hold(FAST, 30)
    world.kept = 30 * PAGE
    world.slow(range(50))
    world.build()
    world.lib.fake_pass(S)
    world.report(range(50))
    assert world.run(5) == 30


def test_room_that_somebody_else_took_is_none(world: World) -> None:
    world.lib.fake_room(FAST, 1030)
    world.lib.fake_hold(FAST, 30)
    world.kept = 30 * PAGE
    world.low = 100 * PAGE
    world.slow(range(50))
    world.build()
    world.lib.fake_room(FAST, 90)
    world.lib.fake_pass(S)
    world.report(range(50))
    assert world.run(5) == 0


def test_room_that_a_cpu_holds_is_not_made_again(world: World) -> None:
    """What demotion frees stays out of MemFree: as much is demoted as is promoted."""
    world.lib.fake_room(FAST, 0)
    world.lib.fake_hold(FAST, 2000)
    world.slow(range(2000))
    world.victims = [(4000 + page, 0.0) for page in range(3000)]
    world.build()
    world.lib.fake_pass(S)
    for step in range(10):
        world.report(range(step * 100, step * 100 + 100), count=40)
        world.run()
    left = int(world.lib.fake_room_left(FAST))
    assert left <= 100
    assert world.counter("promoted") == 1000
    assert world.counter("demoted") == 1000 + left


def test_a_page_demoted_lately_stays_and_counts_as_a_bounce_held(world: World) -> None:
    world.lib.fake_room(FAST, 0)
    world.slow(range(1))
    world.victims = [(100, 0.0)]
    world.build()
    world.lib.fake_pass(S)
    world.report([0])
    world.run()
    assert world.node(100) == SLOW
    world.report([100])
    world.run()
    assert world.node(100) == SLOW
    assert world.counter("bounce_held") == 1
    assert world.held(Reason.MOVED_LATELY) == 1
    world.lib.fake_room(FAST, 10)
    world.lib.fake_pass(6 * S)
    world.report([100], count=200)
    world.run()
    assert world.counter("bounce_held") == 1, "six seconds on it is held, but no bounce"
    world.lib.fake_pass(5 * S)
    world.report([100], count=400)
    world.run()
    assert world.node(100) == FAST
    assert world.counter("bounced") == 0


def test_a_bounce_is_counted_whoever_moved_the_page(world: World) -> None:
    world.slow(range(10))
    promoter = world.build()

    class Plan:
        page = np.arange(5, dtype=np.uint64) + np.uint64(FIRST_PAGE)
        direction = np.zeros(5, np.uint8)

        def __len__(self) -> int:
            return 5

    class Report:
        plan = Plan()
        fate = np.full(5, Fate.MOVED, np.uint8)

    promoter.note(Report(), world.now)  # type: ignore[arg-type]
    Plan.direction = np.full(5, Direction.PROMOTE, np.uint8)
    promoter.note(Report(), world.now + 4 * S)  # type: ignore[arg-type]
    assert world.counter("bounced") == 5
    Plan.direction = np.zeros(5, np.uint8)
    promoter.note(Report(), world.now + 5 * S)  # type: ignore[arg-type]
    Plan.direction = np.full(5, Direction.PROMOTE, np.uint8)
    promoter.note(Report(), world.now + 11 * S)  # type: ignore[arg-type]
    assert world.counter("bounced") == 5


def test_on_hold_nothing_moves_and_nothing_is_lost(world: World) -> None:
    world.slow(range(10))
    promoter = world.build()
    world.lib.fake_pass(S)
    with promoter.held():
        world.report(range(10))
        assert world.run(5) == 0
        assert world.ring.unread == 10
    assert world.run() == 10


def test_moves_of_an_ended_process_are_gone(world: World) -> None:
    world.slow(range(10))
    promoter = world.build()
    world.lib.fake_pass(S)
    world.lib.fake_exit_at(world.now)
    world.report(range(10))
    assert world.run() == 0
    assert set(promoter.take()["fate"]) == {Fate.GONE}


def test_the_budget_of_the_mover_holds_for_the_promoter_too(world: World) -> None:
    """The shared bucket: 20 MiB a second, whatever the promoter's quota allows."""
    world.slow(range(16000))
    world.build(rate=20 << 20)
    world.lib.fake_pass(S)
    world.ring = FakeRing(16384)
    assert world.made is not None
    world.made.attach(world.ring.memory)
    world.report(range(16000), count=100)
    start = world.now
    world.run(30)
    seconds = (world.now - start) / S
    moved = world.counter("promoted") * PAGE
    assert 0.5 * seconds * (20 << 20) < moved <= seconds * (20 << 20) + (2 << 20)
    assert world.counter("longest_ns") <= 110 * MS


def test_more_than_can_be_looked_at_stays_in_the_ring(world: World) -> None:
    world.slow(range(16000))
    world.ring = FakeRing(65536)
    world.build()
    world.lib.fake_pass(S)
    for _ in range(4):
        world.report(range(10000))
    world.run()
    assert world.ring.unread == 40000 - 16384


def test_records_from_before_the_clear_use_the_epoch_before(world: World) -> None:
    """20 accesses in 4 s are no 20 accesses in a moment: heat tells."""
    world.slow(range(10))
    promoter = world.build()
    start = world.now
    world.lib.fake_pass(4 * S)
    keys = np.arange(3, dtype=np.uint64) + np.uint64(FIRST_PAGE)
    world.ring.put(hot_records(keys, 20, world.now))
    world.lib.fake_pass(MS)
    promoter.steer(
        Orders(
            spans=np.array(world.spans, SPAN),
            pids={0: 1},
            victims=np.zeros(0, VICTIM),
            epochs={0: (world.now, start, 1)},
            ways={FAST: Way(down=(SLOW,)), SLOW: Way(up=(FAST,))},
        )
    )
    assert world.run() == 3
    heat = promoter.take()["heat"]
    assert heat == pytest.approx([20 / 4.001 * 7.0] * 3, rel=1e-3)


def test_a_ring_of_another_layout_is_refused(world: World) -> None:
    promoter = world.build()
    world.ring.memory[6:8] = 0
    with pytest.raises(binding.UnavailableError):
        promoter.attach(world.ring.memory)


@pytest.mark.parametrize(
    "change",
    [{"interval_ns": 10}, {"quota_bytes_per_s": 0}, {"heat_s": 0.0}, {"rate_cap": 0.0}],
)
def test_settings_out_of_range_are_refused(world: World, change: dict[str, Any]) -> None:
    known = {name: getattr(SETTINGS, name) for name in SETTINGS.__slots__}
    world.settings = PromoterSettings(**{**known, **change})
    with pytest.raises(ValueError, match="promoter"):
        world.build()


def test_the_native_header_repeats_reasons_and_records(native: Any) -> None:
    lib, ffi = native.lib, native.ffi
    text = (fake_kernel.NATIVE / "tierd_native.h").read_text()
    body = text[text.index("enum tierd_reason {") : text.index("TIERD_REASONS")]
    values = [int(value) for value in re.findall(r"TIERD_\w+ = (\d+)", body)]
    assert values == [int(reason) for reason in Reason]
    assert len(Reason) == lib.TIERD_REASONS
    assert lib.TIERD_HEAD_AT == uapi.RING_HEAD
    assert lib.TIERD_RECORDS_AT == uapi.RING_DATA
    assert lib.TIERD_KIND_HOT == uapi.Kind.HOT
    assert ffi.sizeof("struct tierd_hot_record") == uapi.RECORD.itemsize
    names = {"card": "history", "count": "value"}
    for name, field in ffi.typeof("struct tierd_hot_record").fields:
        dtype, offset = uapi.RECORD.fields[names.get(name, name)][:2]
        assert (field.offset, ffi.sizeof(field.type)) == (offset, dtype.itemsize)
    for dtype, kind in ((OUTCOME, "struct tierd_outcome"), (VICTIM, "struct tierd_victim")):
        fields = dict(ffi.typeof(kind).fields)
        for name in dtype.names:
            assert dtype.fields[name][1] == fields[name].offset
