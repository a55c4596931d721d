# SPDX-License-Identifier: Apache-2.0
"""Whole or split: 2 MiB folios by the cost rule, one rule a test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from fakeheat import ArrayHeat
from folioloop import FolioLoop
from policies import cost_settings, watermarks
from tiersim import SimTier, tier_map

from tierd.core import bounds
from tierd.core.migration import MigrationPlan, MigrationResult, SplitFate
from tierd.core.pagekey import HUGE_ORDER, PAGE_SIZE
from tierd.core.tiermap import MemoryKind, NodeUsage
from tierd.core.tuning import COST, VALUE
from tierd.hotness.pattern import Patterns
from tierd.hotness.view import PageSet
from tierd.policy import pageset
from tierd.policy.cost import CostPolicy
from tierd.policy.demand import estimate
from tierd.policy.folio_split import Bids, SplitHistory, space_prices, split_gain
from tierd.policy.inputs import Inputs, LoadSource, Traffic
from tierd.policy.limits import Budget
from tierd.policy.scheduler import Rule

DRAM, CXL = 0, 1
FOLIO = 512
PAGES = 1 << 16
TIERS = [
    SimTier(MemoryKind.DRAM, PAGES, 118, 60e9),
    SimTier(MemoryKind.CXL, 4 * PAGES, 430, 20e9),
]
MAP = tier_map(TIERS, 16)
SECOND = 10**9
HALF_LIFE_S = 5.0
PERIOD = 1000.0
"""Lines that a sample stands for."""


def folios(first: int, *groups: tuple[int, float, int]) -> PageSet:
    """2 MiB folios from (count, samples in its heat, node) groups."""
    heat = np.concatenate([np.full(n, each / FOLIO, np.float32) for n, each, _ in groups])
    node = np.concatenate([np.full(n, node, np.int16) for n, _, node in groups])
    page = (np.arange(len(heat), dtype=np.uint64) + np.uint64(first)) << np.uint64(HUGE_ORDER)
    return PageSet(page, heat, node, np.full(len(heat), 9, np.uint8), np.full_like(heat, np.inf))


def small(first: int, count: int, heat: float, node: int) -> PageSet:
    """4 KiB pages, from region `first` on."""
    page = np.arange(count, dtype=np.uint64) + (np.uint64(first) << np.uint64(HUGE_ORDER))
    return PageSet(
        page,
        np.full(count, heat, np.float32),
        np.full(count, node, np.int16),
        np.zeros(count, np.uint8),
        np.full(count, np.inf, np.float32),
    )


def known(pages: PageSet, busy: float | Sequence[float], parallel: float = 0.0) -> Patterns:
    """Evidence of how many pages of each folio carry its accesses."""
    own = pages.page[pages.order == 9]
    ones = np.ones(len(own))
    counted = pages.heat[pages.order == 9].astype(np.float64) * FOLIO
    return Patterns(
        own >> np.uint64(HUGE_ORDER), counted, parallel * ones, 0.01 * ones, 0 * ones, busy * ones
    )


class ControlContext:
    """A policy that is asked once a second; loads are what pages' heat says."""

    def __init__(self, tracked: PageSet, busy: float | Sequence[float], free: int) -> None:
        marks = watermarks(low_watermark=0.0075, high_watermark=0.015)
        self.policy = CostPolicy(cost_settings(watermarks=marks))
        self.tracked, self.patterns = tracked, known(tracked, busy)
        self.free = (free, 2 * PAGES)
        self.time_ns = 100 * SECOND
        self.budget = Budget(1 << 30)
        self.last: MigrationResult | None = None

    def settled(self) -> MigrationPlan:
        """The first plan after an epoch, in which it has only looked."""
        for _ in range(3):
            self.decide()
        return self.decide()

    def decide(self) -> MigrationPlan:
        self.time_ns += SECOND
        traffic = Traffic(self.time_ns, HALF_LIFE_S, lines_per_count=PERIOD, patterns=self.patterns)
        demand = estimate(self.tracked, traffic)
        loads = np.bincount(self.tracked.node, demand.lines * demand.moved, 2)
        traffic = replace(
            traffic,
            load=dict(enumerate(loads.tolist())),
            source=dict.fromkeys(range(2), LoadSource.SAMPLES),
        )
        usage = {
            node: NodeUsage(tier.pages * PAGE_SIZE, free * PAGE_SIZE, 0)
            for node, (tier, free) in enumerate(zip(TIERS, self.free, strict=True))
        }
        return self.policy.decide(
            Inputs(
                ArrayHeat(self.tracked),
                MAP,
                usage,
                self.budget,
                last=self.last,
                traffic=traffic,
            )
        )


HOT = 2000.0
"""Samples of a folio: many a page, if all are used alike."""
FULL = 1200
"""Free pages of DRAM, so that less than a folio may come in without room made."""
FREE = 40_000


def occupied() -> PageSet:
    """DRAM full of pages that are used, each as much as a page of a hot folio."""
    return small(1000, 20_000, 1.5 * HOT / FOLIO, DRAM)


def test_a_concentrated_folio_is_split_where_fast_memory_is_full() -> None:
    tracked = pageset.concat([folios(1, (8, HOT, CXL)), occupied()])
    plan = ControlContext(tracked, 16, FULL).settled()
    assert sorted(plan.split.tolist()) == tracked.page[:8].tolist()
    assert not np.isin(plan.split, plan.page).any()


@pytest.mark.parametrize("left", [0, 1 << 30])
def test_without_budget_nothing_is_split(left: int) -> None:
    desk = ControlContext(pageset.concat([folios(1, (8, HOT, CXL)), occupied()]), 16, FULL)
    desk.budget = Budget(left)
    assert bool(len(desk.settled().split)) == bool(left)


@pytest.mark.parametrize("busy", [512, 400, np.nan])
def test_a_folio_used_all_over_and_an_unknown_one_stay_whole(busy: float) -> None:
    tracked = pageset.concat([folios(1, (8, HOT, CXL)), occupied()])
    assert not len(ControlContext(tracked, busy, FULL).settled().split)


def test_where_there_is_room_a_concentrated_folio_moves_whole() -> None:
    tracked = pageset.concat([folios(1, (8, HOT, CXL)), occupied()])
    plan = ControlContext(tracked, 16, FREE).settled()
    assert not len(plan.split)
    assert len(plan) > 0
    assert set(plan.order) == {9}
    assert set(plan.dest) == {DRAM}


def test_a_mostly_idle_folio_in_full_fast_memory_is_split_for_what_waits_outside() -> None:
    inside = folios(1, (8, HOT, DRAM))
    outside = small(3000, 20_000, 0.75 * HOT / FOLIO, CXL)
    tracked = pageset.concat([inside, outside])
    plan = ControlContext(tracked, 16, FULL).settled()
    assert sorted(plan.split.tolist()) == inside.page.tolist()


def test_a_mostly_idle_folio_stays_whole_where_nothing_waits_outside() -> None:
    tracked = pageset.concat([folios(1, (8, HOT, DRAM)), small(3000, 20_000, 0.0, CXL)])
    assert not len(ControlContext(tracked, 16, FULL).settled().split)


def test_a_folio_that_is_hardly_used_is_not_worth_a_split() -> None:
    tracked = pageset.concat([folios(1, (8, 0.02, CXL)), occupied()])
    assert not len(ControlContext(tracked, 4, FULL).settled().split)


def test_splits_of_a_pass_are_bounded_and_what_is_put_off_is_told() -> None:
    tracked = pageset.concat(
        [folios(1, (bounds.SPLITS + 9, HOT, CXL)), small(5000, 30_000, 9.0, DRAM)]
    )
    plan = ControlContext(tracked, 8, FULL).settled()
    assert len(plan.split) == bounds.SPLITS
    assert plan.notes["more splits than one pass makes"] == 9


def test_the_pages_of_a_split_folio_rest_and_it_is_not_split_again() -> None:
    tracked = pageset.concat([folios(1, (1, HOT, CXL)), occupied()])
    desk = ControlContext(tracked, 16, FULL)
    plan = desk.settled()
    assert len(plan.split) == 1
    desk.last = replace(
        MigrationResult.not_tried(plan), split_fate=np.array([SplitFate.DONE], np.uint8)
    )
    desk.tracked = pageset.concat([small(1, FOLIO, HOT / FOLIO, CXL), occupied()])
    desk.free = (FREE, 2 * PAGES)
    for _ in range(int(COST.settling_half_lives * HALF_LIFE_S)):
        assert not np.isin(desk.decide().page, desk.tracked.page[:FOLIO]).any()
        desk.last = None
    assert np.isin(desk.decide().page, desk.tracked.page[:FOLIO]).any()
    # The kernel joins it again.
    desk.tracked, desk.free = tracked, (FULL, 2 * PAGES)
    again = desk.decide()
    assert not len(again.split)
    assert again.notes["split was tried before"] == 1


def test_what_was_split_is_forgotten_in_time_and_what_was_not_tried_at_once() -> None:
    key = np.array([FOLIO], np.uint64)
    plan = replace(MigrationPlan.empty(), split=key)
    memory, gain = SplitHistory(), np.ones(1)
    memory.follow(SECOND, MigrationResult.not_tried(plan))
    assert len(memory.choose(key, gain)[0]) == 1
    done = replace(
        MigrationResult.not_tried(plan), split_fate=np.array([SplitFate.REFUSED], np.uint8)
    )
    memory.follow(SECOND, done)
    assert len(memory.choose(key, gain)[0]) == 0
    # What stayed whole need not rest.
    whole = folios(1, (1, HOT, CXL))
    assert np.isinf(memory.rested(whole, SECOND, 10.0).idle_s).all()
    memory.follow(int((VALUE.split_cooldown_s + 1) * SECOND), None)
    assert len(memory.choose(key, gain)[0]) == 1


# ------------------------------------------------------------------ the arithmetic


def bids(tier: Sequence[int], size: Sequence[int], to: Sequence[Sequence[float]]) -> Bids:
    gain = np.array(to)
    return Bids(np.array(tier), np.array(size), gain, np.zeros_like(gain))


def test_room_costs_nothing_while_all_that_wants_in_fits() -> None:
    made = bids([1, 1], [10, 10], [[5.0, 0], [3.0, 0]])
    assert space_prices(made, np.array([20, 99])).tolist() == [0, 0]


def test_room_costs_what_the_last_one_that_fits_not_would_pay() -> None:
    made = bids([1, 1, 1], [10, 10, 10], [[5.0, 0], [3.0, 0], [1.0, 0]])
    assert space_prices(made, np.array([10, 99]))[0] == pytest.approx(0.3)
    assert space_prices(made, np.array([29, 99]))[0] == pytest.approx(0.1)


def test_what_would_leave_for_less_bounds_the_price() -> None:
    made = bids([1, 0, 0], [10, 10, 10], [[5.0, 0], [0, -2.0], [0, -9.0]])
    assert space_prices(made, np.array([0, 99]))[0] == pytest.approx(0.2)
    # With nowhere to go it does not leave.
    assert space_prices(made, np.array([0, 0]))[0] == pytest.approx(0.5)


def test_room_that_lacks_costs_what_must_leave_loses() -> None:
    made = bids([0, 0], [10, 10], [[0, -2.0], [0, -9.0]])
    assert space_prices(made, np.array([-15, 99]))[0] == pytest.approx(0.9)


def test_a_split_pays_more_the_fewer_pages_are_busy() -> None:
    n = 64
    made = bids([1] * n, [FOLIO * PAGE_SIZE] * n, [[0.01, 0.0]] * n)
    gain, dest = split_gain(
        made,
        np.arange(1, n + 1, dtype=np.float64),
        lines=np.full(n, 1000.0),
        doubt=np.zeros(n),
        byte_s=np.full(2, 1e-10),
        price=np.array([1e-8, 0.0]),
        rule=Rule(10.0, 0.5, COST.remap_s),
    )
    assert np.all(np.diff(gain) < 0)
    assert set(dest) == {0}


def is_split(busy: float, lines: float, doubt: float) -> bool:
    """Whether a folio that gains 0.01 s in tier 0 is split for it, with room at a price."""
    gain, _ = split_gain(
        bids([1], [FOLIO * PAGE_SIZE], [[0.01, 0.0]]),
        np.array([busy]),
        lines=np.array([lines]),
        doubt=np.array([doubt]),
        byte_s=np.full(2, 1e-10),
        price=np.array([1e-8, 0.0]),
        rule=Rule(10.0, 0.5, COST.remap_s),
    )
    return bool(np.isfinite(gain[0]))


def test_longer_page_walks_can_outweigh_what_a_split_saves() -> None:
    assert is_split(8, lines=1e2, doubt=0)
    assert not is_split(8, lines=1e6, doubt=0)


def test_pages_that_samples_could_not_tell_apart_are_no_reason_to_split() -> None:
    assert is_split(16, lines=1000, doubt=10)
    assert not is_split(16, lines=1000, doubt=500)


# ------------------------------------------------------------------ the whole loop


def looped(busy: int, dram: int, samples: int = 4000) -> FolioLoop:
    """64 folios in CXL memory, some random pages of each busy; DRAM of so many pages."""
    rng = np.random.default_rng(5)
    pages = [n * FOLIO + rng.choice(FOLIO, busy, replace=False) for n in range(64)]
    tiers = [replace(TIERS[DRAM], pages=dram), TIERS[CXL]]
    return FolioLoop(
        tiers,
        CostPolicy(cost_settings()),
        node=[CXL] * 64,
        busy=np.concatenate(pages),
        samples=samples,
    )


def test_busy_pages_of_folios_come_to_fast_memory_that_holds_few_folios() -> None:
    loop = looped(busy=16, dram=10 * FOLIO)
    loop.run(90)
    busy = loop.node[loop._busy]
    print(np.bincount(busy), np.bincount(loop.node), np.count_nonzero(~loop.whole))
    assert np.count_nonzero(busy == DRAM) > 0.9 * len(busy)
    # Without splits no more of them would be there than of other pages.
    assert np.count_nonzero(loop.node == DRAM) < 0.2 * len(loop.node)


def test_folios_that_are_used_all_over_are_never_split() -> None:
    loop = looped(busy=512, dram=10 * FOLIO, samples=20_000)
    loop.run(40)
    assert loop.whole.all()
    assert np.count_nonzero(loop.node == DRAM) > 0


def test_with_room_for_all_no_folio_is_split() -> None:
    loop = looped(busy=16, dram=80 * FOLIO)
    loop.run(60)
    assert loop.whole.all()
    assert np.count_nonzero(loop.node == DRAM) > 0.9 * len(loop.node)
