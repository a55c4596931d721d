# SPDX-License-Identifier: Apache-2.0
"""The byte budget and its back-off."""

from __future__ import annotations

import dataclasses

import numpy as np
from fakeheat import pages

from tierd.moves import Fate, MovePlan, MoveReport
from tierd.policy.guards import LEAST_SHARE, BudgetKeeper, GuardSettings

SETTINGS = GuardSettings(rate_bytes_per_s=1_000_000, failure_share=0.2)


def report(moved: int, failed: int, fate: Fate = Fate.BUSY) -> MoveReport:
    tracked = pages((moved + failed, 1, 0))
    plan = MovePlan(
        page=tracked.page,
        order=tracked.order,
        source=tracked.node,
        dest=tracked.node,
        direction=np.zeros(len(tracked), np.uint8),
        heat=tracked.heat,
    )
    fates = np.concatenate([np.full(moved, Fate.MOVED), np.full(failed, fate)]).astype(np.uint8)
    return dataclasses.replace(MoveReport.not_tried(plan), fate=fates)


def test_budget_is_rate_times_time():
    assert BudgetKeeper(SETTINGS).next(0.5, None).move_bytes == 500_000


def test_failures_halve_and_success_restores():
    keeper = BudgetKeeper(SETTINGS)
    assert keeper.next(1, report(70, 30)).move_bytes == 500_000
    assert keeper.next(1, report(70, 30)).move_bytes == 250_000
    assert keeper.next(1, report(90, 10)).move_bytes == 500_000
    assert keeper.next(1, report(90, 10)).move_bytes == 1_000_000
    assert keeper.next(1, report(90, 10)).move_bytes == 1_000_000


def test_back_off_has_a_floor():
    keeper = BudgetKeeper(SETTINGS)
    for _ in range(20):
        budget = keeper.next(1, report(0, 100))
    assert budget.move_bytes == int(1_000_000 * LEAST_SHARE)


def test_few_moves_and_gone_pages_are_no_failures():
    keeper = BudgetKeeper(SETTINGS)
    assert keeper.next(1, report(0, 10)).move_bytes == 1_000_000
    assert keeper.next(1, report(0, 100, Fate.GONE)).move_bytes == 1_000_000
    assert keeper.next(1, report(0, 100, Fate.NOT_TRIED)).move_bytes == 1_000_000
