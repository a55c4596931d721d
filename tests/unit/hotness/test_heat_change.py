# SPDX-License-Identifier: Apache-2.0
"""Heat when the hot set moves: fading at once, and how new accesses are."""

from __future__ import annotations

import numpy as np
import pytest
from heat_words import check

from tierd.core.access import AccessBatch
from tierd.hotness.table import HeatTable

S = 10**9


def batch(pages: list[int], count: float, time_ns: int) -> AccessBatch:
    page = np.array(pages, np.uint64)
    return AccessBatch(page, np.full(len(pages), count, np.float32), time_ns, "test")


def heat_of(table: HeatTable, page: int) -> float:
    return float(table.lookup(page).heat[0])


def made(half_life_s: float = 5.0) -> HeatTable:
    table = HeatTable(capacity_pages=1000, half_life_s=half_life_s)
    table.advance(1000 * S)
    return table


@pytest.mark.parametrize("half_lives", [0.5, 3.0, 29.0])
def test_fading_is_what_so_many_half_lives_would_do(half_lives: float) -> None:
    table = made()
    table.ingest(batch([1], 64.0, 1000 * S))
    table.fade(half_lives)
    assert heat_of(table, 1) == pytest.approx(64 * 0.5**half_lives, rel=1e-4)
    table.advance(1005 * S)
    assert heat_of(table, 1) == pytest.approx(32 * 0.5**half_lives, rel=1e-4)
    check(table)


def test_what_comes_after_fading_counts_in_full() -> None:
    table = made()
    table.ingest(batch([1], 64.0, 1000 * S))
    table.fade(3)
    table.ingest(batch([1, 2], 8.0, 1000 * S))
    assert heat_of(table, 1) == pytest.approx(16, rel=1e-4)
    assert heat_of(table, 2) == pytest.approx(8, rel=1e-4)
    assert table.hottest(-1, 10).page.tolist() == []


def test_fading_again_and_again_stays_sound() -> None:
    table = made(0.5)
    for second in range(100):
        table.ingest(batch([1, 2], 10.0, (1000 + second) * S))
        table.fade(3)
    assert heat_of(table, 1) == pytest.approx(10 / 8 / (1 - 1 / 32), rel=0.01)
    check(table)


def test_more_half_lives_than_there_were_leave_nothing() -> None:
    table = HeatTable(capacity_pages=10, half_life_s=3600.0)
    table.advance(S)
    table.ingest(batch([1], 64.0, S))
    table.fade(3)
    assert heat_of(table, 1) == pytest.approx(8, rel=1e-4)
    table.fade(100)
    assert heat_of(table, 1) == pytest.approx(0, abs=1e-20)
    check(table)


def test_heat_grows_by_half_lives_that_are_taken_back() -> None:
    table = made()
    table.ingest(batch([1, 2], 64.0, 1000 * S))
    table.fade(3.5)
    table.fade(-3.5)
    table.ingest(batch([2], 1.0, 1000 * S))
    assert heat_of(table, 1) == pytest.approx(64, rel=1e-4)
    assert heat_of(table, 2) == pytest.approx(65, rel=1e-4)
    table.fade(-2)
    table.advance(1005 * S)
    assert heat_of(table, 1) == pytest.approx(128, rel=1e-4)
    check(table)


@pytest.mark.parametrize("half_lives", [0.0, -1000.0, float("nan")])
def test_fading_by_nothing_changes_nothing(half_lives: float) -> None:
    table = made()
    table.ingest(batch([1], 64.0, 1000 * S))
    table.fade(half_lives)
    assert heat_of(table, 1) == pytest.approx(64)
