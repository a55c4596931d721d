# SPDX-License-Identifier: Apache-2.0
"""2 MiB folios in the heat table: joined, split, moved, and asked for."""

from __future__ import annotations

import numpy as np
import pytest
from heat_words import HUGE, T, batch, check, heat_of, place, report, table

from tierd.core.migration import Fate


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


def test_folios_are_asked_for_by_themselves_hottest_first() -> None:
    one = table()
    one.ingest(batch(T + np.arange(40, dtype=np.uint64), 900.0))
    place(one, (T + np.arange(40, dtype=np.uint64)).tolist(), 1)
    assert len(one.folios(1, 10)) == 0
    heads = [T + HUGE * at for at in (1, 2, 3, 4)]
    for at, head in enumerate(heads):
        place(one, [head], 1 if at < 3 else 0, order=9, insert_on=[0, 1])
        one.ingest(batch([head], 512.0 * (at + 1)))
    found = one.folios(1, 10)
    assert found.page.tolist() == [heads[2], heads[1], heads[0]]
    assert found.order.tolist() == [9, 9, 9]
    assert found.heat.tolist() == pytest.approx([3.0, 2.0, 1.0])
    assert one.folios(1, 10, 1.5).page.tolist() == [heads[2], heads[1]]
    assert one.folios(1, 1).page.tolist() == [heads[2]]
    none = np.zeros(64, bool)
    assert len(one.folios(1, 10, 0.0, none)) == 0
    assert one.hottest(1, 50).page.tolist()[40:] == found.page.tolist()


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


def test_where_tells_the_node_of_every_page_of_a_folio() -> None:
    made = table()
    place(made, [T, T + HUGE], [1, 0], order=9, insert_on=(0, 1))
    place(made, [T + 5 * HUGE], 0, insert_on=(0,))
    made.ingest(batch([T + 7 * HUGE]))
    asked = [T, T + 511, T + HUGE, T + HUGE + 17, T + 5 * HUGE, T + 5 * HUGE + 1, T + 7 * HUGE]
    assert made.where(np.array(asked, np.uint64)).tolist() == [1, 1, 0, 0, 0, -1, -1]
    assert made.where(np.empty(0, np.uint64)).tolist() == []


def test_a_folio_that_moved_before_its_first_access_was_told_is_one() -> None:
    one = table()
    moved = report([T], Fate.MOVED, 0)
    moved.plan.order[:] = 9
    one.moved(moved)
    assert one.stats().huge == 1
    assert one.lookup(T).node.tolist() == [0]
    check(one)


def test_a_page_of_a_huge_folio_does_not_tell_where_that_is() -> None:
    one = table()
    place(one, [T], 0, order=9, insert_on=[0])
    one.ingest(batch([T + 5], 2.0, node=2))
    assert one.where(np.array([T + 5], np.uint64)).tolist() == [0]
