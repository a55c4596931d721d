# SPDX-License-Identifier: Apache-2.0
"""The heat table against a model in plain Python, and each of its rules by itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tierd.access import AccessBatch, Domain, WatchedRange
from tierd.heat.table import HeatTable
from tierd.heat.view import HeatView
from tierd.moves import Fate, MovePlan, MoveReport

S = 10**9
T = 3 << 48
HUGE = 512


def batch(page: Any, count: Any = 1.0, *, at: int = S) -> AccessBatch:
    pages = np.asarray(page, np.uint64)
    counts = np.broadcast_to(np.asarray(count, np.float32), pages.shape).copy()
    return AccessBatch(Domain.VIRTUAL, pages, counts, at, "test")


def place(table: HeatTable, page: Any, node: Any, order: int = 0, insert_on: Any = ()) -> None:
    pages = np.asarray(page, np.uint64)
    nodes = np.broadcast_to(np.asarray(node, np.int16), pages.shape).copy()
    table.place(pages, nodes, np.full(len(pages), order, np.uint8), insert_on=insert_on)


def report(page: Any, fate: Fate, node: int) -> MoveReport:
    pages = np.asarray(page, np.uint64)
    n = len(pages)
    plan = MovePlan(
        page=pages,
        order=np.zeros(n, np.uint8),
        source=np.zeros(n, np.int16),
        dest=np.full(n, node, np.int16),
        direction=np.zeros(n, np.uint8),
        heat=np.zeros(n, np.float32),
    )
    return MoveReport(
        plan=plan,
        fate=np.full(n, fate, np.uint8),
        node=np.full(n, node, np.int16),
        errors={},
        moved_bytes=0,
        duration_ns=0,
        cpu_ns=0,
        retries=0,
    )


def table(capacity: int = 10_000, half_life_s: float = 1.0) -> HeatTable:
    return HeatTable(capacity_pages=capacity, half_life_s=half_life_s)


def heat_of(of: HeatTable, key: int) -> float:
    found = of.lookup(key)
    return float(found.heat[0]) if len(found) else math.nan


def test_it_is_a_heat_view() -> None:
    view: HeatView = table()
    assert len(view.hottest(0, 5)) == 0
    assert view.quantile(0, 0.5) == 0.0


def test_another_half_life_counts_from_now_on() -> None:
    one = table(half_life_s=2.0)
    one.ingest(batch([T], 8.0))
    one.advance(5 * S)
    one.set_half_life(1.0)
    assert heat_of(one, T) == pytest.approx(2.0)
    one.advance(6 * S)
    assert heat_of(one, T) == pytest.approx(1.0)
    one.ingest(batch([T + 1], 4.0, at=6 * S))
    one.set_half_life(0.5)
    one.advance(7 * S)
    assert heat_of(one, T) == pytest.approx(0.25)
    assert heat_of(one, T + 1) == pytest.approx(1.0)
    one.check()


def test_a_half_life_of_nothing_is_refused() -> None:
    one = table(half_life_s=1.0)
    with pytest.raises(ValueError, match="half_life_s=0"):
        one.set_half_life(0.0)
    one.ingest(batch([T], 8.0))
    one.advance(2 * S)
    assert heat_of(one, T) == pytest.approx(4.0)


def test_heat_halves_each_half_life() -> None:
    one = table(half_life_s=2.0)
    one.ingest(batch([T], 8.0))
    one.advance(5 * S)
    assert heat_of(one, T) == pytest.approx(2.0)


def test_an_older_batch_counts_as_much_less() -> None:
    one = table()
    one.advance(10 * S)
    one.ingest(batch([T], 8.0, at=7 * S))
    assert heat_of(one, T) == pytest.approx(1.0)


def test_the_order_of_heat_survives_ages_of_decay() -> None:
    one = table()
    for second in range(1, 400):
        one.ingest(batch([T + second % 3], 1 + second % 3, at=second * S))
    place(one, [T, T + 1, T + 2], 0)
    assert one.hottest(0, 3).page.tolist() == [T + 2, T, T + 1]
    assert heat_of(one, T) == pytest.approx(1.0 / (1 - 2**-3), rel=1e-3)


def test_hottest_and_coldest_are_sorted_and_of_one_node() -> None:
    one = table()
    random = np.random.default_rng(1)
    page = T + random.permutation(5000).astype(np.uint64)
    heat = random.exponential(10, 5000).astype(np.float32)
    one.ingest(batch(page, heat))
    node = (page % np.uint64(3)).astype(np.int16)
    place(one, page, node)
    for which in range(3):
        mine = np.sort(heat[node == which])
        hot, cold = one.hottest(which, 200), one.coldest(which, 200)
        assert hot.heat.tolist() == mine[::-1][:200].tolist()
        assert cold.heat.tolist() == mine[:200].tolist()
        assert (hot.node == which).all() and (cold.node == which).all()


def test_hottest_leaves_out_what_is_not_hotter_than_asked() -> None:
    one = table()
    one.ingest(batch([T, T + 1, T + 2], [1.0, 2.0, 3.0]))
    place(one, [T, T + 1, T + 2, T + 3], 0, insert_on=[0])
    assert one.hottest(0, 10, 2.0).page.tolist() == [T + 2]
    assert len(one.hottest(0, 10)) == 3
    assert len(one.coldest(0, 10)) == 4


def test_equal_heat_goes_by_key_so_that_replays_agree() -> None:
    one = table()
    place(one, T + np.arange(1000, dtype=np.uint64)[::-1], 0, insert_on=[0])
    assert one.coldest(0, 10).page.tolist() == [T + each for each in range(10)]


def test_pages_are_inserted_cold_only_where_wanted() -> None:
    one = table()
    place(one, [T], 0, insert_on=[0])
    place(one, [T + 1], 1, insert_on=[0])
    assert one.stats().tracked == 1
    assert one.coldest(0, 5).heat.tolist() == [0.0]


def test_samples_of_a_folio_count_for_its_first_page_by_density() -> None:
    one = table()
    place(one, [T], 0, order=9, insert_on=[0])
    one.ingest(batch(T + np.arange(HUGE, dtype=np.uint64), 4.0))
    assert one.stats().tracked == 1
    assert heat_of(one, T) == pytest.approx(4.0)
    one.ingest(batch([T + 100], 512.0))
    assert heat_of(one, T) == pytest.approx(5.0)


def test_pages_that_become_a_folio_are_joined() -> None:
    one = table()
    one.ingest(batch(T + np.arange(1, 257, dtype=np.uint64), 2.0))
    place(one, [T + 77], 1, order=9)
    stats = one.stats()
    assert (stats.tracked, stats.huge, stats.folded) == (1, 1, 1)
    assert heat_of(one, T) == pytest.approx(1.0)
    assert one.hottest(1, 1).order.tolist() == [9]


def test_pages_of_a_split_folio_inherit_its_heat_and_history() -> None:
    one = table()
    place(one, [T], 1, order=9, insert_on=[1])
    one.ingest(batch(T + np.arange(HUGE, dtype=np.uint64), 3.0))
    one.moved(report([T], Fate.MOVED, 0))
    place(one, [T + 5], 1)
    stats = one.stats()
    assert (stats.tracked, stats.huge, stats.split) == (HUGE, 0, 1)
    assert heat_of(one, T + 511) == pytest.approx(3.0)
    assert np.isfinite(one.lookup(T + 9).idle_s).all()
    assert one.lookup(T + 5).node.tolist() == [1]
    assert one.lookup(T + 6).node.tolist() == [0]


def test_a_cold_folio_that_is_split_takes_no_room() -> None:
    one = table()
    place(one, [T], 1, order=9, insert_on=[1])
    place(one, [T], 1, insert_on=[0])
    assert one.stats().tracked == 1


def test_a_full_table_keeps_hot_pages_and_those_of_wanted_nodes() -> None:
    one = table(capacity=1000)
    fast = T + np.arange(300, dtype=np.uint64)
    hot = T + np.arange(1000, 1200, dtype=np.uint64)
    place(one, fast, 0, insert_on=[0])
    one.ingest(batch(hot, 100.0))
    for step in range(20):
        low = 10_000 + 500 * step
        one.ingest(batch(T + np.arange(low, low + 500, dtype=np.uint64), 1.0))
    stats = one.stats()
    assert stats.tracked <= 1000
    assert stats.evicted >= 300 + 200 + 10_000 - 1000
    assert all(len(one.lookup(int(each))) for each in [*fast, *hot])
    one.check()


def test_cold_inserts_do_not_push_out_what_is_known_of_fast_nodes() -> None:
    one = table(capacity=100)
    place(one, T + np.arange(300, dtype=np.uint64), 0, insert_on=[0])
    stats = one.stats()
    assert stats.tracked == 100
    assert stats.evicted == 0
    assert stats.dropped["full"] == 200


def test_records_that_mean_nothing_are_counted_as_dropped() -> None:
    one = table()
    counts = np.array([math.nan, -1.0, math.inf, 0.0, 1.0], np.float32)
    one.ingest(batch(T + np.arange(5, dtype=np.uint64), counts))
    one.ingest(batch([2**64 - 1], 1.0))
    assert one.stats().tracked == 1
    assert one.stats().dropped["invalid"] == 4


def test_physical_pages_are_refused() -> None:
    with pytest.raises(ValueError, match="physical"):
        table().ingest(
            AccessBatch(Domain.PHYSICAL, np.zeros(1, np.uint64), np.ones(1, np.float32), 1, "x")
        )


def test_where_tells_the_node_of_every_page_of_a_folio() -> None:
    made = table()
    place(made, [T, T + HUGE], [1, 0], order=9, insert_on=(0, 1))
    place(made, [T + 5 * HUGE], 0, insert_on=(0,))
    made.ingest(batch([T + 7 * HUGE]))
    asked = [T, T + 511, T + HUGE, T + HUGE + 17, T + 5 * HUGE, T + 5 * HUGE + 1, T + 7 * HUGE]
    assert made.where(np.array(asked, np.uint64)).tolist() == [1, 1, 0, 0, 0, -1, -1]
    assert made.where(np.empty(0, np.uint64)).tolist() == []


@pytest.mark.parametrize("halves", [0.001, 0.5, 1.0, 3.3, 59.0, 61.0, 100.0])
def test_heat_decays_by_powers_of_two(halves: float) -> None:
    made = table(half_life_s=1.0)
    made.ingest(batch([T], 1e12, at=S))
    made.advance(S + round(halves * S))
    found = float(made.lookup(T).heat[0])
    assert found == pytest.approx(1e12 * 2.0**-halves, rel=3e-7, abs=2.0**-30)


def test_a_move_sets_node_and_time() -> None:
    one = table()
    one.ingest(batch([T, T + 1]))
    place(one, [T, T + 1], 1)
    one.moved(report([T], Fate.MOVED, 0))
    one.moved(report([T + 1], Fate.BUSY, 1))
    one.advance(4 * S)
    assert one.lookup(T).node.tolist() == [0]
    assert one.lookup(T).idle_s[0] == pytest.approx(3.0, abs=0.25)
    assert np.isinf(one.lookup(T + 1).idle_s).all()


@pytest.mark.parametrize("later_s", [1, 100, 3000])
def test_the_time_of_a_move_is_kept_for_an_hour(later_s: int) -> None:
    one = table()
    one.ingest(batch([T]))
    one.moved(report([T], Fate.MOVED, 0))
    for second in range(0, later_s + 1, max(1, later_s // 50)):
        one.advance(S + second * S)
    one.advance(S + later_s * S)
    assert one.lookup(T).idle_s[0] == pytest.approx(later_s, abs=0.25)


def test_a_move_long_ago_counts_as_never() -> None:
    one = table()
    one.ingest(batch([T]))
    one.moved(report([T], Fate.MOVED, 0))
    for hour in range(1, 40):
        one.advance(S + hour * 1800 * S)
        idle = one.lookup(T).idle_s[0]
        assert np.isinf(idle) or idle == pytest.approx(hour * 1800, abs=1)
    assert np.isinf(one.lookup(T).idle_s).all()


def test_pages_that_are_gone_are_forgotten() -> None:
    one = table()
    one.ingest(batch([T, T + 1]))
    one.moved(report([T], Fate.GONE, -1))
    place(one, [T + 1], -2)
    assert one.stats().tracked == 0


def test_ranges_and_targets_are_forgotten() -> None:
    one = table()
    other = 4 << 48
    pages = np.arange(100, dtype=np.uint64)
    one.ingest(batch(np.concatenate([pages + T, pages + other])))
    one.keep_ranges(3, [WatchedRange(50, 60), WatchedRange(10, 20)])
    assert one.stats().tracked == 120
    assert len(one.lookup(T + 10)) and len(one.lookup(T + 59))
    assert not len(one.lookup(T + 20)) and not len(one.lookup(T + 9))
    one.forget_target(4)
    assert one.stats().tracked == 20
    one.check()


def test_unplaced_lists_the_hottest_pages_without_a_confirmed_place() -> None:
    one = HeatTable(capacity_pages=100, half_life_s=10.0, refresh_s=5.0)
    one.ingest(batch([T, T + 1, T + 2], [1.0, 2.0, 3.0], at=0))
    assert one.unplaced(2).tolist() == [T + 2, T + 1]
    place(one, [T, T + 1, T + 2], 0)
    one.advance(6 * S)
    assert len(one.unplaced(5)) == 0
    place(one, [T + 1], 0)
    for second in range(7, 100):
        one.advance(second * S)
        if second == 11:
            assert one.unplaced(5).tolist() == [T + 2, T]
    assert one.unplaced(5).tolist() == [T + 2, T + 1, T]


def test_histogram_counts_4k_pages_and_quantiles_follow_it() -> None:
    one = table()
    place(one, [T + 10 * HUGE], 0, order=9, insert_on=[0])
    one.ingest(batch(T + np.arange(1, 1001, dtype=np.uint64), np.arange(1, 1001)))
    place(one, T + np.arange(1, 1001, dtype=np.uint64), 1)
    assert one.histogram(0).pages.tolist()[0] == HUGE
    histogram = one.histogram(1)
    assert histogram.pages.sum() == 1000
    assert len(histogram.edges) == len(histogram.pages)
    below = np.searchsorted(histogram.edges, np.arange(1, 1001), side="right") - 1
    assert np.bincount(below, minlength=len(histogram.pages)).tolist() == histogram.pages.tolist()
    for share in (0.1, 0.5, 0.9, 1.0):
        assert one.quantile(1, share) == pytest.approx(1000 * share, rel=0.13)
    with pytest.raises(ValueError, match="share"):
        one.quantile(1, 1.1)


def test_memory_is_bounded_by_24_bytes_a_page() -> None:
    capacity = 200_000
    one = table(capacity=capacity)
    one.ingest(batch(T + np.arange(2 * capacity, dtype=np.uint64) * np.uint64(7)))
    one.histogram(0)
    assert one.stats().tracked <= capacity
    assert one.memory_bytes <= 24 * capacity
    one.check()


class Model(RuleBasedStateMachine):
    """Ingest, time, placement, moves and forgetting, in any order, against dictionaries."""

    blocks = 3

    def __init__(self) -> None:
        super().__init__()
        self.table = HeatTable(capacity_pages=4000, half_life_s=3.0)
        self.now = S
        self.heat: dict[int, float] = {}
        self.node: dict[int, int] = {}
        self.huge: set[int] = set()

    @initialize()
    def begin(self) -> None:
        self.table.advance(self.now)

    def _decay(self, time_ns: int) -> None:
        factor = 2.0 ** -((time_ns - self.now) / S / 3.0)
        self.heat = {key: heat * factor for key, heat in self.heat.items()}
        self.now = time_ns

    def _entry(self, key: int) -> int:
        head = key & ~(HUGE - 1)
        return head if head in self.huge else key

    def _forget(self, key: int) -> None:
        self.heat.pop(key, None)
        self.node.pop(key, None)
        self.huge.discard(key)

    pages = st.lists(st.integers(0, blocks * HUGE - 1), min_size=1, max_size=40)

    @rule(page=pages, count=st.floats(0.25, 100.0, width=32), wait=st.integers(0, 20))
    def ingest(self, page: list[int], count: float, wait: int) -> None:
        self._decay(self.now + wait * S)
        keys = [T + each for each in page]
        self.table.ingest(batch(keys, count, at=self.now))
        for key in keys:
            entry = self._entry(key)
            amount = count / HUGE if entry in self.huge else count
            self.heat[entry] = self.heat.get(entry, 0.0) + amount
            self.node.setdefault(entry, -1)

    @rule(wait=st.integers(1, 400))
    def advance(self, wait: int) -> None:
        self._decay(self.now + wait * S)
        self.table.advance(self.now)

    @rule(block=st.integers(0, blocks - 1), node=st.integers(0, 2), inside=st.integers(0, 511))
    def join(self, block: int, node: int, inside: int) -> None:
        head = T + block * HUGE
        place(self.table, [head + inside], node, order=9, insert_on=[0])
        if head not in self.huge:
            known = [key for key in range(head, head + HUGE) if key in self.heat]
            if not known and node != 0:
                return
            total = sum(self.heat[key] for key in known)
            for key in known:
                self._forget(key)
            self.heat[head] = total / HUGE
            self.huge.add(head)
        self.node[head] = node

    @rule(page=pages, node=st.integers(0, 2))
    def place(self, page: list[int], node: int) -> None:
        place(self.table, [T + each for each in page], node, insert_on=[0])
        for key in (T + each for each in page):
            head = key & ~(HUGE - 1)
            if head in self.huge:
                self.huge.discard(head)
                if self.heat[head] >= 2.0**-14 or self.node[head] == 0:
                    for each in range(head + 1, head + HUGE):
                        self.heat[each] = self.heat[head]
                        self.node[each] = self.node[head]
            if node == 0:
                self.heat.setdefault(key, 0.0)
            if key in self.heat:
                self.node[key] = node

    @rule(page=pages, fate=st.sampled_from(list(Fate)), node=st.integers(0, 2))
    def moved(self, page: list[int], fate: Fate, node: int) -> None:
        self.table.moved(report([T + each for each in page], fate, node))
        for key in (T + each for each in page):
            if fate is Fate.GONE:
                self._forget(key)
            elif fate is not Fate.NOT_TRIED and key in self.heat:
                self.node[key] = node

    @rule(low=st.integers(0, blocks * HUGE), width=st.integers(0, 600))
    def keep(self, low: int, width: int) -> None:
        self.table.keep_ranges(3, [WatchedRange(low, low + width)] if width else [])
        for key in list(self.heat):
            if not low <= key - T < low + width:
                self._forget(key)

    @invariant()
    def agrees(self) -> None:
        self.table.check()
        assert self.table.stats().tracked == len(self.heat)
        for node in range(3):
            mine = {key: heat for key, heat in self.heat.items() if self.node[key] == node}
            cold = self.table.coldest(node, 4000)
            assert set(cold.page.tolist()) == set(mine)
            want = [mine[key] for key in cold.page.tolist()]
            assert np.allclose(cold.heat, want, rtol=1e-4, atol=1e-8)
            assert (np.diff(cold.heat) >= 0).all()
            orders = [9 if key in self.huge else 0 for key in cold.page.tolist()]
            assert cold.order.tolist() == orders


Model.TestCase.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)
TestModel = Model.TestCase
