# SPDX-License-Identifier: Apache-2.0
"""Steering with a real promoter, mover and heat table; cards and ring are the test's.

The pages are this process's own, on the one node it has: records say that they are on
node 1, so that the promoter asks the kernel for them and finds them there already.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakecards import FakeCards, card, host
from fakering import FakeRing, hot_records

from tierd.access import AccessBatch, Domain, WatchedRange, WatchedTarget
from tierd.heat.table import HeatTable
from tierd.kmod.neoprof import histogram_edges
from tierd.kmod.ring import Ring
from tierd.kmod.uapi import DEVICE, PARAMETERS
from tierd.mover import DryMover, NativeMover
from tierd.mover.orders import PromoterStats
from tierd.moves import Direction, Fate, MovePlan, MoveReport
from tierd.pagekey import VPN_BITS
from tierd.policy.fairness import NO_LIMIT, Groups
from tierd.policy.inputs import NodeUsage
from tierd.policy.neomem import NeoMemSettings
from tierd.policy.watermark import WatermarkSettings
from tierd.service.briefing import SteeringSettings
from tierd.service.changes import Changes, ForgetSettings
from tierd.service.explain import Reason
from tierd.service.nativepath import NativePath
from tierd.service.orders import victims
from tierd.service.refusals import LEAST
from tierd.service.selection import SourceSelector
from tierd.service.steering import Steering
from tierd.service.summary import Totals
from tierd.service.thresholds import Costs, Thresholds
from tierd.sources.neoprof import NeoProfSource
from tierd.tiermap import MemoryKind, MemoryNode, Provenance, Quantity, Tier, TierMap

S = 10**9
GIB = 1 << 30
PAGES = 64
LONG_S = 60.0


def two_tiers() -> TierMap:
    tiers, nodes = [], {}
    for rank, (latency, kind) in enumerate(((118, MemoryKind.DRAM), (430, MemoryKind.CXL))):
        figures = (Quantity(latency, Provenance.HMAT), Quantity(1e11, Provenance.HMAT))
        nodes[rank] = MemoryNode(rank, GIB, frozenset(), kind, *figures)
        tiers.append(Tier(rank, str(kind), kind, (rank,), GIB, *figures))
    return TierMap(tuple(tiers), nodes)


class Tracking:
    """This process and one of its ranges."""

    def __init__(self, start: int) -> None:
        self.pids = {0: os.getpid()}
        self.start = start

    def spans(self) -> list[tuple[int, int]]:
        return [(self.start, self.start + PAGES)]


class Scanner:
    """Has looked often enough."""

    dilution, taught_s = 1.0, 60.0
    aim: float | None = None

    def watch(self, targets: Any) -> None:
        pass

    def poll(self) -> list[AccessBatch]:
        return []

    def looked(self) -> tuple[int, float]:
        return 10, 0.4

    def wake(self) -> None:
        pass

    def pace(self, period_us: int) -> None:
        pass

    def close(self) -> None:
        pass


class Bench:
    def __init__(self, root: Path, mover: Any = None) -> None:
        host(root, {0: (0, 4), 1: (4, 8)})
        for folder in (DEVICE, PARAMETERS):
            (root / folder).parent.mkdir(parents=True, exist_ok=True)
        (root / DEVICE).touch()
        for node in (0, 1):
            text = f"Node {node} MemTotal: 1048576 kB\nNode {node} MemFree: 524288 kB\n"
            (root / f"sys/devices/system/node/node{node}/meminfo").write_text(text)
        self.memory = mmap.mmap(-1, PAGES * mmap.PAGESIZE)
        for page in range(PAGES):
            self.memory[page * mmap.PAGESIZE] = 1
        self.vpn = ctypes.addressof(ctypes.c_char.from_buffer(self.memory)) >> 12
        self.cards = FakeCards(card(0, (512, 1024)))
        self.rings: list[FakeRing] = []
        self.source = NeoProfSource(
            root=root,
            open_cards=self.cards.open,  # type: ignore[arg-type]
            open_ring=self.open_ring,
            make_scan=lambda settings, keep: Scanner(),  # type: ignore[arg-type,return-value]
        )
        self.selector = SourceSelector([self.source])
        self.heat = HeatTable(capacity_pages=10_000, half_life_s=5.0)
        self.mover = mover or NativeMover(rate_bytes_per_s=GIB)
        self.tracking = Tracking(self.vpn)
        self.steering = Steering(
            SteeringSettings(True, 5_000_000, 256_000_000, 5.0, 1.0),
            WatermarkSettings(),
            heat=self.heat,
            tracking=self.tracking,  # type: ignore[arg-type]
            sources=self.selector,
            mover=self.mover,
            thresholds=Thresholds(NeoMemSettings(), S),
            forget=ForgetSettings(),
            open_ring=self.open_ring,
            root=root,
        )
        self.usage = {node: NodeUsage(GIB, GIB // 2, 0) for node in (0, 1)}
        self.heat.advance(time.monotonic_ns())

    def open_ring(self, root: Path, kinds: Any) -> Ring:
        self.rings.append(FakeRing())
        return Ring(self.rings[-1].memory)

    def watch(self) -> None:
        target = WatchedTarget(0, os.getpid(), (WatchedRange(self.vpn, self.vpn + PAGES),))
        self.selector.watch([target], time.monotonic_ns())

    def tick(self, report: MoveReport | None = None, **more: Any) -> MoveReport | None:
        now = time.monotonic_ns()
        between = self.steering.begin(now)
        self.steering.end(now, two_tiers(), self.usage, report, **more)
        return between

    def put(self, pages: range, count: int = 40) -> None:
        records = hot_records(
            np.array(pages, np.uint64) + np.uint64(self.vpn), count, time.monotonic_ns()
        )
        self.rings[-1].put(records)

    def until_read(self) -> None:
        end = time.monotonic() + LONG_S
        while self.rings[-1].unread:
            assert time.monotonic() < end, "the promoter does not read"
            time.sleep(0.002)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.steering.close()
    made.selector.close()
    made.mover.close()


def test_hot_pages_are_taken_to_the_kernel_between_ticks_and_told_of(bench: Bench) -> None:
    bench.watch()
    bench.tick()
    bench.put(range(40))
    bench.until_read()
    between = bench.tick()
    assert between is not None
    assert len(between.plan) == 40
    assert set(between.fate) == {Fate.ALREADY_THERE}
    assert set(between.node) == {0}
    assert set(between.plan.direction) == {Direction.PROMOTE}
    told = bench.steering.explainer.explain(os.getpid(), bench.vpn << 12)
    assert told["decisions"][0]["fate"] == "already_there"
    totals = Totals()
    bench.steering.tell(totals)
    assert totals.native["records"] == 40


def test_a_node_that_went_offline_and_is_back_is_asked_anew(bench: Bench, tmp_path: Path) -> None:
    bench.watch()
    bench.tick()
    meminfo = tmp_path / "sys/devices/system/node/node1/meminfo"
    text = meminfo.read_text()
    meminfo.unlink()
    usage = bench.usage.pop(1)
    bench.tick()
    meminfo.write_text(text)
    bench.usage[1] = usage
    bench.tick()
    native = bench.steering._native
    assert native is not None
    assert os.fstat(native._promoter._meminfo[1]).st_nlink == 1


def one_group(floor: float, cap: float, resident: int) -> Groups:
    """Target 0 is a group with `resident` bytes in fast memory."""
    return Groups(
        of_target=np.zeros(1, np.int16),
        floor=np.array([floor]),
        cap=np.array([cap]),
        budget=np.array([NO_LIMIT]),
        resident={0: np.array([resident])},
    )


@pytest.mark.parametrize(("resident", "asked"), [(0, 40), (GIB // 2 - (64 << 20), 0)])
def test_a_group_near_its_cap_is_left_to_the_ticks(bench: Bench, resident: int, asked: int) -> None:
    bench.watch()
    bench.tick(groups=one_group(0.0, 0.5, resident))
    bench.put(range(40))
    bench.until_read()
    between = bench.tick(groups=one_group(0.0, 0.5, resident))
    assert (0 if between is None else len(between.plan)) == asked


def test_what_a_floor_holds_is_no_victim() -> None:
    heat = HeatTable(capacity_pages=1000, half_life_s=5.0)
    pages = np.arange(200, dtype=np.uint64)
    pages[100:] |= np.uint64(1 << VPN_BITS)
    heat.place(pages, np.zeros(200, np.int16), np.zeros(200, np.uint8), insert_on=[0])
    usage = {node: NodeUsage(GIB, 0, 0) for node in (0, 1)}
    policy = WatermarkSettings()
    free = victims(heat, two_tiers(), usage, policy, 150)
    assert len(free) == 150
    at_floor = one_group(0.5, 1.0, GIB // 2)
    found = victims(heat, two_tiers(), usage, policy, 150, groups=at_floor)
    assert set(found["page"]) == set(pages[100:])


def test_pages_that_may_not_move_are_never_asked_for(bench: Bench) -> None:
    bench.watch()
    bench.tick()
    bench.put(range(PAGES - 4, PAGES + 4))
    bench.until_read()
    between = bench.tick()
    assert between is not None
    assert len(between.plan) == 4
    stats = bench.steering.stats()
    assert stats is not None
    assert stats.held[Reason.NOT_MOVABLE] == 4


def test_what_may_move_is_asked_for_in_each_tick(bench: Bench) -> None:
    bench.watch()
    bench.tick()
    bench.tracking.start += 4
    bench.tick()
    bench.put(range(8))
    bench.until_read()
    between = bench.tick()
    assert between is not None
    assert len(between.plan) == 4
    stats = bench.steering.stats()
    assert stats is not None
    assert stats.held[Reason.NOT_MOVABLE] == 4


def test_paused_nothing_runs(bench: Bench) -> None:
    bench.watch()
    bench.tick()
    bench.tick(paused=True)
    bench.put(range(8))
    time.sleep(0.1)
    assert bench.rings[-1].unread == 8
    bench.tick()
    bench.until_read()


def test_when_the_source_is_lost_the_native_path_ends_and_comes_back(bench: Bench) -> None:
    bench.watch()
    bench.tick()
    first = bench.rings[-1]
    bench.cards.fail(0)
    bench.selector.close()
    bench.tick()
    first.put(hot_records([bench.vpn], 40, time.monotonic_ns()))
    time.sleep(0.1)
    assert first.unread == 1
    bench.cards.known[0] = card(0, (512, 1024))
    bench.watch()
    bench.tick()
    bench.put(range(4))
    bench.until_read()


def test_a_dry_run_has_no_native_path(tmp_path: Path) -> None:
    made = Bench(tmp_path, DryMover())
    made.watch()
    assert made.tick() is None
    made.put(range(4))
    time.sleep(0.05)
    assert made.rings[-1].unread == 4
    assert made.steering.stats() is None
    made.steering.close()
    made.selector.close()


def test_the_ticks_own_moves_count_for_bounces(bench: Bench) -> None:
    page = np.array([bench.vpn], np.uint64)

    def report(direction: Direction) -> MoveReport:
        plan = MovePlan(
            page,
            np.zeros(1, np.uint8),
            np.ones(1, np.int16),
            np.zeros(1, np.int16),
            np.array([direction], np.uint8),
            np.ones(1, np.float32),
        )
        return MoveReport(
            plan, np.array([Fate.MOVED], np.uint8), np.zeros(1, np.int16), {}, 4096, 1, 1, 0
        )

    bench.tick(report(Direction.DEMOTE))
    bench.tick(report(Direction.PROMOTE))
    totals = Totals()
    bench.steering.tell(totals)
    assert totals.bounced_pages == 1


def test_a_tick_shares_the_quota_while_the_native_path_runs(bench: Bench) -> None:
    def plan(pages: int) -> MovePlan:
        return MovePlan(
            np.arange(pages, dtype=np.uint64),
            np.zeros(pages, np.uint8),
            np.ones(pages, np.int16),
            np.zeros(pages, np.int16),
            np.full(pages, Direction.PROMOTE, np.uint8),
            np.ones(pages, np.float32),
        )

    quota = 256_000_000 // 4096
    assert len(bench.steering.allow(plan(quota + 10))) == quota + 10
    bench.watch()
    bench.tick()
    assert len(bench.steering.allow(plan(quota + 10))) == quota
    totals = Totals()
    bench.steering.tell(totals)
    assert totals.native["ticks_over_quota"] == 10


def test_thresholds_follow_the_histogram(bench: Bench) -> None:
    bench.watch()
    bench.cards.histogram[0] = (1 << 19) - 1000
    bench.cards.histogram[20] = 1000
    end = time.monotonic() + LONG_S
    while bench.cards.known[0].settings.threshold == 64 and time.monotonic() < end:
        bench.tick()
        time.sleep(0.05)
    threshold = bench.cards.known[0].settings.threshold
    edges = histogram_edges()
    assert edges[20] <= threshold < edges[21]
    assert bench.steering.around.thresholds() == {"0": threshold}


def test_no_threshold_is_below_what_pays_for_a_move(bench: Bench) -> None:
    """The counters of pages that pay have come to so much by then, and no others are reported."""
    bench.watch()
    thresholds, start = Thresholds(NeoMemSettings(), S), bench.source.epochs[0].start_ns
    bench.cards.histogram[0] = 1 << 19
    for seconds in (2, 4):
        assert thresholds.update(bench.source, Costs(0, 0, 0, 0, 0), start + seconds * S, 64.0)
        assert thresholds.decisions[0].state.threshold == seconds * 64
        assert bench.cards.known[0].settings.threshold == seconds * 64
    assert thresholds.update(bench.source, Costs(0, 0, 0, 0, 0), start + 6 * S)
    assert thresholds.decisions[0].state.threshold == NeoMemSettings().least_count


def test_what_pays_in_time_is_less_the_longer_the_hot_set_stands_still(bench: Bench) -> None:
    bench.watch()
    given, told = [], bench.steering.thresholds_of.update

    def update(source: Any, costs: Costs, now_ns: int, least_rate: float) -> bool:
        given.append(least_rate)
        return told(source, costs, now_ns, least_rate)

    bench.steering.thresholds_of.update = update  # type: ignore[method-assign]
    start = time.monotonic_ns()
    for seconds in (0, 1, 80):
        bench.steering.end(start + seconds * S, two_tiers(), bench.usage, None)
    # Two moves of 10 us in a second, and 80 s later in an eighth of these.
    assert given == pytest.approx([64.1, 64.1, 6.41], rel=0.01)
    native = bench.steering._native
    assert native is not None
    assert native._promoter._settings.least_rate == given[-1]


def test_the_native_path_exchanges_where_cards_see_all_once_it_knows_the_cold(
    bench: Bench,
) -> None:
    assert not bench.steering.exchanged
    bench.watch()
    bench.tick()
    assert not bench.steering.exchanged
    bench.source.poll()
    assert bench.steering.exchanged == bench.source.coverage.whole == {1}
    bench.steering.close()
    assert not bench.steering.exchanged


def test_an_overflow_that_the_driver_meets_later_is_not_another_one(bench: Bench) -> None:
    bench.watch()
    thresholds, now = Thresholds(NeoMemSettings(), S), time.monotonic_ns()
    costs = Costs(0, 0, 0, 0, 0)

    def overflows(seconds: int) -> bool:
        assert thresholds.update(bench.source, costs, now + seconds * S)
        return thresholds.decisions[0].overflow

    assert not overflows(10)
    bench.cards.counters["reports_refused"] = 500
    assert overflows(12)
    bench.cards.stats["overflows"] = 1
    assert not overflows(14)


def test_stopping_is_quick_while_records_come(bench: Bench) -> None:
    bench.watch()
    bench.tick()
    for _ in range(20):
        bench.put(range(PAGES))
    bench.steering.close()
    assert not bench.steering._native.running  # type: ignore[union-attr]


def test_a_moved_hot_set_fades_heat_and_begins_a_new_epoch(bench: Bench) -> None:
    bench.watch()
    now = time.monotonic_ns()

    def seen(pages: range, count: float) -> list[AccessBatch]:
        page = np.array(pages, np.uint64)
        counts = np.full(len(page), count, np.float32)
        return [AccessBatch(Domain.VIRTUAL, page, counts, now, "neoprof")]

    found = []
    for tick in range(30):
        now += S // 2
        hot = range(1000, 2000) if tick < 20 else range(5000, 6000)
        batches = seen(hot, 5.0) + seen(range(10_000 + 20 * tick, 10_020 + 20 * tick), 1.0)
        if bench.steering.see(batches, now):
            found.append(tick)
        for batch in batches:
            bench.heat.ingest(batch)
    # The new set is new for two ticks: then it is known as hot.
    assert found == [21]
    assert any("do" in asked for _, asked in bench.cards.asked[1:])


def test_many_refused_at_once_begin_a_new_epoch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.watch()
    bench.tick()
    refused = 0
    held = [0] * len(Reason)

    def stats(native: NativePath) -> PromoterStats:
        held[Reason.NOT_HOTTER] = refused
        return PromoterStats({}, tuple(held))

    monkeypatch.setattr(NativePath, "stats", stats)
    now = time.monotonic_ns()
    assert not bench.steering.leapt(now)
    asked = len(bench.cards.asked)
    for _ in range(8):
        now += S // 2
        assert not bench.steering.leapt(now)
        assert not bench.steering.see([], now)
    refused += 10 * LEAST
    assert bench.steering.leapt(now + S // 4)
    assert bench.steering.leapt(now + S // 4), "until a pass has seen to it"
    before = next(iter(bench.source.epochs.values())).start_ns
    assert not bench.steering.see([], now + S // 2), "no hot set has moved, as far as is known"
    assert "do" in bench.cards.asked[asked][1]
    assert next(iter(bench.source.epochs.values())).start_ns > before
    assert not bench.steering.leapt(now + S)
    monkeypatch.undo()
    totals = Totals()
    bench.steering.tell(totals)
    assert totals.native["epochs_cut"] == 1


def test_another_source_starts_another_watch() -> None:
    heat = HeatTable(capacity_pages=1000, half_life_s=5.0)
    changes = Changes(heat, ForgetSettings())
    page, now = np.arange(100, dtype=np.uint64), S
    few = AccessBatch(Domain.VIRTUAL, page[:1], np.ones(1, np.float32), S, "a")
    many = AccessBatch(Domain.VIRTUAL, page, np.full(100, 50, np.float32), S, "b")
    told = []
    for tick in range(20):
        now += S // 2
        told.append(changes.watch([few] if tick < 15 else [many], "a" if tick < 15 else "b", now))
    assert not any(told)


@pytest.mark.parametrize("beside", [True, False])
def test_a_cards_silence_is_a_level_to_rise_from_while_others_see_accesses(beside: bool) -> None:
    """All that is hot lies in fast memory, until the hot set moves."""
    heat = HeatTable(capacity_pages=1000, half_life_s=5.0)
    changes = Changes(heat, ForgetSettings())
    page, now = np.arange(300, dtype=np.uint64), S
    told = []
    for tick in range(30):
        now += S // 2
        batches = []
        if tick == 1:
            batches.append(AccessBatch(Domain.VIRTUAL, page[:9], page[:9] + 1.0, now, "a"))
        if tick >= 20:
            hot = page[(tick - 20) * 60 : (tick - 19) * 60]
            batches.append(AccessBatch(Domain.VIRTUAL, hot, np.full(len(hot), 50.0), now, "a"))
        if beside:
            batches.append(AccessBatch(Domain.VIRTUAL, page[:5], page[:5] + 1.0, now, "b"))
        if changes.watch(batches, "a", now):
            told.append(tick)
        for batch in batches:
            heat.ingest(batch)
    assert told == ([21] if beside else [])


def test_the_first_accesses_after_silence_are_no_change() -> None:
    heat = HeatTable(capacity_pages=1000, half_life_s=5.0)
    changes = Changes(heat, ForgetSettings())
    page, now = np.arange(100, dtype=np.uint64), S
    told = []
    for tick in range(40):
        now += S // 2
        batch = AccessBatch(Domain.VIRTUAL, page, np.full(100, 50, np.float32), now, "a")
        told.append(changes.watch([batch] if tick >= 20 else [], "a", now))
        if tick >= 20:
            heat.ingest(batch)
    assert not any(told)
