# SPDX-License-Identifier: Apache-2.0
"""Which pages go to compressed memory: ages, and chunks that remember two visits."""

from __future__ import annotations

import numpy as np
import pytest

from tierd.core.access import AccessBatch
from tierd.core.bounds import PAGE_OUT_PAGES
from tierd.core.pagekey import BoolArray
from tierd.core.tuning import PAGE_OUT
from tierd.hotness.table import HeatTable
from tierd.policy.page_out import Age, Chunk, HeatAge, bits, packed, steps


def marks(*pages: int) -> BoolArray:
    found = np.zeros(PAGE_OUT_PAGES, np.bool_)
    found[list(pages)] = True
    return found


ALL = np.ones(PAGE_OUT_PAGES, np.bool_)
NOW = HeatAge(0, 0.0)


@pytest.mark.parametrize("faded", [0.0, 3.0, -3.0])
def test_heat_tells_whether_a_page_was_accessed_since_the_visit_before(faded: float) -> None:
    heat = HeatTable(capacity_pages=64, half_life_s=5.0)
    chunk = Chunk()
    for page, at_s in ((9, 0.0), (2, 900.0), (0, 910.0), (1, 920.0), (3, 1000.0)):
        if page == 0:
            heat.advance(int(at_s * 1e9))
            chunk.visit(marks(), ALL, HeatAge(0, heat.aged))
            continue
        batch = AccessBatch(
            np.array([page], np.uint64), np.ones(1, np.float32), int(at_s * 1e9), "made"
        )
        heat.ingest(batch)
        if page == 1:
            heat.fade(faded)
            heat.set_half_life(10.0)
    assert heat.aged == pytest.approx(920 / 5 + faded + 80 / 10)
    cold = heat.of(np.array([1, 2, 3, 4], np.uint64)) < chunk.limit(heat.aged)
    assert cold.tolist() == [False, True, False, True]


@pytest.mark.parametrize(("age_s", "visits"), [(5.0, 1), (100.0, 1), (101.0, 2), (7000.0, 70)])
def test_a_long_age_takes_several_visits(age_s: float, visits: int) -> None:
    assert steps(age_s, 5.0) == visits


def test_heat_that_decayed_too_far_says_nothing() -> None:
    chunk = Chunk()
    chunk.visit(marks(1), ALL, HeatAge(0, 10.0))
    far = HeatAge(0, 10.1 + PAGE_OUT.most_half_lives)
    assert not chunk.visit(marks(1), ALL, far)[0].any()
    assert chunk.visit(marks(1), ALL, far)[0].any()


def test_an_age_of_several_visits_needs_a_page_to_be_cold_at_each() -> None:
    chunk = Chunk()
    found = [
        np.flatnonzero(chunk.visit(marks(*cold), ALL, NOW, 3)[0]).tolist()
        for cold in ((1, 2, 3), (1, 2), (1, 2, 4), (1, 4), (1, 4), (1, 4), (1, 4))
    ]
    assert found == [[], [], [], [1], [], [], [1, 4]]


def test_a_page_goes_that_was_cold_at_two_visits() -> None:
    chunk = Chunk()
    assert not chunk.visit(marks(1, 2), ALL, NOW)[0].any()
    going, back = chunk.visit(marks(2, 3), ALL, NOW)
    assert np.flatnonzero(going).tolist() == [2]
    assert back == 0
    chunk.went(marks(2))
    going, back = chunk.visit(marks(1, 3), ~marks(2), NOW)
    assert np.flatnonzero(going).tolist() == [3]
    assert back == 0
    assert np.flatnonzero(bits(chunk.out)).tolist() == [2]


def test_a_table_that_evicted_in_between_says_nothing() -> None:
    chunk = Chunk()
    chunk.visit(marks(1), ALL, NOW)
    assert not chunk.visit(marks(1), ALL, HeatAge(7, 0.0))[0].any()
    assert chunk.visit(marks(1), ALL, HeatAge(7, 0.0))[0].any()


def test_a_chunk_whose_pages_come_back_is_visited_more_seldom_and_nothing_goes() -> None:
    chunk = Chunk()
    some = marks(*range(100))
    chunk.visit(some, ALL, NOW)
    chunk.went(chunk.visit(some, ALL, NOW)[0])
    going, back = chunk.visit(ALL, ~marks(*range(50, 100)), NOW)
    assert (back, chunk.waits) == (50, 2)
    assert not going.any()
    # Two of the other fifty, which is not many.
    going, back = chunk.visit(ALL, ~marks(*range(52, 100)), NOW)
    assert (back, chunk.waits) == (2, 1)
    assert going.all()
    for _ in range(20):
        chunk.went(marks(1))
        assert chunk.visit(marks(), ALL, NOW)[1] > 0
    assert chunk.waits == PAGE_OUT.most_waits


def test_what_is_put_off_goes_at_the_next_visit_alone() -> None:
    chunk = Chunk()
    chunk.visit(marks(1, 2, 3), ALL, NOW)
    going, _ = chunk.visit(marks(1, 2, 3, 4), ALL, NOW)
    chunk.put_off(going, 5)
    chunk.went(marks(1))
    assert chunk.due_ns == 5
    going, _ = chunk.visit(marks(2, 3, 4), ~marks(1), NOW)
    assert np.flatnonzero(going).tolist() == [2, 3]


def test_bits_are_what_was_packed() -> None:
    rng = np.random.default_rng(3)
    some = rng.random(PAGE_OUT_PAGES) < 0.3
    assert (bits(packed(some)) == some).all()
    assert packed(marks()) == b""


def test_faults_that_cost_too_much_stop_page_outs_and_the_age_grows() -> None:
    age = Age(120.0, 0.001)
    assert age.update(0, 1e-5, 1.0)
    # 2,000 faults of 10 us a second are 2 % of a CPU.
    assert [age.update(2000, 1e-5, 1.0) for _ in range(5)] == [False] * 5
    assert age.lost == pytest.approx(0.02 * (1 - 0.9**5))
    grown = age.seconds
    assert grown > 120.0
    calm = [age.update(0, 1e-5, 1.0) for _ in range(60)]
    assert calm[-1]
    assert not calm[0]
    for _ in range(1000):
        age.update(0, 1e-5, 1.0)
    assert age.seconds == 120.0
    for _ in range(1000):
        age.update(10**6, 1e-5, 1.0)
    assert age.seconds == 120.0 * PAGE_OUT.most_age_factor
