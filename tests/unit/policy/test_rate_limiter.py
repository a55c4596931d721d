# SPDX-License-Identifier: Apache-2.0
"""The byte budget and its back-off."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from fakeheat import pages

from tierd.core.migration import Fate, MigrationPlan, MigrationResult
from tierd.core.tuning import PRESSURE
from tierd.policy.limits import Pressure, RateLimiter, RateLimiterSettings

SETTINGS = RateLimiterSettings(rate_bytes_per_s=1_000_000, failure_share=0.2)


def report(moved: int, failed: int, fate: Fate = Fate.BUSY) -> MigrationResult:
    tracked = pages((moved + failed, 1, 0))
    plan = MigrationPlan(
        page=tracked.page,
        order=tracked.order,
        source=tracked.node,
        dest=tracked.node,
        direction=np.zeros(len(tracked), np.uint8),
        heat=tracked.heat,
    )
    fates = np.concatenate([np.full(moved, Fate.MOVED), np.full(failed, fate)]).astype(np.uint8)
    return dataclasses.replace(MigrationResult.not_tried(plan), fate=fates)


def test_budget_is_rate_times_time():
    assert RateLimiter(SETTINGS).next(0.5, None).move_bytes == 500_000


def test_failures_halve_and_success_restores():
    keeper = RateLimiter(SETTINGS)
    assert keeper.next(1, report(70, 30)).move_bytes == 500_000
    assert keeper.next(1, report(70, 30)).move_bytes == 250_000
    assert keeper.next(1, report(90, 10)).move_bytes == 500_000
    assert keeper.next(1, report(90, 10)).move_bytes == 1_000_000
    assert keeper.next(1, report(90, 10)).move_bytes == 1_000_000


def test_back_off_has_a_floor():
    keeper = RateLimiter(SETTINGS)
    for _ in range(20):
        budget = keeper.next(1, report(0, 100))
    assert budget.move_bytes == int(1_000_000 * PRESSURE.min_rate_fraction)


def test_few_moves_and_gone_pages_are_no_failures():
    keeper = RateLimiter(SETTINGS)
    assert keeper.next(1, report(0, 10)).move_bytes == 1_000_000
    assert keeper.next(1, report(0, 100, Fate.GONE)).move_bytes == 1_000_000
    assert keeper.next(1, report(0, 100, Fate.NOT_TRIED)).move_bytes == 1_000_000


def test_pressure_halves_the_budget_down_to_an_eighth_and_calm_restores_it():
    keeper = RateLimiter(RateLimiterSettings(6400, 0.2, most=Pressure(0.2, 0.9, 0.3)))
    strained = Pressure(memory=0.21)
    assert [keeper.next(1.0, None, strained).move_bytes for _ in range(5)] == [
        3200, 1600, 800, 800, 800,
    ]  # fmt: skip
    assert keeper.in_force == 1 / 8
    calm = Pressure(memory=0.2, cpu=0.9, ping_pong=0.3)
    assert [keeper.next(1.0, None, calm).move_bytes for _ in range(4)] == [1600, 3200, 6400, 6400]


@pytest.mark.parametrize(
    "pressure", [Pressure(memory=0.5), Pressure(cpu=0.95), Pressure(ping_pong=0.31)]
)
def test_each_kind_of_pressure_slows_down(pressure: Pressure):
    keeper = RateLimiter(RateLimiterSettings(1000, 0.2, most=Pressure(0.2, 0.9, 0.3)))
    assert keeper.next(1.0, None, pressure).move_bytes == 500


def test_without_limits_no_pressure_slows_down():
    keeper = RateLimiter(RateLimiterSettings(1000, 0.2))
    assert keeper.next(1.0, None, Pressure(1.0, 1.0, 1.0)).move_bytes == 1000
