# SPDX-License-Identifier: Apache-2.0
"""Moves in a row are judged together: one rule a test."""

from __future__ import annotations

import numpy as np
import pytest

from tierd.core.tuning import REGRESSION
from tierd.policy.regression_window import Before, NoiseEstimate, RegressionWindow

BEFORE = 1e6


def begun() -> tuple[RegressionWindow, NoiseEstimate]:
    """A series of one move, after rates that were all alike."""
    series, swing = RegressionWindow(), NoiseEstimate()
    for _ in range(99):
        swing.add(BEFORE, alike=True)
    for _ in range(REGRESSION.mean_epochs):
        series.lost(BEFORE, swing, alike=True, moved=False)
    series.begins(None)
    series.add(np.array([7], np.uint64), np.array([0], np.int16), {"cxl": 1.0}, {"cxl": 1.0})
    return series, swing


def told(series: RegressionWindow, swing: NoiseEstimate, rate: float, *, moved: bool) -> list[bool]:
    return [
        series.lost(rate, swing, alike=True, moved=moved) for _ in range(REGRESSION.settled_epochs)
    ]


def test_while_pages_move_only_a_large_loss_counts() -> None:
    assert not any(told(*begun(), (1 - 0.8 * REGRESSION.max_loss) * BEFORE, moved=True))
    assert any(told(*begun(), (1 - 1.2 * REGRESSION.max_loss) * BEFORE, moved=True))


def test_a_small_loss_counts_when_they_have_settled() -> None:
    series, swing = begun()
    assert told(series, swing, (1 - 2 * REGRESSION.settled_max_loss) * BEFORE, moved=False)[-1]
    page, source = series.moved()
    assert page.tolist() == [7]
    assert source.tolist() == [0]


@pytest.mark.parametrize("part", [1 - 0.5 * REGRESSION.settled_max_loss, 1.0, 1.1])
def test_a_series_that_settled_without_loss_is_done_with(part: float) -> None:
    series, swing = begun()
    assert series.open
    assert not any(told(series, swing, part * BEFORE, moved=False))
    assert not series.open
    series.begins(None)
    assert series.then.rate == pytest.approx(part * BEFORE)


def test_a_small_loss_that_chance_explains_does_not_count() -> None:
    series, swing = begun()
    for part in [0.9, 1.1] * 20:
        swing.add(part * BEFORE, alike=True)
    assert not any(told(series, swing, (1 - 2 * REGRESSION.settled_max_loss) * BEFORE, moved=False))


def test_progress_is_of_each_part_by_what_was_waited_in_it() -> None:
    mix = np.array([0.2, 0.8])
    then = Before(100.0, mix, np.array([3.0, 1.0]))
    assert then.progress(100.0, mix) == pytest.approx(1)
    assert then.progress(50.0, mix) == pytest.approx(0.5)
    # The first twice as quick, the second half as quick: 40 and 40 lines.
    now = np.array([0.5, 0.5])
    assert then.progress(80.0, now) == pytest.approx(2**0.75 * 0.5**0.25)
    assert then.served(80.0, now) == pytest.approx(2**0.75 * 0.5**0.25)


@pytest.mark.parametrize("before", [Before(100.0), Before(100.0, np.array([1.0]), np.zeros(1))])
def test_where_parts_are_not_known_lines_stand_in(before: Before) -> None:
    assert before.progress(80.0, np.array([1.0])) == pytest.approx(0.8)
    assert Before().served(80.0, None) == 1


def test_a_part_that_fell_silent_counts_no_more_than_so_much() -> None:
    then = Before(100.0, np.array([0.5, 0.5]), np.ones(2))
    assert then.progress(100.0, np.array([1.0, 0.0])) == pytest.approx(
        (2 / REGRESSION.max_part_factor) ** 0.5
    )
