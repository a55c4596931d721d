# SPDX-License-Identifier: Apache-2.0
"""Access patterns by region: one rule a test."""

from __future__ import annotations

import numpy as np
import pytest

from tierd.core.access import AccessBatch
from tierd.core.pagekey import HUGE_ORDER
from tierd.hotness.pattern import Patterns, PatternTracker

SECOND = 10**9
REGION = 1 << HUGE_ORDER


def batch(
    pages: np.ndarray, time_s: float = 1.0, *, ordered: bool = True, writes: float | None = None
) -> AccessBatch:
    is_write = None if writes is None else np.arange(len(pages)) < writes * len(pages)
    return AccessBatch(
        pages.astype(np.uint64),
        np.ones(len(pages), np.float32),
        int(time_s * SECOND),
        "test",
        is_write,
        ordered=ordered,
    )


def known(tracker: PatternTracker, *pages: int) -> Patterns:
    return tracker.snapshot().at(np.array(pages, np.uint64))


def test_a_stream_is_parallel_whichever_way_it_goes() -> None:
    tracker = PatternTracker(5.0)
    tracker.add(batch(np.arange(0, REGION, 4)))
    tracker.add(batch(np.arange(2 * REGION, REGION, -4)))
    assert np.all(known(tracker, 5, REGION + 5).parallel > 0.8)


def test_random_access_is_not() -> None:
    tracker = PatternTracker(5.0)
    tracker.add(batch(np.random.default_rng(1).integers(0, REGION, 1000)))
    assert known(tracker, 5).parallel[0] < 0.1


def test_streams_beside_random_access_are_told_apart() -> None:
    rng = np.random.default_rng(1)
    tracker = PatternTracker(5.0)
    steps = np.arange(0, 4 * REGION, 8)
    pages = np.stack(
        [steps, steps + 100 * REGION, 200 * REGION + rng.integers(0, 4 * REGION, len(steps))]
    )
    tracker.add(batch(pages.T.ravel()))
    parallel = known(tracker, REGION, 101 * REGION, 201 * REGION).parallel
    assert parallel[0] > 0.7
    assert parallel[1] > 0.7
    assert not parallel[2] > 0.3


def test_rare_samples_are_judged_by_wider_regions() -> None:
    tracker = PatternTracker(5.0)
    # Two samples of each 2 MiB in a sweep, with the next sweep right behind.
    tracker.add(batch(np.tile(np.arange(0, 16 * REGION, REGION), 4)))
    assert known(tracker, 3 * REGION).parallel[0] > 0.5


def test_batches_without_order_tell_nothing_of_streams() -> None:
    tracker = PatternTracker(5.0)
    tracker.add(batch(np.arange(0, REGION, 4), ordered=False))
    found = known(tracker, 5)
    assert np.isnan(found.parallel[0])
    assert found.counted[0] == pytest.approx(128)


def test_what_is_not_known_is_not_a_number() -> None:
    tracker = PatternTracker(5.0)
    assert np.isnan(known(tracker, 5).counted[0])
    tracker.add(batch(np.arange(8)))
    found = known(tracker, 5, 7 * REGION)
    assert np.isnan(found.parallel[0])  # fewer pairs than say anything
    assert np.isnan(found.counted[1])
    assert np.isnan(found.written[1])


def test_counts_decay_as_heat_does() -> None:
    tracker = PatternTracker(5.0)
    tracker.add(batch(np.full(100, 7)))
    tracker.advance(11 * SECOND)
    assert known(tracker, 7).counted[0] == pytest.approx(25)


def test_shares_of_writes() -> None:
    tracker = PatternTracker(5.0)
    tracker.add(batch(np.full(100, 7), writes=0.25))
    assert known(tracker, 7).written[0] == pytest.approx(0.25)


def test_a_streams_regions_share_what_was_counted_in_them() -> None:
    tracker = PatternTracker(5.0)
    front = np.arange(0, 2 * REGION, 2)
    tracker.add(batch(np.concatenate([front, np.arange(2 * REGION, 8 * REGION, 32)])))
    counted = known(tracker, 5, 7 * REGION).counted
    assert counted[0] == pytest.approx(counted[1], rel=0.3)


def test_the_hot_set_moves() -> None:
    tracker = PatternTracker(5.0)
    tracker.add(batch(np.arange(0, REGION, 4)))
    tracker.forget()
    assert known(tracker, 5).counted[0] == 0
    assert np.isnan(known(tracker, 5).parallel[0])


def test_regions_are_bounded_and_the_least_accessed_give_way() -> None:
    tracker = PatternTracker(5.0, most=16)
    busy = np.repeat(np.arange(16) * REGION, 10)
    tracker.add(batch(busy))
    tracker.add(batch(np.arange(100, 140) * REGION))
    assert len(tracker.snapshot().region) == 16
    assert np.all(tracker.snapshot().region < 16)
    assert tracker.dropped >= 40


# ------------------------------------------------------------------ concentration


def sampled(
    tracker: PatternTracker, pages: np.ndarray, batches: int = 12, samples: int = 32, seed: int = 1
) -> float:
    """Effective pages of region 1, of whose pages random ones of `pages` are sampled."""
    rng = np.random.default_rng(seed)
    for number in range(batches):
        tracker.add(batch(REGION + rng.choice(pages, samples), 1 + 0.1 * number))
    return float(known(tracker, REGION).pages[0])


@pytest.mark.parametrize("busy", [1, 4, 16, 64])
def test_few_busy_pages_of_a_region_are_counted(busy: int) -> None:
    pages = np.random.default_rng(2).choice(REGION, busy, replace=False)
    found = sampled(PatternTracker(5.0), pages, batches=40)
    # No fewer than there are but for chance, and no more than the doubt explains.
    assert 0.8 * busy <= found <= 2 * busy + 1


@pytest.mark.parametrize("seed", range(8))
def test_uniform_access_is_not_concentrated(seed: int) -> None:
    assert sampled(PatternTracker(5.0), np.arange(REGION), seed=seed) > REGION / 2


def test_a_stream_over_a_part_of_a_region_counts_as_all_of_it() -> None:
    tracker = PatternTracker(5.0)
    for number in range(12):
        tracker.add(batch(REGION + np.repeat(np.arange(32), 4), 1 + 0.1 * number))
    assert known(tracker, REGION).pages[0] == REGION


def test_pages_that_are_used_one_after_another_are_not_concentrated() -> None:
    """A page is used a hundred times in close succession, then another one."""
    tracker, order = PatternTracker(5.0), np.random.default_rng(3).permutation(REGION)
    for number in range(40):
        tracker.add(batch(REGION + np.repeat(order[4 * number : 4 * number + 4], 25), 1 + number))
    assert known(tracker, REGION).pages[0] == REGION


def test_of_few_samples_no_concentration_is_claimed() -> None:
    assert np.isnan(sampled(PatternTracker(5.0), np.arange(4), batches=2, samples=8))


def test_batches_of_counts_tell_nothing_of_concentration() -> None:
    tracker = PatternTracker(5.0)
    for number in range(12):
        tracker.add(batch(np.full(100, 5), 1 + 0.1 * number, ordered=False))
    assert np.isnan(known(tracker, 5).pages[0])


def test_concentration_is_forgotten_with_the_hot_set_and_bounded() -> None:
    tracker = PatternTracker(5.0, most=4)
    assert sampled(tracker, np.arange(4)) < 8
    for number in range(8):
        tracker.add(batch(np.arange(10, 15) * REGION, 5 + number))
    assert tracker.dropped > 0
    tracker.forget()
    assert not np.any(np.isfinite(tracker.snapshot().pages))
