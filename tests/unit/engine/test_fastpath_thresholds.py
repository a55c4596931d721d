# SPDX-License-Identifier: Apache-2.0
"""Cards' thresholds, and what a promotion must pay in, as steering sets them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from fastpath_bench import LONG_S, Bench, S, two_tiers

from tierd.config.model import Config
from tierd.engine.fastpath.thresholds import Costs, HotnessThresholdController
from tierd.policy.neomem import NeoMemSettings
from tierd.sources.kmod.neoprof import histogram_edges


def test_thresholds_follow_the_histogram(bench: Bench) -> None:
    bench.watch()
    bench.cards.histogram[0] = (1 << 19) - 1000
    bench.cards.histogram[45] = 1000
    end = time.monotonic() + LONG_S
    while bench.cards.known[0].settings.threshold == 64 and time.monotonic() < end:
        bench.tick()
        time.sleep(0.05)
    threshold = bench.cards.known[0].settings.threshold
    edges = histogram_edges()
    assert edges[45] <= threshold < edges[46]
    assert bench.fast_path.view.thresholds() == {"0": threshold}


def test_no_threshold_is_below_what_pays_for_a_move(bench: Bench) -> None:
    """The counters of pages that pay have come to so much by the time that thresholds are decided
    next, and no others are reported until then, who would be refused."""
    bench.watch()
    thresholds, start = (
        HotnessThresholdController(NeoMemSettings.of(Config()), S),
        bench.source.epochs[0].start_ns,
    )
    bench.cards.histogram[0] = 1 << 19
    # As long as the last time, and no longer than twice the interval.
    # And no longer than the age of the phase.
    costs = Costs(0, 0, 0, 0, 0)
    for seconds, still, until in ((2, 32, 3), (3, 80, 4), (6, 80, 8), (8, 0.5, 8.5), (10, 0, 10)):
        assert thresholds.update(bench.source, costs, start + seconds * S, 64.0, still)
        assert thresholds.decisions[0].state.threshold == until * 64
        assert bench.cards.known[0].settings.threshold == until * 64
    assert thresholds.update(bench.source, Costs(0, 0, 0, 0, 0), start + 12 * S)
    assert thresholds.decisions[0].state.threshold == NeoMemSettings.of(Config()).least_count


def test_what_pays_in_time_is_less_the_longer_the_hot_set_stands_still(bench: Bench) -> None:
    bench.watch()
    given, told = [], bench.fast_path.thresholds_of.update

    def update(source: Any, costs: Costs, now_ns: int, least_rate: float, still: float) -> bool:
        given.append(least_rate)
        return told(source, costs, now_ns, least_rate, still)

    bench.fast_path.thresholds_of.update = update  # type: ignore[method-assign]
    start = time.monotonic_ns()
    for seconds in (0, 1, 80):
        now = start + seconds * S
        bench.fast_path.end(now, two_tiers(), bench.usage, None, phase_age_s=seconds)
    # Two moves of 10 us in a second, and 80 s later in an eighth of these.
    assert given == pytest.approx([64.1, 64.1, 6.41], rel=0.01)
    native = bench.fast_path._native
    assert native is not None
    assert native._promoter._settings.least_rate == given[-1]
    # Who left by mistake may come back if that pays in an eighth of the least time, always.
    assert native._promoter._settings.return_rate == pytest.approx(8 * 64.1, rel=0.01)


def test_an_overflow_that_the_driver_meets_later_is_not_another_one(bench: Bench) -> None:
    bench.watch()
    thresholds, now = (
        HotnessThresholdController(NeoMemSettings.of(Config()), S),
        time.monotonic_ns(),
    )
    costs = Costs(0, 0, 0, 0, 0)

    def overflows(seconds: int) -> bool:
        assert thresholds.update(bench.source, costs, now + seconds * S)
        return thresholds.decisions[0].overflow

    assert not overflows(10)
    bench.cards.counters["reports_refused"] = 500
    assert overflows(12)
    bench.cards.stats["overflows"] = 1
    assert not overflows(14)
