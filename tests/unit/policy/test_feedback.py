# SPDX-License-Identifier: Apache-2.0
"""Learning from outcomes: one rule a test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tierd.core.migration import Direction, Fate, MigrationPlan, MigrationResult
from tierd.core.pagekey import I16Array, U64Array
from tierd.core.tuning import FEEDBACK
from tierd.policy.feedback import FeedbackController
from tierd.policy.regression_window import rank_correlation

EPOCH_S = 2.0
EPOCH_NS = int(EPOCH_S * 1e9)


@dataclass
class Present:
    """What memory does now."""

    lines_per_s: float = 1e6
    waited: float = 1.0
    gain: float = 0.1
    mix: tuple[float, ...] = (1.0, 2.0, 3.0)

    def spread(self) -> np.ndarray:
        return np.array(self.mix)

    def saved(self, page: U64Array, source: I16Array) -> tuple[float, int]:
        return self.gain, len(page)


def report(pages: int = 100, *, moved: float = 1.0, cpu_s: float = 1e-4) -> MigrationResult:
    plan = MigrationPlan(
        page=np.arange(pages, dtype=np.uint64),
        order=np.zeros(pages, np.uint8),
        source=np.full(pages, 1, np.int16),
        dest=np.zeros(pages, np.int16),
        direction=np.full(pages, Direction.PROMOTE, np.uint8),
        heat=np.ones(pages, np.float32),
    )
    fate = np.where(np.arange(pages) < moved * pages, Fate.MOVED, Fate.BUSY).astype(np.uint8)
    return MigrationResult(plan, fate, plan.dest, {}, 0, 0, int(cpu_s * 1e9), 0)


class Course:
    """Epoch after epoch."""

    def __init__(self, horizon_s: float = 10.0) -> None:
        self.out, self.now, self.time_ns = (
            FeedbackController(horizon_s, EPOCH_S),
            Present(),
            EPOCH_NS,
        )
        self.out.update(self.time_ns, self.now)
        self.epoch()

    def epoch(self, predicted: float = 0.0, lines: float = 0.0, **made: float) -> bool:
        """One epoch; whether it ends standing still."""
        if predicted:
            self.out.planned(
                predicted, {"hbm": lines}, {"hbm": 0.1}, np.arange(100, dtype=np.uint64)
            )
            self.out.carried_out(report(**made))  # type: ignore[arg-type]
        self.time_ns += EPOCH_NS
        return self.out.update(self.time_ns, self.now)


def test_observed_gain_is_taken_an_epoch_later() -> None:
    course = Course()
    course.epoch(predicted=0.2)
    assert not course.out.epochs
    course.epoch()
    (found,) = course.out.epochs
    assert (found.predicted, found.observed, found.spent_s) == (0.2, 0.1, 1e-4)


def test_only_what_was_carried_out_counts() -> None:
    course = Course()
    course.epoch(predicted=0.2, moved=0.5)
    course.epoch()
    assert course.out.epochs[0].predicted == pytest.approx(0.1)


def test_what_was_no_choice_is_no_gain_and_no_loss() -> None:
    course = Course()
    course.now.gain = -0.1
    chosen = np.arange(50, 100, dtype=np.uint64)
    course.out.planned(0.2, {"hbm": 4e4}, {"hbm": 0.1}, chosen)
    course.out.carried_out(report(100, cpu_s=1e-4))
    course.epoch()
    course.epoch()
    assert course.out.epochs[0].predicted == pytest.approx(0.2)
    assert course.out.epochs[0].spent_s == pytest.approx(0.5e-4)
    course.out.planned(0.0, {}, {}, chosen[:0])
    course.out.carried_out(report(100, cpu_s=3e-4))
    course.epoch()
    course.epoch()
    assert len(course.out.epochs) == 1
    assert course.out.folio_s == pytest.approx(0.9 * 1e-6 + 0.1 * 3e-6)


def test_nothing_changes_tier_before_the_first_rate_is_known() -> None:
    out = FeedbackController(10, EPOCH_S)
    assert out.lines_left == 0


def test_lines_begin_slowly_and_double() -> None:
    course = Course()
    assert course.out.lines_left == pytest.approx(FEEDBACK.first_line_fraction * 1e6)
    course.epoch(predicted=0.2, lines=4e4)
    assert course.out.lines_left == 0  # what came of it is waited for
    course.epoch()
    assert course.out.lines_left == pytest.approx(2 * FEEDBACK.first_line_fraction * 1e6)


def test_a_fall_after_moves_takes_them_back_and_recovery_makes_suspicious() -> None:
    course = Course()
    course.epoch(predicted=0.2, lines=4e4)
    course.now.lines_per_s = 0.5e6
    assert course.epoch()
    assert course.out.undo is not None
    page, node = course.out.undo
    assert len(page) == 100
    assert set(node) == {1}
    course.now.lines_per_s = 1e6
    assert not course.epoch()
    assert course.out.undo is None
    assert course.out.suspected["hbm"] > 2


def test_losses_too_small_to_be_seen_alone_are_taken_back_together() -> None:
    course = Course()
    for _ in range(4):
        course.epoch()
    for _ in range(3):
        assert course.out.undo is None
        course.epoch(predicted=0.2, lines=1e4)
        course.now.lines_per_s *= 0.97
    while course.out.undo is None:
        assert course.now.lines_per_s > 0.8e6
        course.epoch(predicted=0.2, lines=1e4)
        course.now.lines_per_s *= 0.97
    page, node = course.out.undo
    assert (len(page), set(node)) == (100, {1})
    assert course.out.alarms == 1
    course.now.lines_per_s = 1e6
    course.epoch()
    assert course.out.suspected["hbm"] > 1


def test_small_losses_with_other_accesses_are_the_programs_own() -> None:
    course = Course()
    for step in range(12):
        course.epoch(predicted=0.2, lines=1e4)
        course.now.lines_per_s *= 0.97
        course.now.mix = (1.0 + 9 * (step % 2), 2.0, 10.0 - 9 * (step % 2))
    assert not course.out.alarms


def test_a_series_that_gained_is_the_measure_of_the_next() -> None:
    course = Course()
    for _ in range(4):
        course.epoch()
    for factor in (1.1, 1.1, 1.1, 1.0, 1.0, 1.0, 0.97, 0.97, 0.97, 0.97, 0.97, 0.97):
        course.epoch(predicted=0.2, lines=1e4)
        course.now.lines_per_s *= factor
    # Less than at the best of times, more than at first.
    assert course.now.lines_per_s > 1e6
    assert course.out.alarms == 1


def test_a_fall_that_goes_on_without_the_moves_was_the_programs_own() -> None:
    course = Course()
    course.epoch(predicted=0.2, lines=4e4)
    course.now.lines_per_s = 0.5e6
    course.epoch()
    course.epoch()
    assert not course.out.suspected
    assert course.out.alarms == 1


def test_a_fall_with_other_accesses_is_the_programs_own() -> None:
    course = Course()
    course.epoch(predicted=0.2, lines=4e4)
    course.now.lines_per_s, course.now.mix = 0.5e6, (9.0, 1.0, 1.0)
    course.epoch()
    assert not course.out.alarms
    assert course.out.undo is None


def test_suspicion_fades() -> None:
    course = Course()
    course.out.suspected["hbm"] = 4.0
    for _ in range(300):
        course.epoch()
    assert not course.out.suspected


def test_what_a_folio_costs_is_measured() -> None:
    course = Course()
    course.epoch(predicted=0.2, cpu_s=1e-3)
    assert course.out.folio_s == pytest.approx(1e-5)


def test_rank_correlation() -> None:
    assert np.isnan(rank_correlation(np.arange(2), np.arange(2)))
    assert rank_correlation(np.arange(5), np.arange(5) ** 3) == pytest.approx(1)
    assert rank_correlation(np.arange(5), -np.arange(5)) == pytest.approx(-1)
    tied = rank_correlation(np.array([1, 1, 2, 3]), np.array([1, 2, 3, 4]))
    assert tied == pytest.approx(0.9487, abs=1e-4)
