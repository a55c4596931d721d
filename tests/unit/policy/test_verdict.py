# SPDX-License-Identifier: Apache-2.0
"""A verdict on a page is what the decision does with it, over random states."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from fakeheat import ArrayHeat
from hypothesis import given, settings
from hypothesis import strategies as st
from policies import watermarks

from tierd.core.migration import Direction, MigrationPlan, Reason
from tierd.core.pagekey import PAGE_SIZE, VPN_BITS, I64Array, U64Array, target_of
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
from tierd.policy import pageset
from tierd.policy.inputs import Inputs
from tierd.policy.limits import NO_LIMIT, Budget, Groups
from tierd.policy.rule import Rule, Verdict
from tierd.policy.watermark import WatermarkPolicy, WatermarkSettings

NODE_PAGES = 400
PLENTY = Budget(1 << 40)
STAYS = {
    Reason.MOVED_LATELY,
    Reason.NOT_HOTTER,
    Reason.NO_ROOM,
    Reason.OVER_QUOTA,
    Reason.TOP_TIER,
    Reason.FAST_PATH,
    Reason.GROUP_LIMIT,
}
State = tuple[PageSet, Inputs, WatermarkSettings]
TARGETS = 3
"""The last one is in no group."""


def make_keys_of(targets: I64Array) -> U64Array:
    """Keys of pages of these targets, each its own page."""
    own = targets.astype(np.uint64) << np.uint64(VPN_BITS)
    return np.arange(len(targets), dtype=np.uint64) | own


def tier_map() -> TierMap:
    nodes, tiers = {}, []
    for rank, latency in enumerate((118, 430)):
        figures = (Quantity(latency, Provenance.HMAT), Quantity(1e11, Provenance.HMAT))
        kind = (MemoryKind.DRAM, MemoryKind.CXL)[rank]
        size = NODE_PAGES * PAGE_SIZE
        nodes[rank] = MemoryNode(rank, size, frozenset(), kind, *figures, distances={})
        tiers.append(Tier(rank, str(kind), kind, (rank,), size, *figures))
    return TierMap(tuple(tiers), nodes)


@st.composite
def groups_of(draw: st.DrawFn, tracked: PageSet) -> Groups | None:
    """Two groups with floors, caps and budgets; none in half of all states."""
    if draw(st.booleans()):
        return None
    shares = [sorted(draw(st.tuples(st.floats(0, 0.2), st.floats(0, 0.2)))) for _ in range(2)]
    budgets = st.sampled_from([0, 3 * PAGE_SIZE, NO_LIMIT])
    target = target_of(tracked.page).astype(np.int64)
    return Groups(
        of_target=np.array([0, 1, -1], np.int16),
        floor=np.array([low for low, _ in shares]),
        cap=np.array([high for _, high in shares]),
        budget=np.array([draw(budgets), draw(budgets)], np.int64),
        resident={
            node: np.bincount(target[tracked.node == node], minlength=TARGETS)[:2] * PAGE_SIZE
            for node in (0, 1)
        },
    )


@st.composite
def states(draw: st.DrawFn) -> State:
    """Pages on two nodes, more or less free memory, budget and limits."""
    n = draw(st.integers(1, 60))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    level = draw(st.sampled_from([3.0, 20.0, 300.0]))
    tracked = PageSet(
        page=np.sort(make_keys_of(random.integers(0, TARGETS, n))),
        heat=random.exponential(level, n).round(draw(st.integers(0, 3))).astype(np.float32),
        node=random.integers(0, 2, n).astype(np.int16),
        order=np.zeros(n, np.uint8),
        idle_s=np.where(random.random(n) < 0.1, 1.0, np.inf).astype(np.float32),
    )
    free = draw(st.integers(0, 40)), draw(st.sampled_from([0, 5, 200]))
    usage = {node: NodeUsage(NODE_PAGES * PAGE_SIZE, free[node] * PAGE_SIZE, 0) for node in (0, 1)}
    budget = draw(st.sampled_from([PLENTY, Budget(3 * PAGE_SIZE), Budget(0)]))
    exchanged = draw(st.sampled_from([frozenset[int](), frozenset({1})]))
    knobs = watermarks(
        low_watermark=0.02,
        high_watermark=0.04,
        margin=draw(st.sampled_from([0.0, 0.5])),
        confidence=draw(st.sampled_from([0.0, 2.5])),
        max_moves_per_tick=draw(st.sampled_from([4, 65536])),
    )
    inputs = Inputs(
        ArrayHeat(tracked),
        tier_map(),
        usage,
        budget,
        groups=draw(groups_of(tracked)),
        exchanged=exchanged,
    )
    return tracked, inputs, knobs


def over_states(holds: Callable[[State], None]) -> Callable[[int], None]:
    """A test of a rule over random states, of which `make soak` draws more."""

    @pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.soak)])
    def test(count: int) -> None:
        settings(max_examples=count)(given(states())(holds))()

    test.__doc__ = holds.__doc__
    return test


def moves_of(plan: MigrationPlan) -> dict[int, tuple[Direction, int]]:
    """Page → where it goes."""
    return {
        int(page): (Direction(int(direction)), int(dest))
        for page, direction, dest in zip(plan.page, plan.direction, plan.dest, strict=True)
    }


def verdicts(
    tracked: PageSet, inputs: Inputs, knobs: WatermarkSettings
) -> list[tuple[PageSet, Verdict]]:
    policy = WatermarkPolicy(knobs)
    single = [pageset.take(tracked, slice(i, i + 1)) for i in range(len(tracked))]
    return [(page, policy.explain(inputs, page)) for page in single]


@over_states
def test_a_page_moves_where_its_verdict_says_and_stays_where_it_says_so(state: State) -> None:
    tracked, inputs, knobs = state
    moves = moves_of(WatermarkPolicy(knobs).decide(inputs))
    for page, verdict in verdicts(tracked, inputs, knobs):
        told = None if verdict.direction is None else (verdict.direction, verdict.dest)
        assert moves.get(int(page.page[0])) == told
        assert (verdict.reason in STAYS) == (told is None)
    # Asking changes nothing.
    assert moves_of(WatermarkPolicy(knobs).decide(inputs)) == moves


@over_states
def test_the_terms_of_a_verdict_give_it(state: State) -> None:
    """Where the rule was asked, it says of the named victim what the verdict says."""
    tracked, inputs, knobs = state
    rule = Rule(knobs.margin, knobs.confidence)
    for page, verdict in verdicts(tracked, inputs, knobs):
        if verdict.terms is None:
            continue
        assert verdict.victim is not None
        assert verdict.terms == rule.terms(float(page.heat[0]), verdict.victim)
        assert verdict.terms.promotes == (verdict.direction is Direction.PROMOTE)


@over_states
def test_who_is_kept_out_by_the_budget_comes_in_with_more_of_it(state: State) -> None:
    tracked, inputs, knobs = state
    richer = dataclasses.replace(inputs, budget=PLENTY)
    free_of_limits = dataclasses.replace(knobs, max_moves_per_tick=65536)
    policy = WatermarkPolicy(free_of_limits)
    for page, verdict in verdicts(tracked, inputs, knobs):
        if verdict.reason is Reason.OVER_QUOTA:
            assert policy.explain(richer, page).reason is not Reason.OVER_QUOTA


@over_states
def test_who_rests_after_a_move_is_told_so_whatever_else_holds(state: State) -> None:
    tracked, inputs, knobs = state
    for page, verdict in verdicts(tracked, inputs, knobs):
        rests = bool(page.idle_s[0] < knobs.min_residency_s)
        if verdict.reason is Reason.FAST_PATH:
            continue  # the fast path has a rule of its own for early returns
        assert (verdict.reason is Reason.MOVED_LATELY) == rests
