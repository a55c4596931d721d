# SPDX-License-Identifier: Apache-2.0
"""Changes of the hot set: found soon, and not where there are none. Seeds are fixed."""

from __future__ import annotations

import numpy as np
import pytest

from tierd.core.bounds import RUN_MAX
from tierd.hotness.change_point import ChangeDetector, ChangeSettings

TICKS = 1000
SEEDS = range(10)


def alarms(values: object, settings: ChangeSettings | None = None) -> list[int]:
    """Positions at which a change is told."""
    detector = ChangeDetector(settings)
    return [i for i, value in enumerate(np.asarray(values, float)) if detector.observe(value)]


def delays(shift: float, noise: float = 0.1) -> list[int | None]:
    """Observations from a shift to its alarm, for each seed."""
    found: list[int | None] = []
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        before, after = random.normal(1, noise, 60), random.normal(1 + shift, noise, 30)
        told = [i - 60 for i in alarms(np.concatenate([before, after]))]
        assert all(i >= 0 for i in told)
        found.append(told[0] + 1 if told else None)
    return found


def test_noise_is_no_change() -> None:
    told = [alarms(np.random.default_rng(seed).normal(1, 0.1, TICKS)) for seed in SEEDS]
    assert sum(map(len, told)) == 0


def test_noise_with_heavy_tails_is_hardly_ever_a_change() -> None:
    told = [alarms(1 + 0.15 * np.random.default_rng(s).standard_t(3, TICKS)) for s in SEEDS]
    assert sum(map(len, told)) <= 0.001 * TICKS * len(SEEDS)


def test_noise_that_drags_on_is_seldom_a_change() -> None:
    total = 0
    for seed in SEEDS:
        random, value, values = np.random.default_rng(seed), 0.0, []
        for _ in range(TICKS):
            value = 0.7 * value + random.normal(0, 0.1)
            values.append(value)
        total += len(alarms(values))
    assert total <= 0.003 * TICKS * len(SEEDS)


@pytest.mark.parametrize("shift", [1.0, 2.0, 9.0])
def test_a_clear_change_is_told_at_its_second_observation(shift: float) -> None:
    assert set(delays(shift)) == {2}


def test_a_change_of_five_deviations_is_told_within_three() -> None:
    found = delays(0.5)
    assert sum(delay is not None and delay <= 3 for delay in found) >= 9


def test_a_change_is_told_once() -> None:
    random = np.random.default_rng(3)
    values = np.concatenate([random.normal(1, 0.1, 100), random.normal(3, 0.1, 100)])
    assert alarms(values) == [101]


def test_every_one_of_several_changes_is_told() -> None:
    random = np.random.default_rng(4)
    parts = [random.normal(level, 0.1, 50) for level in (1, 4, 1, 4, 1, 4)]
    assert alarms(np.concatenate(parts)) == [51, 151, 251]


def test_a_fall_is_no_change_of_the_kind_that_is_looked_for() -> None:
    random = np.random.default_rng(5)
    assert alarms(np.concatenate([random.normal(5, 0.1, 100), random.normal(1, 0.1, 100)])) == []


def test_one_odd_tick_is_no_change() -> None:
    values = np.random.default_rng(6).normal(1, 0.1, 200)
    values[100] = 4.0
    assert alarms(values) == []


def test_a_small_step_after_minutes_of_standing_still_is_no_change() -> None:
    assert alarms([1.0] * 500 + [1.04] * 50) == []


def test_a_change_before_anything_was_learnt_is_none() -> None:
    assert alarms([1.0, 1.0, 5.0, 5.0, 5.0, 5.0]) == []


def test_an_hour_of_ticks_is_answered_as_quickly_and_with_as_little_memory() -> None:
    detector = ChangeDetector()
    for value in np.random.default_rng(7).normal(1, 0.1, 7200):
        detector.observe(value)
    assert len(detector._runs) <= RUN_MAX + 1
    assert detector.run_length > 100
    assert [detector.observe(3.0) for _ in range(3)] == [False, True, False]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not a number"):
        ChangeDetector().observe(value)
