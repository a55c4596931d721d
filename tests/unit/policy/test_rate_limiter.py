# SPDX-License-Identifier: Apache-2.0
"""The byte budget and its back-off."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from fakeheat import pages

from tierd.core.migration import Fate, MigrationPlan, MigrationResult
from tierd.core.pagekey import VPN_MASK, make_keys
from tierd.core.tuning import PRESSURE
from tierd.policy.limits import Pressure, RateLimiter, RateLimiterSettings

SETTINGS = RateLimiterSettings(rate_bytes_per_s=1_000_000, failure_share=0.2)


def report(moved: int, failed: int, fate: Fate = Fate.BUSY, *, target: int = 7) -> MigrationResult:
    tracked = pages((moved + failed, 1, 0))
    plan = MigrationPlan(
        page=make_keys(target, tracked.page & np.uint64(VPN_MASK)),
        order=tracked.order,
        source=tracked.node,
        dest=tracked.node,
        direction=np.zeros(len(tracked), np.uint8),
        heat=tracked.heat,
    )
    fates = np.concatenate([np.full(moved, Fate.MOVED), np.full(failed, fate)]).astype(np.uint8)
    return dataclasses.replace(MigrationResult.not_tried(plan), fate=fates)


def test_budget_is_rate_times_time():
    assert RateLimiter(SETTINGS).next(0.5).move_bytes == 500_000


def shares(keeper: RateLimiter, *reports: MigrationResult) -> list[dict[int, float]]:
    """What targets have of the rate after each report."""
    found = []
    for each in reports:
        keeper.see(each)
        found.append(keeper.shares)
    return found


def test_failures_halve_a_targets_share_and_success_restores_it():
    bad, good = report(70, 30), report(90, 10)
    keeper = RateLimiter(SETTINGS)
    assert shares(keeper, bad, bad, good, good, good) == [{7: 0.5}, {7: 0.25}, {7: 0.5}, {}, {}]


def test_failures_of_a_target_leave_the_budget_of_others_as_it_is():
    """One tenant's pages cannot move: others have the whole rate, however often it is tried."""
    keeper = RateLimiter(SETTINGS)
    for _ in range(20):
        keeper.see(report(0, 100, Fate.REFUSED))
        keeper.see(report(100, 0, target=8))
    assert keeper.shares == {7: PRESSURE.min_rate_fraction}
    assert keeper.in_force == 1.0
    budget = keeper.next(1)
    assert budget.move_bytes == 1_000_000
    assert keeper.limits(budget) == {7: max(1, int(244 * PRESSURE.min_rate_fraction))}


def test_a_target_that_ended_leaves_the_next_one_with_its_number_the_whole_rate():
    keeper = RateLimiter(SETTINGS)
    keeper.see(report(0, 100))
    keeper.forget(7)
    assert keeper.shares == {}


def test_few_moves_are_summed_up_and_gone_pages_are_no_failures():
    keeper = RateLimiter(SETTINGS)
    few = [report(0, 10)] * 6
    assert shares(keeper, *few, report(0, 3)) == [{}] * 7
    assert shares(keeper, report(0, 1)) == [{7: 0.5}]
    keeper = RateLimiter(SETTINGS)
    none = [report(0, 100, Fate.GONE), report(0, 100, Fate.NOT_TRIED)]
    assert shares(keeper, *none) == [{}, {}]


def test_pressure_halves_the_budget_down_to_an_eighth_and_calm_restores_it():
    keeper = RateLimiter(RateLimiterSettings(6400, 0.2, most=Pressure(0.2, 0.9, 0.3)))
    strained = Pressure(memory=0.21)
    assert [keeper.next(1.0, strained).move_bytes for _ in range(5)] == [
        3200, 1600, 800, 800, 800,
    ]  # fmt: skip
    assert keeper.in_force == 1 / 8
    calm = Pressure(memory=0.2, cpu=0.9, ping_pong=0.3)
    assert [keeper.next(1.0, calm).move_bytes for _ in range(4)] == [1600, 3200, 6400, 6400]


@pytest.mark.parametrize(
    "pressure", [Pressure(memory=0.5), Pressure(cpu=0.95), Pressure(ping_pong=0.31)]
)
def test_each_kind_of_pressure_slows_down(pressure: Pressure):
    keeper = RateLimiter(RateLimiterSettings(1000, 0.2, most=Pressure(0.2, 0.9, 0.3)))
    assert keeper.next(1.0, pressure).move_bytes == 500


def test_without_limits_no_pressure_slows_down():
    keeper = RateLimiter(RateLimiterSettings(1000, 0.2))
    assert keeper.next(1.0, Pressure(1.0, 1.0, 1.0)).move_bytes == 1000
