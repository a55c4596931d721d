# SPDX-License-Identifier: Apache-2.0
"""The choice of a sampling interval, against pages whose rates are known."""

from __future__ import annotations

import numpy as np
import pytest

from tierd.core.access import Seen
from tierd.core.tuning import INTERVAL
from tierd.sources.sampling_interval import choose, last_fraction

PERIOD_US = 1_000_000
LEAST_US = 2_000


def seen(rates: np.ndarray, sampling_interval_us: int) -> Seen:
    """What a look finds: `rates` are accesses a second."""
    interval = (sampling_interval_us or PERIOD_US) / 1e6
    return Seen(float((1 - np.exp(-rates * interval)).mean()), interval, PERIOD_US / 1e6)


def settled(rates: np.ndarray, aim: float, first_us: int) -> list[int]:
    """The sampling intervals until none changes any more."""
    tried = [first_us]
    for _ in range(12):
        found = choose(seen(rates, tried[-1]), aim, tried[-1], least_us=LEAST_US, most_us=PERIOD_US)
        if found == tried[-1]:
            return tried
        tried.append(found)
    raise AssertionError(f"no end: {tried}")


@pytest.mark.parametrize("first_us", [0, LEAST_US, 10_000, 400_000])
@pytest.mark.parametrize("median", [5.0, 60.0, 500.0])
def test_about_as_many_pages_are_seen_as_fit(median: float, first_us: int) -> None:
    rates = median * np.random.default_rng(3).lognormal(0, 1, 20_000)
    tried = settled(rates, 0.3, first_us)
    share = seen(rates, tried[-1]).share
    assert len(tried) <= 5
    assert (
        0.3 / INTERVAL.alike_factor
        <= share
        <= min(INTERVAL.saturated_fraction, INTERVAL.alike_factor * 0.3)
        or tried[-1] == LEAST_US
    )


def test_after_a_whole_period_that_tells_too_little_it_is_a_sixteenth() -> None:
    """Pages used now and then hide how much the others are: 70 % of all, a quarter in 62 ms."""
    rates = np.where(np.arange(10_000) % 5 == 0, 500.0, 1.0)
    assert seen(rates, 0).share == pytest.approx(0.7, abs=0.03)
    first = choose(seen(rates, 0), 0.3, 0, least_us=LEAST_US, most_us=PERIOD_US)
    assert first == PERIOD_US // 16
    assert settled(rates, 0.3, 0)[-1] == first


def test_few_pages_in_use_are_looked_at_for_the_whole_period() -> None:
    rates = np.where(np.arange(10_000) % 10 == 0, 9.0, 0.1)  # as in the demo
    assert settled(rates, 0.8, 10_000)[-1] == 0
    assert settled(rates, 0.8, 0) == [0]


def test_a_whole_period_that_finds_a_quarter_more_in_use_than_fit_is_not_kept() -> None:
    """Every page is used in half of all periods, one in five of them all the time, and hard."""
    rates = np.where(np.arange(10_000) % 5 == 0, 300.0, 0.7)
    assert 1.25 * 0.4 < seen(rates, 0).share < INTERVAL.alike_factor * 0.4
    last = settled(rates, 0.4, 0)[-1]
    assert 0 < last < PERIOD_US * last_fraction()
    assert settled(rates, 0.6, 0) == [0]


@pytest.mark.parametrize("aim", [0.05, 0.2, 0.3, 0.4, 0.5, 0.7])
@pytest.mark.parametrize("hot", [2, 5, 20, 10_000])
@pytest.mark.parametrize("cold", [0.01, 0.3, 0.45, 0.7, 1.0, 1.5, 3.0])
@pytest.mark.parametrize("first_us", [0, 25_000, 350_000])
def test_it_comes_to_an_end_from_everywhere(
    aim: float, hot: int, cold: float, first_us: int
) -> None:
    settled(np.where(np.arange(10_000) % hot == 0, 300.0, cold), aim, first_us)


def test_what_fits_whole_needs_no_telling_apart() -> None:
    assert settled(np.full(1000, 500.0), 1.0, 10_000) == [10_000, 0]


def test_no_sampling_interval_is_shorter_than_the_least_nor_chosen_where_that_is_long() -> None:
    busy = np.full(1000, 1e6)
    assert settled(busy, 0.3, 0)[-1] == LEAST_US
    found = choose(seen(busy, 0), 0.3, 0, least_us=PERIOD_US // 2, most_us=PERIOD_US)
    assert found == 0


def test_a_sampling_interval_tells_hot_from_warm_where_a_period_does_not() -> None:
    """Rates that differ tenfold, all far above one a period; eight looks at each page."""
    rng = np.random.default_rng(5)
    rates = np.repeat([200.0, 20.0], 5000)

    def right(sampling_interval_us: int) -> float:
        chance = 1 - np.exp(-rates * (sampling_interval_us or PERIOD_US) / 1e6)
        looks = rng.binomial(8, chance) + rng.random(len(rates)) * 1e-3  # ties fall at random
        return float((np.argsort(-looks)[:5000] < 5000).mean())

    chosen = settled(rates, 0.5, 0)[-1]
    assert right(0) < 0.55
    assert right(chosen) > 0.9
