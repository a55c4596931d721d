# SPDX-License-Identifier: Apache-2.0
"""The watermark policy: one rule a test."""

from __future__ import annotations

import dataclasses
from unittest import mock

import numpy as np
import pytest
from fakeheat import ArrayHeat, pages
from hypothesis import given, settings
from hypothesis import strategies as st
from policies import watermarks

from tierd.core import bounds
from tierd.core.migration import Direction, MigrationPlan
from tierd.core.pagekey import PAGE_SIZE
from tierd.core.tiermap import (
    MemoryKind,
    MemoryNode,
    NodeUsage,
    Provenance,
    Quantity,
    Tier,
    TierMap,
)
from tierd.hotness.view import PageSet
from tierd.policy import pageset, watermark
from tierd.policy.inputs import Inputs
from tierd.policy.limits import Budget
from tierd.policy.watermark import WatermarkPolicy, WatermarkSettings

NODE_PAGES = 10_000
SETTINGS = watermarks(low_watermark=0.02, high_watermark=0.04)
PLENTY = Budget(1 << 40)


def tier_map(*specs: tuple[str, MemoryKind, float]) -> TierMap:
    """One node a tier, numbered from 0, in the order given."""
    nodes, tiers = {}, []
    for rank, (name, kind, latency) in enumerate(specs):
        figures = (Quantity(latency, Provenance.HMAT), Quantity(1e11, Provenance.HMAT))
        nodes[rank] = MemoryNode(
            rank, NODE_PAGES * PAGE_SIZE, frozenset(), kind, *figures, distances={}
        )
        tiers.append(Tier(rank, name, kind, (rank,), NODE_PAGES * PAGE_SIZE, *figures))
    return TierMap(tuple(tiers), nodes)


DRAM_CXL = tier_map(("dram", MemoryKind.DRAM, 118), ("cxl", MemoryKind.CXL, 430))


def usage(*free_pages: int, reserve: int = 0) -> dict[int, NodeUsage]:
    return {
        node: NodeUsage(NODE_PAGES * PAGE_SIZE, free * PAGE_SIZE, reserve * PAGE_SIZE)
        for node, free in enumerate(free_pages)
    }


def decide(
    tracked: PageSet,
    free: dict[int, NodeUsage],
    budget: Budget = PLENTY,
    tiers: TierMap = DRAM_CXL,
    knobs: WatermarkSettings = SETTINGS,
    *,
    exchanged: frozenset[int] = frozenset(),
) -> MigrationPlan:
    inputs = Inputs(ArrayHeat(tracked), tiers, free, budget, exchanged=exchanged)
    return WatermarkPolicy(knobs).decide(inputs)


def ways(plan: MigrationPlan) -> tuple[int, int]:
    """(demotions, promotions)."""
    up = int(np.count_nonzero(plan.direction == Direction.PROMOTE))
    return len(plan) - up, up


def test_hot_pages_fill_room_above_the_high_watermark():
    plan = decide(pages((100, 50, 0), (300, 50, 1)), usage(600, 9000))
    assert ways(plan) == (0, 200)  # 600 free less 400 (4 % of 10,000)
    assert set(plan.dest) == {0}


def test_pages_below_confidence_squared_stay():
    plan = decide(pages((100, 0, 0), (300, 6.0, 1)), usage(600, 9000))
    assert ways(plan) == (0, 0)  # 2.5² = 6.25


def test_hot_replaces_cold_when_there_is_no_room():
    plan = decide(pages((500, 0, 0), (100, 50, 1)), usage(400, 9000))
    assert ways(plan) == (100, 100)
    assert list(plan.direction[:100]) == [Direction.DEMOTE] * 100
    assert set(plan.dest[:100]) == {1}


def test_what_is_exchanged_between_decisions_only_fills_room():
    """... of which 200 pages are above the high watermark; the rest is another path's."""
    tracked = pages((500, 0, 0), (300, 50, 1))
    plan = decide(tracked, usage(600, 9000), exchanged=frozenset({1}))
    assert ways(plan) == (0, 200)
    assert ways(decide(tracked, usage(600, 9000), exchanged=frozenset({2}))) == (100, 300)
    full = decide(tracked, usage(400, 9000), exchanged=frozenset({1}))
    assert ways(full) == (0, 0)


def test_huge_folios_are_exchanged_by_nobody_else():
    small, huge = pages((600, 0, 0), (100, 90, 1)), pages((1, 50, 1))
    huge = dataclasses.replace(
        huge, page=huge.page + np.uint64(1 << 20), order=np.full(1, 9, np.uint8)
    )
    plan = decide(pageset.concat([small, huge]), usage(400, 9000), exchanged=frozenset({1}))
    up = plan.direction == Direction.PROMOTE
    assert list(plan.order[up]) == [9]


def test_a_node_is_relieved_whoever_exchanges():
    tracked = pages((500, 0, 0), (300, 50, 1))
    plan = decide(tracked, usage(100, 9000), exchanged=frozenset({1}))
    assert ways(plan) == (300, 0)


def test_between_the_watermarks_a_replacement_needs_no_more_than_its_own_room():
    assert ways(decide(pages((500, 0, 0), (100, 50, 1)), usage(250, 9000))) == (100, 100)


@pytest.mark.parametrize(
    ("hot", "cold", "moves"),
    [(14, 5, 0), (50, 5, 100), (120, 100, 0), (220, 100, 100), (7.0, 0, 100), (6.2, 0, 0)],
)
def test_replacement_needs_margin_and_confidence(hot, cold, moves):
    """h > 1.5 v + 2.5 sqrt(h + v)."""
    plan = decide(pages((500, cold, 0), (100, hot, 1)), usage(400, 9000))
    assert ways(plan) == (moves, moves)


def test_lately_moved_pages_stay():
    plan = decide(pages((500, 0, 0), (100, 50, 1), idle_s=9.0), usage(100, 9000))
    assert ways(plan) == (0, 0)
    assert plan.notes["cooldown"] > 0


def test_short_node_is_relieved_to_the_high_watermark():
    plan = decide(pages((5000, 1, 0)), usage(150, 9000))
    assert ways(plan) == (250, 0)  # up to 400 free


def test_pages_in_use_are_demoted_for_the_low_watermark_only():
    plan = decide(pages((5000, 50, 0)), usage(150, 9000))
    assert ways(plan) == (50, 0)  # up to 200 free
    mixed = decide(pages((120, 1, 0), (5000, 50, 0)), usage(150, 9000))
    assert ways(mixed) == (120, 0)  # what is not in use goes, and no more


def test_between_the_watermarks_nothing_moves():
    plan = decide(pages((5000, 1, 0), (100, 1, 1)), usage(300, 9000))
    assert ways(plan) == (0, 0)


def test_the_kernels_reserve_counts_before_the_watermark():
    plan = decide(pages((5000, 1, 0)), usage(450, 9000, reserve=500))
    assert ways(plan) == (250, 0)  # 500 + the gap of 200


def test_relief_takes_the_coldest():
    plan = decide(pages((3000, 9, 0), (100, 0, 0), (2000, 5, 0)), usage(150, 9000))
    assert sorted(plan.heat) == [0] * 100 + [5] * 150


def test_no_room_below_plans_nothing_and_says_so():
    plan = decide(pages((500, 0, 0), (100, 50, 1)), usage(400, 200))
    assert ways(plan) == (0, 0)
    assert plan.notes["no room below"] == 100


def test_full_tiers_swap_through_the_gap_between_the_watermarks():
    assert ways(decide(pages((500, 0, 0), (300, 50, 1)), usage(400, 400))) == (200, 200)


def test_budget_counts_both_directions():
    plan = decide(pages((500, 0, 0), (100, 50, 1)), usage(400, 9000), Budget(60 * PAGE_SIZE))
    assert ways(plan) == (30, 30)
    assert plan.notes["rate_limit"] > 0


def test_no_budget_no_moves():
    assert ways(decide(pages((500, 0, 0), (100, 50, 1)), usage(100, 9000), Budget(0))) == (0, 0)


def test_huge_folios_count_by_their_bytes():
    tracked = pageset.concat([pages((2000, 0, 0)), pages((4, 50, 1), order=9)])
    tracked = dataclasses.replace(tracked, page=np.arange(len(tracked), dtype=np.uint64) << 9)
    plan = decide(tracked, usage(400 + 512, 9000))
    assert ways(plan) == (3 * 512, 4)


def test_hbm_beside_dram_is_no_promotion_target():
    tiers = tier_map(
        ("dram", MemoryKind.DRAM, 118), ("hbm", MemoryKind.HBM, 130), ("cxl", MemoryKind.CXL, 430)
    )
    plan = decide(
        pages((10, 0, 0), (100, 50, 1), (50, 40, 2)), usage(5000, 5000, 5000), tiers=tiers
    )
    assert set(zip(plan.source.tolist(), plan.dest.tolist(), strict=True)) == {(2, 0)}


def test_three_full_tiers_sort_themselves_a_step_at_a_time():
    """The hottest end in the first tier, the coldest in the last, in finitely many ticks."""
    tiers = tier_map(
        ("dram", MemoryKind.DRAM, 100), ("cxl", MemoryKind.CXL, 300), ("far", MemoryKind.CXL, 900)
    )
    knobs = dataclasses.replace(SETTINGS, min_residency_s=0)
    tracked = pages((300, 0, 0), (300, 60, 1), (300, 250, 2))
    free = {0: 400, 1: 400, 2: 9000}
    ticks = 0
    while ticks < 20:
        ticks += 1
        plan = decide(tracked, usage(*free.values()), tiers=tiers, knobs=knobs)
        steps = set(zip(plan.source.tolist(), plan.dest.tolist(), strict=True))
        assert steps <= {(0, 1), (1, 0), (1, 2), (2, 1)}
        if not len(plan):
            break
        node = tracked.node.copy()
        node[plan.page.astype(int)] = plan.dest
        tracked = dataclasses.replace(tracked, node=node)
        for source, dest in zip(plan.source.tolist(), plan.dest.tolist(), strict=True):
            free[source] += 1
            free[dest] -= 1
    assert ticks < 20
    assert set(tracked.node[600:]) == {0}
    assert set(tracked.node[:300]) <= {1, 2}


def test_same_inputs_same_plan():
    tracked = pages((500, 0.5, 0), (700, 50, 1), (50, 20, 1))
    first, second = (decide(tracked, usage(450, 9000)) for _ in range(2))
    for name in ("page", "order", "source", "dest", "direction", "heat"):
        assert np.array_equal(getattr(first, name), getattr(second, name))


def _heats() -> st.SearchStrategy[list[float]]:
    return st.lists(st.floats(0, 1e6, width=32), max_size=60)


@settings(max_examples=200, deadline=None)
@given(
    fast=_heats(),
    slow=_heats(),
    free=st.tuples(st.integers(0, 700), st.integers(0, 700)),
    budget=st.integers(0, 200),
    order=st.sampled_from([0, 9]),
)
def test_any_plan_is_within_room_and_budget(fast, slow, free, budget, order):
    """No page twice, never over budget, never past the kernel's reserve, never a cold
    page in place of a hotter one."""
    groups = [(1, heat, 0) for heat in fast] + [(1, heat, 1) for heat in slow]
    if not groups:
        return
    plan = decide(pages(*groups, order=order), usage(*free), Budget(budget * PAGE_SIZE))
    size = 1 << order
    assert len(np.unique(plan.page)) == len(plan)
    assert plan.bytes_planned <= budget * PAGE_SIZE
    for node in (0, 1):
        came = int(np.count_nonzero(plan.dest == node)) * size
        left = int(np.count_nonzero(plan.source == node)) * size
        if came > left:
            assert free[node] + left - came >= 200  # the low watermark
    up = plan.direction == Direction.PROMOTE
    if up.any() and free[0] >= 400 and not order:
        assert plan.heat[up].min() > SETTINGS.confidence**2
        if (~up).any():
            assert plan.heat[up].min() > plan.heat[~up].max()


def two_tiers(seed, lately, times=(1,)):
    """900 folios a tier of any heat, a share moved lately, little room; those below hotter."""
    random = np.random.default_rng(seed)
    tracked = pages((900, 1.0, 0), (900, 1.0, 1))
    heat = random.exponential(random.choice([1, 30, 300], 1800)).astype(np.float32)
    heat[random.random(1800) < 0.3] = 0
    heat[900:] *= random.choice(times)
    idle_s = np.where(random.random(1800) < lately, 1.0, 100.0).astype(np.float32)
    tracked = dataclasses.replace(tracked, heat=heat, idle_s=idle_s)
    return tracked, usage(int(random.integers(0, 500)), 5000)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), lately=st.floats(0, 1), budget=st.integers(0, 3000))
def test_a_plan_does_not_hang_on_how_many_victims_are_asked_for_at_a_time(seed, lately, budget):
    """Asked for one by one, or for all at once: the same plan for the same reasons."""
    tracked, free = two_tiers(seed, lately)
    plans = []
    for first in (1, 64, 10**6):
        with mock.patch.object(bounds, "FIRST_VICTIMS", first):
            plans.append(decide(tracked, free, Budget(budget * PAGE_SIZE)))
    for plan in plans[1:]:
        assert ways(plan) == ways(plans[0])
        for name in ("page", "dest", "direction", "heat"):
            assert np.array_equal(getattr(plan, name), getattr(plans[0], name))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), lately=st.floats(0, 1))
def test_a_plan_does_not_hang_on_how_many_of_the_hottest_are_asked_for_at_a_time(seed, lately):
    """The same pages move; who is asked for later is planned later, so their order may differ."""
    tracked, free = two_tiers(seed, lately, times=[1, 30])
    plans = []
    for first in (1, 64, 10**6):
        with mock.patch.object(bounds, "FIRST_HOT", first):
            plans.append(decide(tracked, free))
    moves = [
        set(zip(plan.page.tolist(), plan.dest.tolist(), plan.direction.tolist(), strict=True))
        for plan in plans
    ]
    assert moves[0] == moves[1] == moves[2]
    assert len({len(plan) for plan in plans}) == 1


def test_the_hottest_are_asked_for_once_where_not_all_of_them_come_in():
    tracked = pages((3000, 50.0, 0), (20, 500.0, 1), (3000, 60.0, 1))
    asked = []

    class Counting(ArrayHeat):
        def hottest(self, node, n, min_heat=0.0, among=None):
            asked.append(n)
            return super().hottest(node, n, min_heat, among)

    inputs = Inputs(Counting(tracked), DRAM_CXL, usage(0, 9000), PLENTY)
    assert ways(WatermarkPolicy(SETTINGS).decide(inputs))[1] == 20
    assert len(asked) == 1


@given(seed=st.integers(0, 10**6), lately=st.floats(0, 1), free=st.integers(0, 500))
def test_what_is_not_looked_up_could_not_have_come_in(seed, lately, free):
    """Least heat that wins, worked out before, or every page compared: the same plan."""
    random = np.random.default_rng(seed)
    heat = random.exponential(random.choice([1, 30, 300], 1800)).astype(np.float32)
    heat[random.random(1800) < random.choice([0.0, 0.3])] = 0
    heat[:900] += random.choice([0, 5, 100])
    idle_s = np.where(random.random(1800) < lately, 1.0, 100.0).astype(np.float32)
    tracked = pages((900, 1.0, 0), (900, 1.0, 1))
    tracked = dataclasses.replace(tracked, heat=heat, idle_s=idle_s)
    quick = decide(tracked, usage(free, 5000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watermark.Round, "_least_to_win", lambda self, tier: 0.0)
        slow = decide(tracked, usage(free, 5000))
    for name in ("page", "dest", "direction", "heat"):
        assert np.array_equal(getattr(quick, name), getattr(slow, name))
