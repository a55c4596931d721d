# SPDX-License-Identifier: Apache-2.0
"""The fast path and the tick apply one rule: random worlds, and what is told of each page."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fake_kernel import FIRST_PAGE
from promoter_world import FAST, SETTINGS, SLOW, World

from tierd.core.migration import Direction, Fate, Reason
from tierd.policy.rule import Rule


def random_world(world: World, random: np.random.Generator) -> None:
    """Pages on both nodes, some of them victims, and reports of many rates."""
    world.settings = replace(
        SETTINGS,
        margin=float(random.choice([0.0, 0.5])),
        confidence=float(random.choice([1.0, 2.5])),
        rate_cap=float(random.choice([7.0, 1000.0])),
        least_rate=float(random.choice([0.0, 20.0])),
        expected=bool(random.integers(0, 2)),
        quota_bytes_per_s=int(random.choice([60, 1 << 18])) << 12,
    )
    for page in range(2000, 2400):
        world.lib.fake_page(page, FAST, 0, 0)
    heats = np.sort(random.exponential(random.choice([5.0, 100.0]), 400)).astype(np.float32)
    world.victims = [(2000 + i, float(heat)) for i, heat in enumerate(heats)]
    world.short(int(random.choice([0, 40, 1000])))


@pytest.mark.parametrize("seed", range(40))
def test_each_page_is_where_its_outcome_says_and_for_the_reason_told(
    world: World, seed: int
) -> None:
    """What moved passed its bar, what was not hotter did not, and nothing else was decided."""
    random = np.random.default_rng(seed)
    random_world(world, random)
    made = world.after(range(1000), seconds=2)
    for page_of in np.split(random.permutation(1000)[:500], 5):
        for page in page_of:
            world.report([page], count=int(random.integers(1, 400)))
        world.run()
    told = made.take()
    last = {int(each["page"]): each for each in told}
    assert len(last) > 20
    for page, each in last.items():
        assert world.node(page - FIRST_PAGE) == each["node"]
    up = told[told["direction"] == Direction.PROMOTE]
    moved = up[up["fate"] == Fate.MOVED]
    assert np.all(moved["heat"] > moved["bar"])
    assert np.all(moved["node"] == FAST)
    refused = up[up["reason"] == Reason.NOT_HOTTER]
    assert np.all(refused["heat"] <= refused["bar"])
    assert np.all(refused["node"] == SLOW)


@pytest.mark.parametrize("seed", range(20))
def test_of_counts_as_sure_as_a_ticks_the_fast_path_decides_as_the_tick_does(
    world: World, seed: int
) -> None:
    """One page, one victim: a count of n requests of one access each has the variance n."""
    random = np.random.default_rng(seed)
    count, victim = int(random.integers(1, 200)), float(random.exponential(40.0))
    # Hotness is the count where an epoch is as old as hotness takes to grow.
    world.settings = replace(SETTINGS, heat_s=2.0, rate_cap=1e6)
    world.lib.fake_page(2000, FAST, 0, 0)
    world.victims = [(2000, victim)]
    world.short(0)
    made = world.after(range(1), seconds=2)
    world.report([0], count=count)
    world.run()
    told = made.take()
    up = told[told["direction"] == Direction.PROMOTE]
    assert len(up) == 1
    heat = float(up["heat"][0])
    assert heat == pytest.approx(count, rel=0.02)
    # The epoch is a little older than 2 s, and what is left of the variance by as much.
    terms = Rule(SETTINGS.margin, SETTINGS.confidence).terms(heat, victim)
    assert float(up["bar"][0]) == pytest.approx(terms.bar, rel=0.02)
    if abs(heat / terms.bar - 1) > 0.03:
        assert (up["fate"][0] == Fate.MOVED) == terms.promotes
