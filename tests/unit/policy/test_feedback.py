# SPDX-License-Identifier: Apache-2.0
"""Learning from outcomes: one rule a test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tierd.core.migration import Direction, Fate, I16Array, MigrationPlan, MigrationResult
from tierd.core.pagekey import U64Array
from tierd.core.tuning import FEEDBACK
from tierd.policy.feedback import Before, FeedbackController

EPOCH_NS = int(FEEDBACK.epoch_s * 1e9)


@dataclass
class Present:
    """What memory does now."""

    lines_per_s: float = 1e6
    waited: float = 1.0
    gain: float = 0.1
    mix: tuple[float, ...] = (1.0, 2.0, 3.0)
    waiting: tuple[float, ...] = (1.0, 2.0, 3.0)

    def spread(self) -> np.ndarray:
        return np.array(self.mix)

    def waits(self) -> np.ndarray:
        return np.array(self.waiting)

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

    def __init__(self) -> None:
        self.out, self.now, self.time_ns = (
            FeedbackController(),
            Present(),
            EPOCH_NS,
        )
        self.out.update(self.time_ns, self.now)
        self.epoch()

    def epoch(self, predicted: float = 0.0, lines: float = 0.0, **made: float) -> bool:
        """One epoch; whether it ends in a test."""
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
    assert not course.out.predicted
    course.epoch()
    assert (course.out.predicted, course.out.observed, course.out.spent_s) == (0.2, 0.1, 1e-4)


def test_only_what_was_carried_out_counts() -> None:
    course = Course()
    course.epoch(predicted=0.2, moved=0.5)
    course.epoch()
    assert course.out.predicted == pytest.approx(0.1)


def test_what_was_no_choice_is_no_gain_and_no_loss() -> None:
    course = Course()
    course.now.gain = -0.1
    chosen = np.arange(50, 100, dtype=np.uint64)
    course.out.planned(0.2, {"hbm": 4e4}, {"hbm": 0.1}, chosen)
    course.out.carried_out(report(100, cpu_s=1e-4))
    course.epoch()
    course.epoch()
    assert course.out.predicted == pytest.approx(0.2)
    assert course.out.spent_s == pytest.approx(0.5e-4)
    course.out.planned(0.0, {}, {}, chosen[:0])
    course.out.carried_out(report(100, cpu_s=3e-4))
    course.epoch()
    course.epoch()
    assert course.out.spent_s == pytest.approx(0.5e-4)
    assert course.out.folio_s == pytest.approx(0.9 * 1e-6 + 0.1 * 3e-6)


@pytest.mark.parametrize(("waiting", "alarms"), [((9.0, 1.0, 0.0), 0), ((1.0, 9.0, 0.0), 1)])
def test_a_program_that_waits_for_each_line_counts_by_its_waiting(
    waiting: tuple[float, float, float], alarms: int
) -> None:
    """A third fewer lines of a stream, a seventh more of a chase: whose waiting is it?"""
    course = Course()
    course.now.mix, course.now.waiting = (10.0, 30.0, 0.0), waiting
    for _ in range(12):
        course.epoch()
    course.epoch(predicted=0.2, lines=4e4)
    # Counts decay with time: what is new in an epoch is 11.5 and 19.5 in 40.
    kept = 0.5 ** (FEEDBACK.epoch_s / course.out.half_life_s)
    first, second = (kept * 10 + (1 - kept) * 11.5, kept * 30 + (1 - kept) * 19.5)
    course.now.mix, course.now.lines_per_s = (first, second, 0.0), 0.775e6
    course.epoch()
    assert course.out.alarms == alarms


def test_nothing_changes_tier_before_the_first_rate_is_known() -> None:
    out = FeedbackController()
    assert out.lines_left == 0


def test_lines_begin_slowly_and_double() -> None:
    course = Course()
    assert course.out.lines_left == pytest.approx(FEEDBACK.slice_fraction * 1e6)
    course.epoch(predicted=0.2, lines=4e4)
    assert course.out.lines_left == 0  # what came of it is waited for
    course.epoch()
    assert course.out.lines_left == pytest.approx(2 * FEEDBACK.slice_fraction * 1e6)


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
        (2 / FEEDBACK.max_part_factor) ** 0.5
    )
