# SPDX-License-Identifier: Apache-2.0
"""Signs that the hot set has moved: refusals and requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tierd.core.access import LINES_PER_PAGE
from tierd.core.tuning import PHASE
from tierd.engine.phase import MissBurstDetector

LEAST_REQUESTS = PHASE.burst_refused_pages * LINES_PER_PAGE

S = 10**9
QUARTER = S // 4


class Course:
    """A card that sees requests, and a native path that refuses."""

    def __init__(self) -> None:
        self.miss_burst, self.now_ns, self.asked = MissBurstDetector(), S, 0
        self.seen = self.refused = 0
        self.source: Any = SimpleNamespace(
            epochs={0: SimpleNamespace(start_ns=S)}, requests=self._requests
        )
        self.look()

    def _requests(self) -> int:
        self.asked += 1
        return self.seen

    def look(self) -> bool:
        return self.miss_burst.update(self.source, self.refused, self.now_ns)

    def go(self, requests: int, times: int = 1, refused: int = 0) -> bool:
        """So much more each quarter of a second; whether there was a sign."""
        for _ in range(times):
            self.now_ns += QUARTER
            self.seen, self.refused = self.seen + requests, self.refused + refused
            self.look()
        return self.look()


def test_slow_memory_that_is_suddenly_asked_for_is_a_sign() -> None:
    course = Course()
    assert not course.go(LEAST_REQUESTS // 8, 12)
    assert course.go(2 * LEAST_REQUESTS)
    assert course.look(), "until it is taken"
    assert course.miss_burst.take() == {"many_requests"}
    assert not course.look()
    assert course.miss_burst.take() == frozenset()


def test_few_requests_are_none_however_many_times_as_many() -> None:
    course = Course()
    assert not course.go(0, 12)
    assert not course.go(LEAST_REQUESTS - 1)


def test_what_is_always_much_is_no_sign() -> None:
    course = Course()
    course.go(10 * LEAST_REQUESTS)
    course.miss_burst.take()
    course.source.epochs[0].start_ns = course.now_ns
    assert not course.go(10 * LEAST_REQUESTS, 40)


def test_much_at_the_start_is_soon_forgotten() -> None:
    """All pages are slow until they are promoted: that is not what is usual afterwards."""
    course = Course()
    course.go(20 * LEAST_REQUESTS, 4)
    assert not course.go(LEAST_REQUESTS, 8)
    assert course.go(20 * LEAST_REQUESTS)


def test_cards_are_asked_no_more_often_than_is_good() -> None:
    course = Course()
    for _ in range(10):
        course.now_ns += PHASE.burst_check_interval_ns // 4
        course.look()
    assert course.asked == 1 + 2


def test_both_signs_have_room_made_for_as_many_as_either_tells() -> None:
    course = Course()
    course.go(0, 12)
    assert course.go(LEAST_REQUESTS, refused=PHASE.burst_refused_pages)
    signs = course.miss_burst.take()
    assert signs == {"many_refused", "many_requests"}
    # 65,536 requests a second, of pages with 100 each at least.
    assert course.miss_burst.pages(signs, course.refused, 100.0) == 4 * LEAST_REQUESTS // 100
    assert course.miss_burst.pages(signs, course.refused, 1e9) == PHASE.burst_refused_pages
    assert course.miss_burst.pages(signs, course.refused, 0.0) == PHASE.burst_refused_pages
    assert course.miss_burst.pages(frozenset({"many_requests"}), course.refused, 1e9) == 0
    assert (
        course.miss_burst.pages(frozenset({"many_refused"}), course.refused, 1.0)
        == PHASE.burst_refused_pages
    )
