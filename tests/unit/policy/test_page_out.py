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
from tierd.policy.page_out import Age, Chunk, HeatAge, Outcome, Seen, bits, packed, steps


def marks(*pages: int) -> BoolArray:
    found = np.zeros(PAGE_OUT_PAGES, np.bool_)
    found[list(pages)] = True
    return found


ALL = np.ones(PAGE_OUT_PAGES, np.bool_)
NOW = HeatAge(0, 0.0)


def visit(
    chunk: Chunk,
    cold: BoolArray,
    present: BoolArray = ALL,
    heat: HeatAge = NOW,
    steps: int = 1,
) -> Outcome:
    return chunk.visit(Seen(cold, present, ~present), heat, steps)


def numbers(found: BoolArray) -> list[int]:
    return np.flatnonzero(found).tolist()


@pytest.mark.parametrize("faded", [0.0, 3.0, -3.0])
def test_heat_tells_whether_a_page_was_accessed_since_the_visit_before(faded: float) -> None:
    heat = HeatTable(capacity_pages=64, half_life_s=5.0)
    chunk = Chunk()
    for page, at_s in ((9, 0.0), (2, 900.0), (0, 910.0), (1, 920.0), (3, 1000.0)):
        if page == 0:
            heat.advance(int(at_s * 1e9))
            visit(chunk, marks(), heat=HeatAge(0, heat.of(np.array([2], np.uint64))[1]))
            continue
        batch = AccessBatch(
            np.array([page], np.uint64), np.ones(1, np.float32), int(at_s * 1e9), "made"
        )
        heat.ingest(batch)
        if page == 1:
            heat.fade(faded)
            heat.set_half_life(10.0)
    found, aged = heat.of(np.array([1, 2, 3, 4], np.uint64))
    assert aged == pytest.approx(920 / 5 + faded + 80 / 10)
    assert (found < chunk.limit(aged)).tolist() == [False, True, False, True]


def test_a_folio_of_2_mib_has_the_heat_of_all_its_pages() -> None:
    heat = HeatTable(capacity_pages=4096, half_life_s=5.0)
    pages = np.array([1024], np.uint64)
    heat.place(pages, np.zeros(1, np.int16), np.full(1, 9, np.uint8), insert_on=[0])
    heat.ingest(AccessBatch(pages + np.uint64(7), np.ones(1, np.float32), 10**9, "made"))
    found, _ = heat.of(pages + np.uint64(100))
    assert found[0] == pytest.approx(1.0)


@pytest.mark.parametrize(("age_s", "visits"), [(5.0, 1), (100.0, 1), (101.0, 2), (7000.0, 70)])
def test_a_long_age_takes_several_visits(age_s: float, visits: int) -> None:
    assert steps(age_s, 5.0) == visits


def test_heat_that_decayed_too_far_says_nothing() -> None:
    chunk = Chunk()
    visit(chunk, marks(1), heat=HeatAge(0, 10.0))
    far = HeatAge(0, 10.1 + PAGE_OUT.most_half_lives)
    assert not visit(chunk, marks(1), heat=far).going.any()
    assert visit(chunk, marks(1), heat=far).going.any()


def test_an_age_of_several_visits_needs_a_page_to_be_cold_at_each() -> None:
    chunk = Chunk()
    found = [visit(chunk, marks(*cold), steps=3) for cold in ((1, 2, 3), (1, 2), (1, 2, 4), (1, 4))]
    assert [numbers(each.going) for each in found] == [[], [], [], [1]]
    assert [each.ends for each in found] == [False, False, False, True]
    assert not any(visit(chunk, marks(1, 4), steps=3).going.any() for _ in range(3))
    assert numbers(visit(chunk, marks(1, 4), steps=3).going) == [1, 4]


def test_what_the_table_does_not_know_makes_the_past_worthless() -> None:
    chunk = Chunk()
    visit(chunk, marks(1))
    assert not visit(chunk, marks(1), heat=HeatAge(7, 0.0)).going.any()
    assert visit(chunk, marks(1), heat=HeatAge(7, 0.0)).going.any()


def test_a_chunk_of_which_nothing_goes_is_left_alone_for_longer() -> None:
    chunk, waits = Chunk(), []
    for _ in range(9):
        visit(chunk, marks())
        assert visit(chunk, marks()).ends
        waits.append(chunk.waits)
    assert waits == [2, 4, 8, 16, 32, 64, 64, 64, 64]
    assert PAGE_OUT.most_waits == 64
    visit(chunk, marks(5))
    assert visit(chunk, marks(5)).going.any()
    assert chunk.waits == 32


def test_a_chunk_whose_pages_come_back_is_left_alone_for_longer_and_nothing_goes() -> None:
    chunk, out = Chunk(), marks(*range(100))
    visit(chunk, ALL, ~out)
    found = visit(chunk, ALL, ~marks(*range(50, 100)))
    assert (found.back, found.ends, chunk.waits) == (50, True, 2)
    assert not found.going.any()
    # Two of the other fifty, which is not many.
    found = visit(chunk, ALL, ~marks(*range(52, 100)))
    assert (found.back, found.ends) == (2, False)
    found = visit(chunk, ALL, ~marks(*range(52, 100)))
    assert found.back == 0
    assert found.going.all()
    assert chunk.waits == 1


@pytest.mark.parametrize("number", [1, 3, 100])
def test_what_is_put_off_goes_at_the_next_visit_alone(number: int) -> None:
    chunk = Chunk()
    for _ in range(number):
        assert not visit(chunk, marks(1, 2, 3), steps=number).going.any()
    assert visit(chunk, marks(1, 2, 3, 4), steps=number).going.sum() == 3
    chunk.put_off(marks(2, 3), 5, number)
    chunk.went(marks(1))
    assert chunk.due_ns == 5
    found = visit(chunk, marks(2, 3, 4), ~marks(1), steps=number)
    assert numbers(found.going) == [2, 3]
    assert found.back == 0


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
