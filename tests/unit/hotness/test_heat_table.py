# SPDX-License-Identifier: Apache-2.0
"""Each rule of the heat table by itself."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from heat_words import S, T, batch, check, heat_of, place, report, table

from tierd.core.access import WatchedRange
from tierd.core.migration import Fate
from tierd.hotness.table import HeatTable
from tierd.hotness.view import HeatView


def test_it_is_a_heat_view() -> None:
    view: HeatView = table()
    assert len(view.hottest(0, 5)) == 0


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
    check(one)


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


@pytest.mark.parametrize("asked", [1, 7, 150, 1000])
def test_questions_about_some_targets_pass_over_the_others(asked: int) -> None:
    one = table()
    random = np.random.default_rng(3)
    pages = np.concatenate(
        [(np.uint64(t) << np.uint64(48)) + np.arange(300, dtype=np.uint64) for t in (1, 2, 5)]
    )
    heat = random.exponential(9, len(pages)).astype(np.float32)
    one.ingest(batch(pages, heat))
    place(one, pages, 0, insert_on=[0])
    among = np.array([False, True, False, False, False, True])
    own = np.isin(pages >> np.uint64(48), [1, 5])
    ranked = pages[own][np.argsort(heat[own], kind="stable")]
    assert np.array_equal(one.coldest(0, asked, among).page, ranked[:asked])
    assert np.array_equal(one.hottest(0, asked, 0.0, among).page, ranked[::-1][:asked])
    assert len(one.coldest(0, asked, among[:1])) == 0


def test_equal_heat_goes_by_key_so_that_replays_agree() -> None:
    one = table()
    place(one, T + np.arange(1000, dtype=np.uint64)[::-1], 0, insert_on=[0])
    assert one.coldest(0, 10).page.tolist() == [T + each for each in range(10)]


@pytest.mark.parametrize("asked", [1, 100, 4999, 5000])
def test_many_pages_of_few_heats_come_in_order_of_heat_and_key(asked: int) -> None:
    one, random = table(), np.random.default_rng(7)
    # Keys that differ in low, middle and high bits, and two targets.
    offsets = np.unique(random.integers(0, 1 << 34, 5000, np.uint64))
    pages = random.permutation(T + offsets)
    heats = random.integers(1, 50, len(pages)).astype(np.float32)
    place(one, pages, 0, insert_on=[0])
    one.ingest(batch(pages, heats))
    by_key = np.argsort(pages)
    hot = by_key[np.argsort(-heats[by_key], kind="stable")]
    cold = by_key[np.argsort(heats[by_key], kind="stable")]
    assert one.hottest(0, asked).page.tolist() == pages[hot][:asked].tolist()
    assert one.coldest(0, asked).page.tolist() == pages[cold][:asked].tolist()


def test_heats_that_are_rounded_to_one_stay_in_the_order_of_what_was_counted() -> None:
    edge, below = np.float32(6.0), np.nextafter(np.float32(6.0), np.float32(0))
    ties = 0
    for way in (1, -1):
        one = table(half_life_s=10.0)
        pages = [T, T + 1][::way]
        one.ingest(batch(pages, [edge, below], at=0))
        place(one, [*pages, T + 2, T + 3], 0, insert_on=[0])
        one.ingest(batch([T + 2, T + 3], [1.0, 40.0], at=0))
        for step in range(1, 60):
            one.advance(step * S // 10)
            hot = one.hottest(0, 4)
            ties += int(hot.heat[1] == hot.heat[2])
            assert hot.page.tolist() == [T + 3, *pages, T + 2]
            assert one.coldest(0, 4).page.tolist() == hot.page[::-1].tolist()
            assert one.hottest(0, 2).page.tolist() == [T + 3, pages[0]]
            assert one.coldest(0, 2).page.tolist() == [T + 2, pages[1]]
    assert ties > 10


@pytest.mark.parametrize("node", [0, 15, 16, 200])
def test_the_least_heat_is_that_of_the_coldest(node: int) -> None:
    one, random = table(), np.random.default_rng(5)
    assert one.least(node) == math.inf
    pages = T + np.arange(400, dtype=np.uint64)
    place(one, pages, node, insert_on=[node])
    assert one.least(node) == 0.0
    one.ingest(batch(pages, random.exponential(9, 400) + 1e-3))
    for second in range(2, 9):
        one.advance(second * S)
        assert one.least(node) == one.coldest(node, 1).heat[0] > 0
    assert one.least(node + 1) == math.inf


@pytest.mark.parametrize("node", [3, 40])
def test_a_question_is_answered_alike_on_any_node(node: int) -> None:
    one, random = table(), np.random.default_rng(6)
    pages = T + np.arange(3000, dtype=np.uint64)
    place(one, pages, node, insert_on=[node])
    heat = np.zeros(3000, np.float32)
    heat[::3] = random.exponential(9, 1000)
    one.ingest(batch(pages, heat))
    cold = np.argsort(heat, kind="stable")
    for asked in (1, 300, 1900, 2100, 3000):
        assert one.coldest(node, asked).page.tolist() == pages[cold[:asked]].tolist()
    hot = np.argsort(-heat, kind="stable")
    for asked in (1, 300, 999):
        assert one.hottest(node, asked).page.tolist() == pages[hot[:asked]].tolist()
    assert len(one.hottest(node, 3000)) == np.count_nonzero(heat)


def test_pages_are_inserted_cold_only_where_wanted() -> None:
    one = table()
    place(one, [T], 0, insert_on=[0])
    place(one, [T + 1], 1, insert_on=[0])
    assert one.stats().tracked == 1
    assert one.coldest(0, 5).heat.tolist() == [0.0]


@pytest.mark.parametrize("locates", [False, True])
def test_a_full_table_keeps_hot_pages_and_those_of_wanted_nodes(locates: bool) -> None:
    """Also where places come in between of pages that are looked up only, as in each tick."""
    one = table(capacity=1000)
    fast = T + np.arange(300, dtype=np.uint64)
    hot = T + np.arange(1000, 1200, dtype=np.uint64)
    place(one, fast, 0, insert_on=[0])
    one.ingest(batch(hot, 100.0))
    for step in range(20):
        low = 10_000 + 500 * step
        if locates:
            place(one, hot, 1, insert_on=())
        one.ingest(batch(T + np.arange(low, low + 500, dtype=np.uint64), 1.0))
    stats = one.stats()
    assert stats.tracked <= 1000
    assert stats.evicted >= 300 + 200 + 10_000 - 1000
    assert all(len(one.lookup(int(each))) for each in [*fast, *hot])
    check(one)


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


def test_a_page_that_moved_before_its_first_access_was_told_is_where_it_went() -> None:
    one = table()
    one.moved(report([T], Fate.MOVED, 0))
    one.moved(report([T + 1], Fate.BUSY, 1))
    told = batch([T, T + 1], 4.0)
    one.ingest(replace(told, node=np.array([1, 1], np.int16)))
    assert one.lookup(T).node.tolist() == [0]
    assert one.lookup(T + 1).node.tolist() == [1]
    assert heat_of(one, T) == pytest.approx(4.0)
    assert one.lookup(T).idle_s[0] == pytest.approx(0.0, abs=0.25)


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
    check(one)


def test_unplaced_lists_the_hottest_pages_without_a_confirmed_place() -> None:
    one = HeatTable(capacity_pages=100, half_life_s=10.0, refresh_s=5.0)
    one.ingest(batch([T, T + 1, T + 2], [1.0, 2.0, 3.0], at=0))
    assert set(one.unplaced(2).tolist()) == {T + 2, T + 1}
    assert one.unplaced(2, 1e9).tolist() == []
    place(one, [T, T + 1, T + 2], 0)
    one.advance(6 * S)
    assert len(one.unplaced(5)) == 0
    place(one, [T + 1], 0)
    for second in range(7, 100):
        one.advance(second * S)
        if second == 11:
            assert set(one.unplaced(5).tolist()) == {T + 2, T}
    assert set(one.unplaced(5).tolist()) == {T + 2, T + 1, T}


def test_where_a_source_met_a_page_is_its_node() -> None:
    one = HeatTable(capacity_pages=1000, half_life_s=10.0, refresh_s=5.0)
    one.ingest(batch([T, T + 1, T + 2], 2.0, node=[3, -1, 254]))
    assert set(one.unplaced(5).tolist()) == {T + 1, T + 2}
    assert one.hottest(3, 5).page.tolist() == [T]
    # What is met again and again is not asked for again.
    for second in range(2, 60):
        one.ingest(batch([T], 1.0, at=second * S, node=3))
    assert T not in one.unplaced(5)
    one.advance(120 * S)
    assert T in one.unplaced(5)
    check(one)


def test_a_source_that_saw_it_before_the_move_does_not_take_it_back() -> None:
    one = table()
    one.ingest(batch([T, T + 1], 2.0, node=2))
    one.moved(report([T], Fate.MOVED, 0))
    place(one, [T + 1], 1)
    one.ingest(batch([T, T + 1], 2.0, node=2))
    assert one.where(np.array([T, T + 1], np.uint64)).tolist() == [0, 1]
    check(one)


def _full(kept: int) -> HeatTable:
    """A full table of 160: `kept` pages are on the kept node."""
    one = table(capacity=160)
    place(one, T + np.arange(kept, dtype=np.uint64), 0, insert_on=[0])
    one.ingest(batch(T + np.arange(1000, 1000 + 160 - kept, dtype=np.uint64), 1.0, node=1))
    # Longer than places count as confirmed.
    one.advance(60 * S)
    assert len(one.coldest(1, 160)) == 160 - kept
    return one


def test_samples_that_came_before_count_when_a_batch_finds_a_full_table() -> None:
    one = _full(kept=150)
    met = [*(T + np.arange(100, dtype=np.uint64)), T + 5000]
    one.ingest(batch(met, 1.0, at=60 * S, node=1))
    assert one.stats().evicted == 160 // 16 + 1
    check(one)


def test_moves_that_came_before_count_when_a_report_finds_a_full_table() -> None:
    one = _full(kept=150)
    one.moved(report([*(T + np.arange(100, dtype=np.uint64)), T + 5000], Fate.MOVED, 1))
    assert one.stats().evicted == 160 // 16 + 1
    check(one)


def test_a_full_table_stays_evenly_filled() -> None:
    one = table(capacity=100_000)
    for n in range(20):  # all equally cold, so that any may go
        one.ingest(batch(T + np.arange(n * 25_000, (n + 1) * 25_000, dtype=np.uint64)))
        check(one)
    assert one.stats().evicted >= 400_000


def test_pages_that_find_a_full_table_are_dropped_without_a_search_each() -> None:
    one = table(capacity=400_000)
    pages = T + np.arange(400_000, dtype=np.uint64)
    place(one, pages, 0, insert_on=[0])
    # Each of these would look through all slots in vain: hours, were it not remembered.
    for n in range(1, 6):
        place(one, pages + np.uint64(n * 400_000), 0, insert_on=[0])
    stats = one.stats()
    assert (stats.tracked, stats.dropped["full"]) == (400_000, 2_000_000)
    # What moves to another node gives way in the next pass.
    place(one, pages[:100_000], 1, insert_on=[0])
    place(one, pages[:10] + np.uint64(400_000), 0, insert_on=[0])
    assert one.stats().dropped["full"] == 2_000_000
    assert len(one.coldest(0, 400_000)) == 300_010
    check(one)


def test_memory_is_bounded_by_24_bytes_a_page() -> None:
    capacity = 200_000
    one = table(capacity=capacity)
    one.ingest(batch(T + np.arange(2 * capacity, dtype=np.uint64) * np.uint64(7)))
    assert one.stats().tracked <= capacity
    assert one.stats().memory_bytes <= 24 * capacity
    check(one)
