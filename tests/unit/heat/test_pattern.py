# SPDX-License-Identifier: Apache-2.0
"""Access patterns by region: one rule a test."""

from __future__ import annotations

import numpy as np
import pytest

from tierd.access import AccessBatch, Domain
from tierd.heat.pattern import REGION_SHIFT, Patterns, PatternTracker

SECOND = 10**9
REGION = 1 << REGION_SHIFT


def batch(
    pages: np.ndarray, time_s: float = 1.0, *, ordered: bool = True, writes: float | None = None
) -> AccessBatch:
    is_write = None if writes is None else np.arange(len(pages)) < writes * len(pages)
    return AccessBatch(
        Domain.VIRTUAL,
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
