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


def test_where_nothing_was_served_nothing_is_lost() -> None:
    assert Before().served(80.0) == 1
    assert Before(100.0).served(80.0) == pytest.approx(0.8)
