# SPDX-License-Identifier: Apache-2.0
"""Floors, caps and budgets of groups: one rule a test."""

from __future__ import annotations

import numpy as np
from fakeheat import ArrayHeat
from hypothesis import given, settings
from hypothesis import strategies as st
from policies import watermarks

from tierd.core.migration import Direction, MigrationPlan
from tierd.core.pagekey import MAX_TARGETS, PAGE_SIZE, make_keys, target_of
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
from tierd.policy.inputs import Inputs
from tierd.policy.limits import NO_LIMIT, Budget, Groups, within
from tierd.policy.watermark import WatermarkPolicy, WatermarkSettings

NODE_PAGES = 10_000
SETTINGS = watermarks(low_watermark=0.02, high_watermark=0.04)


def two_tiers() -> TierMap:
    nodes, tiers = {}, []
    for rank, (kind, latency) in enumerate([(MemoryKind.DRAM, 118), (MemoryKind.CXL, 430)]):
        figures = (Quantity(latency, Provenance.HMAT), Quantity(1e11, Provenance.HMAT))
        nodes[rank] = MemoryNode(rank, NODE_PAGES * PAGE_SIZE, frozenset(), kind, *figures)
        tiers.append(Tier(rank, str(kind), kind, (rank,), NODE_PAGES * PAGE_SIZE, *figures))
    return TierMap(tuple(tiers), nodes)


def world(*areas: tuple[int, int, float, int]) -> PageSet:
    """Pages from (target, count, heat, node) areas."""
    keys = [
        make_keys(target, np.arange(count, dtype=np.uint64) + np.uint64(1_000_000 * number))
        for number, (target, count, _, _) in enumerate(areas)
    ]
    n = sum(count for _, count, _, _ in areas)
    return PageSet(
        page=np.concatenate(keys),
        heat=np.concatenate([np.full(c, heat, np.float32) for _, c, heat, _ in areas]),
        node=np.concatenate([np.full(c, node, np.int16) for _, c, _, node in areas]),
        order=np.zeros(n, np.uint8),
        idle_s=np.full(n, np.inf, np.float32),
    )


def groups(
    pages: PageSet, *rules: tuple[float, float], budget_pages: tuple[int, ...] | None = None
) -> Groups:
    """Target t is in group t; one that has no rule is in none. Rules are (floor, cap)."""
    resident = {}
    for node in (0, 1):
        here = target_of(pages.page[pages.node == node]).astype(int)
        resident[node] = np.array(
            [np.count_nonzero(here == g) * PAGE_SIZE for g in range(len(rules))], np.int64
        )
    budget = [NO_LIMIT] * len(rules) if budget_pages is None else np.array(budget_pages) * PAGE_SIZE
    return Groups(
        of_target=np.arange(len(rules), dtype=np.int16),
        floor=np.array([floor for floor, _ in rules]),
        cap=np.array([cap for _, cap in rules]),
        budget=np.array(budget, np.int64),
        resident=resident,
    )


def decide(
    pages: PageSet,
    shares: Groups | None,
    free: tuple[int, int] = (400, 9000),
    settings: WatermarkSettings = SETTINGS,
) -> MigrationPlan:
    usage = {
        node: NodeUsage(NODE_PAGES * PAGE_SIZE, count * PAGE_SIZE, 0)
        for node, count in enumerate(free)
    }
    inputs = Inputs(ArrayHeat(pages), two_tiers(), usage, Budget(1 << 40), groups=shares)
    return WatermarkPolicy(settings).decide(inputs)


def moves(plan: MigrationPlan, target: int) -> tuple[int, int]:
    """(demotions, promotions) of a target."""
    own = target_of(plan.page) == target
    up = plan.direction == Direction.PROMOTE
    return int(np.count_nonzero(own & ~up)), int(np.count_nonzero(own & up))


def test_groups_without_limits_change_nothing() -> None:
    pages = world((0, 3000, 0, 0), (1, 500, 50, 1), (7, 500, 60, 1))
    free = groups(pages, (0.0, 1.0), (0.0, 1.0))
    assert np.array_equal(decide(pages, free).page, decide(pages, None).page)
    assert np.array_equal(decide(pages, free).dest, decide(pages, None).dest)


def test_pages_leave_down_to_the_floor_and_no_further() -> None:
    """3000 cold pages of group 0, a floor of 28 %: 200 may leave, though 1000 hot ones wait."""
    pages = world((0, 3000, 0, 0), (1, 1000, 50, 1))
    plan = decide(pages, groups(pages, (0.28, 1.0)))
    assert moves(plan, 0) == (200, 0)
    assert moves(plan, 1) == (0, 200)
    assert plan.notes["group_min"] > 0


def test_relief_passes_over_pages_at_their_floor() -> None:
    pages = world((0, 3000, 0, 0), (1, 3000, 6, 0))
    plan = decide(pages, groups(pages, (0.3, 1.0)), free=(150, 9000))
    assert moves(plan, 0) == (0, 0)
    assert moves(plan, 1) == (250, 0)


FEW = watermarks(low_watermark=0.02, high_watermark=0.04, max_moves_per_tick=300)
"""A plan looks at fewer pages than a group below has."""


def test_a_group_at_its_floor_hides_no_other_however_many_pages_it_has() -> None:
    """Groups 0 and 1 have the 5000 coldest pages, and may give up none of them."""
    pages = world((0, 3000, 0, 0), (1, 2000, 1, 0), (2, 3000, 6, 0))
    shares = groups(pages, (0.3, 1.0), (0.2, 1.0))
    plan = decide(pages, shares, free=(150, 9000), settings=FEW)
    assert [moves(plan, group) for group in (0, 1, 2)] == [(0, 0), (0, 0), (250, 0)]


def test_a_group_at_its_cap_hides_no_other_however_many_pages_it_has() -> None:
    pages = world((0, 1000, 0, 0), (1, 1000, 80, 0), (1, 5000, 90, 1), (2, 200, 50, 1))
    plan = decide(pages, groups(pages, (0, 1), (0.0, 0.1)), free=(600, 9000), settings=FEW)
    assert moves(plan, 2)[1] == 200
    assert moves(plan, 1)[1] == 0


def test_what_is_beyond_a_cap_leaves_though_others_are_colder() -> None:
    pages = world((0, 5000, 0, 0), (1, 1200, 80, 0))
    plan = decide(pages, groups(pages, (0, 1), (0.0, 0.1)), settings=FEW)
    assert moves(plan, 1)[0] == 200


def test_what_a_floor_promises_comes_though_others_are_hotter() -> None:
    pages = world((0, 300, 5, 1), (1, 5000, 90, 1), (2, 3000, 0, 0))
    plan = decide(pages, groups(pages, (0.02, 1.0)), settings=FEW)
    assert moves(plan, 0)[1] == 200


def test_below_the_floor_warm_pages_come_in_before_hotter_ones_of_others() -> None:
    """Group 0 has 100 of 300 promised pages; 1 is hotter everywhere."""
    pages = world((0, 100, 5, 0), (0, 900, 1, 1), (1, 4000, 90, 0), (1, 900, 95, 1))
    plan = decide(pages, groups(pages, (0.03, 1.0), (0.0, 1.0)))
    assert moves(plan, 0) == (0, 200)
    assert moves(plan, 1) == (200, 0)


def test_a_floor_brings_in_no_page_that_was_never_used() -> None:
    pages = world((0, 900, 0, 1), (1, 4000, 90, 0))
    assert len(decide(pages, groups(pages, (0.5, 1.0)))) == 0


def test_two_floors_that_cannot_both_be_met_do_not_trade_pages() -> None:
    pages = world((0, 2000, 5, 0), (0, 2000, 5, 1), (1, 2000, 5, 0), (1, 2000, 5, 1))
    assert len(decide(pages, groups(pages, (0.3, 1.0), (0.3, 1.0)))) == 0


def test_pages_come_in_up_to_the_cap() -> None:
    pages = world((0, 900, 50, 1), (1, 3000, 0, 0))
    plan = decide(pages, groups(pages, (0.0, 0.05)), free=(5000, 9000))
    assert moves(plan, 0) == (0, 500)
    assert plan.notes["group_max"] == 400


def test_what_is_beyond_the_cap_leaves_coldest_first() -> None:
    pages = world((0, 600, 50, 0), (0, 300, 2, 0), (1, 100, 1, 0))
    plan = decide(pages, groups(pages, (0.0, 0.07)), free=(5000, 9000))
    assert moves(plan, 0) == (200, 0)
    assert set(plan.heat) == {2.0}


def test_at_the_cap_a_hotter_page_replaces_a_colder_one_of_its_own() -> None:
    pages = world((0, 500, 0, 0), (0, 120, 50, 1), (1, 3000, 0, 0))
    plan = decide(pages, groups(pages, (0.0, 0.05)), free=(5000, 9000))
    assert moves(plan, 0) == (120, 120)
    assert moves(plan, 1) == (0, 0)


def test_the_slowest_tier_knows_no_cap() -> None:
    pages = world((0, 9000, 0, 1))
    assert len(decide(pages, groups(pages, (0.0, 0.05)), free=(9000, 500))) == 0


def test_a_groups_own_budget_counts_both_directions() -> None:
    pages = world((0, 3000, 0, 0), (0, 900, 50, 1), (1, 100, 50, 1))
    plan = decide(pages, groups(pages, (0.0, 1.0), (0.0, 1.0), budget_pages=(150, 1000)))
    assert sum(moves(plan, 0)) <= 150
    assert moves(plan, 0)[0] > 0
    free = decide(pages, groups(pages, (0.0, 1.0), (0.0, 1.0)))
    assert sum(moves(free, 0)) > 1000


def test_a_budget_of_nothing_moves_nothing_of_the_group() -> None:
    pages = world((0, 900, 50, 1), (1, 900, 40, 1))
    plan = decide(pages, groups(pages, (0.0, 1.0), budget_pages=(0,)), free=(1000, 9000))
    assert moves(plan, 0) == (0, 0)
    assert moves(plan, 1) == (0, 600)


def test_targets_beyond_the_table_are_in_no_group() -> None:
    pages = world((MAX_TARGETS - 1, 500, 50, 1), (0, 10, 0, 0))
    assert moves(decide(pages, groups(pages, (0.0, 0.0)), (1000, 9000)), MAX_TARGETS - 1)[1] == 500


@given(
    st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 9)), max_size=60),
    st.lists(st.integers(-5, 200), min_size=4, max_size=4),
)
@settings(deadline=None)
def test_within_takes_of_each_group_the_longest_start_that_fits(
    pages: list[tuple[int, int]], room: list[int]
) -> None:
    group = np.array([g for g, _ in pages], np.int16)
    size = np.array([1 << s for _, s in pages], np.int64)
    expected, used = [], [0] * 4
    for g, s in zip(group.tolist(), size.tolist(), strict=True):
        if g >= 0:
            used[g] += s
        expected.append(g < 0 or used[g] <= room[g])
    assert within(group, size, np.array(room, np.int64)).tolist() == expected


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(1, 900),
            st.sampled_from([0.0, 1.0, 7.0, 50.0]),
            st.integers(0, 1),
        ),
        min_size=1,
        max_size=8,
    ),
    st.lists(
        st.tuples(st.floats(0, 1), st.floats(0, 1)).map(lambda both: (min(both), max(both))),
        min_size=1,
        max_size=3,
    ),
    st.integers(0, 3000),
)
@settings(deadline=None)
def test_no_plan_breaks_a_promise(
    areas: list[tuple[int, int, float, int]], rules: list[tuple[float, float]], free: int
) -> None:
    """After any plan no group that was above its floor is below it, nor the same for caps."""
    pages = world(*areas)
    plan = decide(pages, groups(pages, *rules), free=(free, 9000))
    capacity = NODE_PAGES
    for g, (floor, cap) in enumerate(rules):
        before = int(np.count_nonzero((target_of(pages.page) == g) & (pages.node == 0)))
        down, up = moves(plan, g)
        after = before - down + up
        assert after >= min(before, int(floor * capacity * PAGE_SIZE) // PAGE_SIZE)
        if cap < 1.0:
            assert after <= max(before, int(cap * capacity))
    assert len(np.unique(plan.page)) == len(plan)
