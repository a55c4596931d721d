# SPDX-License-Identifier: Apache-2.0
"""Totals count pages of 4 KiB, by fate and direction."""

from __future__ import annotations

import numpy as np
import pytest

from tierd.core.migration import Direction, Fate, MigrationPlan, MigrationResult
from tierd.observe.totals import Totals


def report(n: int) -> MigrationResult:
    random = np.random.default_rng(n)
    plan = MigrationPlan(
        page=np.arange(n, dtype=np.uint64),
        order=random.choice(np.array([0, 9], np.uint8), n),
        source=np.zeros(n, np.int16),
        dest=np.ones(n, np.int16),
        direction=random.integers(0, 2, n).astype(np.uint8),
        heat=np.zeros(n, np.float32),
        notes={"why": 2},
    )
    fate = random.integers(0, len(Fate), n).astype(np.uint8)
    return MigrationResult(plan, fate, plan.dest, {16: 3}, 5, 6, 7, 8)


def test_counts_by_fate_and_direction_are_those_of_each() -> None:
    for n in (0, 1, 500):
        made = report(n)
        for fate in Fate:
            assert made.counts()[fate] == [made.count(fate, way) for way in Direction]
            assert sum(made.counts()[fate]) == made.count(fate)


def test_plans_and_reports_add_up() -> None:
    totals, made = Totals(), report(300)
    for _ in range(2):
        totals.add_plan(made.plan)
        totals.add_report(made)
    totals.add_plan(MigrationPlan.empty({"why": 1}))
    totals.add_report(MigrationResult.not_tried(MigrationPlan.empty()))
    pages = 1 << made.plan.order.astype(int)
    up = made.plan.direction == Direction.PROMOTE
    assert totals.planned_promotions == 2 * pages[up].sum()
    assert totals.planned_demotions == 2 * pages[~up].sum()
    assert totals.promoted_pages == 2 * made.count(Fate.MOVED, Direction.PROMOTE)
    assert totals.demoted_pages == 2 * made.count(Fate.MOVED, Direction.DEMOTE)
    assert totals.fates["gone"] == 2 * made.count(Fate.GONE)
    assert totals.notes["why"] == 5


def test_times_of_moves_are_by_page() -> None:
    """A call of 600 pages, 2 us each, counts as much as 600 calls of one."""
    totals = Totals()
    totals.add_calls(np.array([[1_200_000, 600], [50_000, 1]], np.int64), 0)
    totals.add_calls(np.empty((0, 2), np.int64), 4)
    shown = totals.as_json()
    assert shown["move_page_ns"]["count"] == 601
    assert shown["move_page_ns"]["p50"] == pytest.approx(2000, rel=0.01)
    assert shown["move_page_ns"]["max"] == 50_000
    assert shown["move_calls_dropped"] == 4
    assert totals.move_page_ns.sum == 1_250_000
