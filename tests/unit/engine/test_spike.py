# SPDX-License-Identifier: Apache-2.0
"""When many pages are refused at once: one rule a test."""

from __future__ import annotations

from itertools import pairwise

from tierd.core.tuning import PHASE
from tierd.engine.phase import SpikeDetector

LEAST = 256

S = 10**9
QUARTER = S // 4


class Course:
    """Refusals every quarter of a second, in an epoch that began at 1 s."""

    def __init__(self) -> None:
        self.seen, self.count, self.now_ns, self.epoch_ns = SpikeDetector(LEAST), 0, S, S
        self.seen.is_spike(0, S, S)

    def go(self, each: int, times: int = 1) -> list[bool]:
        found = []
        for _ in range(times):
            self.count, self.now_ns = self.count + each, self.now_ns + QUARTER
            found.append(self.seen.is_spike(self.count, self.now_ns, self.epoch_ns))
        return found


def test_many_at_once_are_a_leap_and_once_an_epoch() -> None:
    course = Course()
    assert not any(course.go(10, 8))
    assert course.go(LEAST)[0]
    assert not any(course.go(LEAST, 8))
    course.epoch_ns = course.now_ns + 1
    assert not any(course.go(10, 40))
    assert course.go(4 * LEAST)[0]


def test_what_was_refused_since_before_the_leap_may_have_become_hot() -> None:
    course = Course()
    course.go(10, 8)
    assert course.go(LEAST)[0]
    assert course.seen.since(course.count) == LEAST
    assert course.seen.since(course.count + 7) == LEAST + 7
    assert course.seen.since(0) == 0  # counted anew


def test_each_leap_asks_for_an_epoch_twice_as_old_and_calm_ones_for_less() -> None:
    course, leaps = Course(), []
    course.go(0, 6)
    for each in 60 * [0, 0, 0, 0, 0, 0, 0, 0, 8 * LEAST]:
        if course.go(each)[0]:
            leaps.append((course.now_ns - course.epoch_ns) / S)
            course.epoch_ns = course.now_ns + 1
    assert len(leaps) >= 4
    # The first comes when it comes; the others wait until the epoch is old enough.
    assert all(later > sooner for sooner, later in pairwise(leaps[1:]))
    for _ in range(8):  # epochs without one
        course.epoch_ns = course.now_ns + 1
        course.go(0, 8)
    course.epoch_ns = course.now_ns - PHASE.spike_min_epoch_ns
    assert course.go(8 * LEAST)[0]


def test_a_leap_in_an_epoch_that_is_not_as_old_is_seen_to_when_it_is() -> None:
    """Once in it, and with all that was refused since before the leap."""
    course = Course()
    course.go(0, 8)
    assert course.go(LEAST)[0]
    course.epoch_ns = course.now_ns + 1
    course.go(0, 6)
    assert not course.go(8 * LEAST)[0]  # of 1.75 s, and 3 s are asked for
    assert course.go(0, 10) == [False] * 5 + [True] + [False] * 4
    assert course.seen.since(course.count + 9) == 8 * LEAST + 9
    # An epoch that has ended needs nothing more.
    course.epoch_ns = course.now_ns + 1
    course.go(0, 6)
    course.go(8 * LEAST)
    course.epoch_ns = course.now_ns + 1
    assert not any(course.go(0, 40))


def test_few_are_none_whatever_was_usual() -> None:
    course = Course()
    assert not any(course.go(0, 20))
    assert not course.go(LEAST - 1)[0]


def test_what_is_usual_is_none() -> None:
    course = Course()
    course.go(2 * LEAST, 60)
    course.epoch_ns = course.now_ns - 2 * PHASE.spike_min_epoch_ns
    assert not course.go(int(PHASE.spike_factor * LEAST))[0]
    assert course.go(int(3 * PHASE.spike_factor * LEAST))[0]


def test_in_a_young_epoch_all_come_again() -> None:
    course = Course()
    course.go(0, 20)
    course.epoch_ns = course.now_ns
    assert not course.go(9 * LEAST)[0]


def test_the_first_look_and_a_counter_that_begins_anew_tell_nothing() -> None:
    seen = SpikeDetector(LEAST)
    assert not seen.is_spike(10 * LEAST, 10 * S, S)
    assert not seen.is_spike(0, 11 * S, S)
