# SPDX-License-Identifier: Apache-2.0
"""Slices of an overloaded tier that are tried: one rule a test."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from fakeheat import pages

from tierd.core.migration import Direction, Fate, MigrationPlan, MigrationResult
from tierd.core.pagekey import HUGE_ORDER, U64Array
from tierd.core.tuning import TRIAL
from tierd.policy.demand import Demand
from tierd.policy.perturbation import HillClimber
from tierd.policy.streaming_regions import Regions

EPOCH_NS = 1_000_000_000
LOADED, IDLE = np.array([2000.0, 430.0]), np.array([118.0, 430.0])
USED = np.array([0.9, 0.1])
REGION = 1 << HUGE_ORDER


class Now:
    """Memory that serves `rate`; slices are of one page, the tier's rank."""

    def __init__(self) -> None:
        self.rate = 1e6
        self.ways: list[tuple[int, int]] = []
        self.avoided: list[int] = []

    @property
    def lines_per_s(self) -> float:
        return self.rate

    def slice_of(
        self, source: int, dest: int, share: float, avoid: U64Array
    ) -> tuple[U64Array, U64Array]:
        self.ways.append((source, dest))
        self.avoided = avoid.tolist()
        return np.array([source], np.uint64), np.array([len(self.ways)], np.uint64)


class Bench:
    """A climb with its memory, an epoch a tick."""

    def __init__(self, residency_s: float = 1.0) -> None:
        self.hill_climber, self.now, self.time_ns = HillClimber(1.0, residency_s), Now(), EPOCH_NS
        self.hill_climber.reset_trials(self.time_ns)
        self.back: list[int] = []

    def epoch(self, loaded: np.ndarray = LOADED) -> None:
        """One, with whatever follows from it carried out."""
        self.time_ns += EPOCH_NS
        if self.hill_climber.planned:
            source = self.now.ways[-1][0]
            self.hill_climber.carried_out(
                self.time_ns, report([source], source, self.now.ways[-1][1])
            )
            return
        assert self.hill_climber.update(self.time_ns, self.now)
        back = self.hill_climber.verdict()
        if back is not None:
            self.back += back[0].tolist()
        elif not self.hill_climber.trying:
            self.hill_climber.due(self.now, loaded, IDLE, USED)

    def until_tried(self, most: int = 2 * TRIAL.pause_epochs[1]) -> int:
        """Epochs until the next slice is on its way."""
        tried = len(self.now.ways)
        for count in range(most):
            if len(self.now.ways) > tried:
                return count
            self.epoch()
        raise AssertionError("nothing was tried")

    def until_told(self) -> int:
        """Epochs with the slice in its new place until its fate is known."""
        self.epoch()
        told = self.hill_climber.kept + self.hill_climber.failed
        for count in range(1, 99):
            self.epoch()
            if self.hill_climber.kept + self.hill_climber.failed > told:
                return count
        raise AssertionError("no verdict")


def report(page: list[int], source: int, dest: int) -> MigrationResult:
    count = len(page)
    plan = MigrationPlan(
        np.array(page, np.uint64),
        np.full(count, source, np.int16),
        np.full(count, dest, np.int16),
        np.zeros(count, np.uint8),
        np.full(count, Direction.DEMOTE, np.uint8),
        np.zeros(count, np.float32),
    )
    fates = np.full(count, Fate.MOVED, np.uint8)
    return MigrationResult(plan, fates, plan.dest.copy(), {}, 4096 * count, 0, 0, 0)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_slice_is_tried_when_memory_has_rested(bench: Bench) -> None:
    assert bench.until_tried() == TRIAL.epochs
    assert bench.now.ways == [(0, 1)]


def test_no_tier_that_is_not_overloaded_is_tried(bench: Bench) -> None:
    for _ in range(99):
        bench.epoch(loaded=1.5 * IDLE)
    assert not bench.now.ways


def test_what_pays_stays_and_another_follows_at_once(bench: Bench) -> None:
    bench.until_tried()
    bench.now.rate *= 1.06
    bench.until_told()
    assert bench.hill_climber.kept == 1
    assert not bench.back
    assert bench.now.ways == [(0, 1), (0, 1)]


def test_what_does_not_pay_goes_back_and_the_way_back_is_tried(bench: Bench) -> None:
    bench.until_tried()
    assert bench.until_told() == TRIAL.epochs
    assert bench.hill_climber.failed == 1
    assert bench.back == [0]
    bench.until_tried()
    assert bench.now.ways == [(0, 1), (1, 0)]


def test_after_a_sharp_fall_one_epoch_is_enough(bench: Bench) -> None:
    bench.until_tried()
    bench.now.rate *= 0.8
    assert bench.until_told() == 1
    assert bench.back == [0]


def test_no_page_goes_back_within_its_residency() -> None:
    bench = Bench(residency_s=7.0)
    bench.until_tried()
    assert bench.until_told() == 7


def test_what_chance_hides_is_looked_at_for_twice_as_long(bench: Bench) -> None:
    for bench.now.rate in [1e6, 0.96e6] * TRIAL.epochs:
        if not bench.now.ways:
            bench.epoch()
    bench.now.rate = 1e6
    assert bench.until_told() == 2 * TRIAL.epochs


def test_pauses_grow_while_nothing_pays(bench: Bench) -> None:
    pauses = []
    for _ in range(6):
        pauses.append(bench.until_tried())
        bench.until_told()
    assert pauses[2] >= TRIAL.pause_epochs[0]
    for shorter, longer in pairwise(pauses[2:]):
        assert longer >= 1.9 * shorter - TRIAL.epochs


def test_regions_that_failed_are_avoided(bench: Bench) -> None:
    bench.until_tried()
    bench.until_told()
    bench.until_tried()
    bench.until_told()
    bench.until_tried()
    assert bench.now.ways[2] == (0, 1)
    assert bench.now.avoided == [1]


def test_a_slice_that_stays_contradicts_what_the_model_promises(bench: Bench) -> None:
    bench.until_tried()
    bench.now.rate *= 1.06
    bench.hill_climber.promised(0.2)
    bench.until_told()
    assert bench.hill_climber.least == pytest.approx(TRIAL.model_error_factor * 0.2)
    bench.hill_climber.forget(bench.time_ns, None)
    assert bench.hill_climber.least == TRIAL.model_min_gain


def test_other_moves_end_a_trial(bench: Bench) -> None:
    bench.until_tried()
    bench.epoch()
    assert bench.hill_climber.busy
    bench.hill_climber.reset_trials(bench.time_ns)
    assert not bench.hill_climber.busy
    assert not bench.back


# ------------------------------------------------------------------ which pages


def regions(tier: list[int], share: float = 1 / 24, lines: list[float] | None = None) -> Regions:
    """A region of pages each, in these tiers; -1 stands for half in 0 and half in 1."""
    page = np.concatenate([np.arange(REGION) + 2 * each * REGION for each in range(len(tier))])
    rank = np.repeat(np.maximum(tier, 0), REGION)
    for each, wanted in enumerate(tier):
        if wanted < 0:
            rank[each * REGION + REGION // 2 : (each + 1) * REGION] = 1
    count = len(page)
    rate = np.repeat(lines or [1.0] * len(tier), REGION)
    demand = Demand(rate, rate * 0, np.full(count, share), rate * 0, np.full(count, 64.0))
    made = pages((count, 1.0, 0))
    made.page[:] = page
    return Regions(made, rank, demand, np.ones(count, np.bool_))


def test_regions_that_are_split_are_made_whole_first() -> None:
    made, none = regions([0, 0, -1]), np.zeros(3 * REGION, np.bool_)
    moved = made.whole(np.arange(REGION), 0, 1, none)
    assert len(moved) == REGION
    assert np.count_nonzero(moved >= 2 * REGION) == REGION // 2


def test_what_waits_is_not_exchanged() -> None:
    made, none = regions([0, 0, -1], share=1.0), np.zeros(3 * REGION, np.bool_)
    assert made.whole(np.arange(REGION), 0, 1, none).tolist() == list(range(REGION))


def test_what_is_not_alike_is_not_exchanged() -> None:
    made, none = regions([0, 0, -1], lines=[1.0, 1.0, 3.0]), np.zeros(3 * REGION, np.bool_)
    assert made.whole(np.arange(REGION), 0, 1, none).tolist() == list(range(REGION))


def test_a_slice_is_of_whole_regions() -> None:
    none = np.empty(0, np.uint64)
    page, found = regions([0] * 10).slice_of(0, 1, 0.05, none)
    assert len(page) == REGION
    assert len(found) == 1
    page, found = regions([0] * 10).slice_of(0, 1, 0.2, none)
    assert len(page) == 2 * REGION


def test_a_slice_makes_a_region_whole_first_and_avoids_last() -> None:
    none = np.empty(0, np.uint64)
    page, found = regions([0, 0, -1, 0]).slice_of(0, 1, 0.1, none)
    assert len(page) == REGION // 2
    page, other = regions([0, 0, -1, 0]).slice_of(0, 1, 0.1, found)
    assert len(page) == REGION
    assert other.tolist() != found.tolist()


def test_of_what_waits_there_is_no_slice() -> None:
    page, _ = regions([0] * 10, share=1.0).slice_of(0, 1, 0.05, np.empty(0, np.uint64))
    assert not len(page)


def test_memory_that_serves_nothing_is_not_tried(bench: Bench) -> None:
    """Programs that are stopped, while what was known of loads fades."""
    bench.now.rate = 0.0
    for _ in range(4 * TRIAL.epochs):
        bench.epoch()
    assert bench.now.ways == []
    bench.now.rate = 1e6
    for _ in range(4 * TRIAL.epochs):
        bench.epoch()
    assert bench.now.ways


def test_a_slice_that_nobody_carried_out_is_no_trial(bench: Bench) -> None:
    """The mover was stopped, or the plan was left with nothing."""
    while not bench.hill_climber.planned:
        bench.epoch()
    bench.hill_climber.carried_out(bench.time_ns, None)
    assert not bench.hill_climber.trying
    assert bench.hill_climber.verdict() is None
