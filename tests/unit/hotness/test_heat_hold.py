# SPDX-License-Identifier: Apache-2.0
"""Pages that are held, and targets with limits: what queries of a node find."""

from __future__ import annotations

import numpy as np
import pytest
from heat_words import HUGE, S, batch, check, place

from tierd.core.pagekey import make_keys
from tierd.hotness.table import HeatTable


def made(*targets: int, pages: int = 100) -> HeatTable:
    """A table of targets' pages on node 1; those of the first are the hottest."""
    table = HeatTable(capacity_pages=10_000, half_life_s=5.0)
    for rank, target in enumerate(targets):
        keys = make_keys(target, np.arange(pages, dtype=np.uint64))
        table.ingest(batch(keys, 100.0 / (rank + 1) - np.arange(pages) / 10))
        place(table, keys, 1)
    return table


def spans(*pairs: tuple[int, int]) -> np.ndarray:
    return np.array(pairs, np.uint64).reshape(-1, 2)


def test_held_pages_are_found_by_no_query_of_a_node() -> None:
    table = made(0)
    table.hold(spans((3, 4), (10, 90)), True)
    expected = [*range(3), *range(4, 10), *range(90, 100)]
    assert table.hottest(1, 1000).page.tolist() == expected
    assert sorted(table.coldest(1, 1000).page.tolist()) == expected
    assert table.lookup(50).node.tolist() == [1]
    check(table)


def test_released_pages_are_found_again_as_they_are_now() -> None:
    table = made(0)
    table.hold(spans((0, 100)), True)
    assert len(table.hottest(1, 1000)) == 0
    table.ingest(batch([50], 1000.0, at=2 * S))
    place(table, [51], 0)
    table.hold(spans((50, 52)), False)
    assert table.hottest(1, 1000).page.tolist() == [50]
    assert table.hottest(0, 1000).page.tolist() == [51]
    check(table)


def test_the_hottest_that_are_held_hide_no_others() -> None:
    """However many of the hottest pages cannot move, a query finds as many as it asks for."""
    table = made(0, 1)
    table.hold(spans((0, 100)), True)
    assert (table.hottest(1, 20).page >> np.uint64(48)).tolist() == [1] * 20


def test_the_least_heat_of_a_node_is_not_that_of_a_held_page() -> None:
    table = made(0)
    table.hold(spans((40, 100)), True)
    assert table.least(1) == pytest.approx(float(table.lookup(39).heat[0]))


def test_held_pages_are_held_when_the_table_grows_and_shrinks() -> None:
    table = HeatTable(capacity_pages=100_000, half_life_s=5.0)
    table.ingest(batch(np.arange(100), 9.0))
    place(table, np.arange(100), 1)
    table.hold(spans(*((page, page + 1) for page in range(0, 100, 2))), True)
    more = np.arange(1000, 60_000)
    table.ingest(batch(more, 1.0))
    place(table, more, 1)
    assert table.hottest(1, 1000, 2.0).page.tolist() == list(range(1, 100, 2))
    check(table)


def test_a_held_folio_of_2_mib_is_one_and_its_pages_are_not_held_after_a_split() -> None:
    table = HeatTable(capacity_pages=10_000, half_life_s=5.0)
    table.ingest(batch([HUGE], 5000.0))
    place(table, [HUGE], 1, order=9, insert_on=(1,))
    table.hold(spans((HUGE, HUGE + 1)), True)
    assert len(table.folios(1, 10)) == 0
    place(table, [HUGE + 1], 1, order=0)
    assert len(table.hottest(1, 1000)) == HUGE - 1
    check(table)


def test_a_limited_target_hides_no_other_and_has_its_best_pages_found() -> None:
    table = made(0, 1, 2)
    table.limit(np.array([0, 2], np.uint64), np.array([5, 1], np.uint64))
    found = table.hottest(1, 50)
    by_target = np.bincount((found.page >> np.uint64(48)).astype(np.intp)).tolist()
    assert by_target == [5, 45]
    assert found.page[:5].tolist() == [0, 1, 2, 3, 4]
    assert (np.diff(found.heat) <= 0).all()
    assert np.bincount((table.hottest(1, 500).page >> np.uint64(48)).astype(np.intp)).tolist() == [
        5, 100, 1,
    ]  # fmt: skip
    among = np.array([True, False, True])
    assert len(table.hottest(1, 500, 0.0, among)) == 6
    coldest = table.coldest(1, 500)
    assert len(coldest) == 106
    assert (np.diff(coldest.heat) >= 0).all()


def test_a_limit_below_a_folio_lets_one_folio_through() -> None:
    """Else a target of 2 MiB folios could never show that they move again."""
    table = HeatTable(capacity_pages=10_000, half_life_s=5.0)
    for head in (HUGE, 2 * HUGE, 3 * HUGE):
        table.ingest(batch([head], 5000.0))
        place(table, [head], 1, order=9, insert_on=(1,))
    table.limit(np.array([0], np.uint64), np.array([1], np.uint64))
    assert len(table.hottest(1, 10)) == 1


def test_without_limits_all_is_found() -> None:
    table = made(0, 1)
    table.limit(np.array([0], np.uint64), np.array([5], np.uint64))
    table.limit(np.empty(0, np.uint64), np.empty(0, np.uint64))
    assert len(table.hottest(1, 500)) == 200
