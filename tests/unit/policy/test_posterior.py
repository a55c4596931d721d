# SPDX-License-Identifier: Apache-2.0
"""What is to be expected of pages, against pages whose true rates are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tierd.core.access import Seen
from tierd.core.tuning import INTERVAL
from tierd.policy.rule import posterior_mean
from tierd.sources.sampling_interval import used_a_second

HALF_LIFE_S, INTERVAL_S, PERIOD_S = 5.0, 0.0125, 1.0
HEAT_S = HALF_LIFE_S / math.log(2) * INTERVAL_S / PERIOD_S


@pytest.mark.parametrize("looks", [2, 8, 30])
def test_of_exponential_rates_the_expected_one_is_the_mean(looks: int) -> None:
    """Of those that were seen as much: seen seldom, and seen often but not in each look."""
    random = np.random.default_rng(1)
    rate = random.exponential(20.0, 400_000)
    heat = np.zeros(len(rate), np.float32)
    for _ in range(looks):
        found = random.random(len(rate)) < -np.expm1(-rate * INTERVAL_S)
        heat = heat * np.float32(0.5 ** (PERIOD_S / HALF_LIFE_S)) + found
    share = float(np.mean(-np.expm1(-rate * INTERVAL_S)))
    mean = used_a_second(Seen(share, INTERVAL_S, PERIOD_S)) * HEAT_S
    grown = 1 - 0.5 ** (looks * PERIOD_S / HALF_LIFE_S)
    told = posterior_mean(heat.astype(np.float32), grown, mean) / HEAT_S
    cold = heat <= np.quantile(heat, 0.3)
    assert told[cold].mean() == pytest.approx(rate[cold].mean(), rel=0.25)
    # As it was seen they are far colder, or not used at all.
    assert heat[cold].mean() / grown / HEAT_S < 0.6 * rate[cold].mean()


def test_it_is_nothing_certain_while_looks_have_seen_little() -> None:
    """A page that was not found is like any other at first, and a cold one in the end."""
    none = np.zeros(1, np.float32)
    assert posterior_mean(none, 1e-6, 3.0)[0] == pytest.approx(3.0, rel=1e-3)
    assert posterior_mean(none, 1.0, 3.0)[0] == pytest.approx(3 / 7)
    assert posterior_mean(none, 1.0, 1e6)[0] == pytest.approx(0.5, rel=1e-3)
    assert posterior_mean(none, 1.0, 3.0).dtype == np.float32


def test_uses_a_second_are_at_least_what_looks_that_find_all_can_tell() -> None:
    assert used_a_second(None) == 0.0
    assert used_a_second(Seen(0.0, 0.01, 1.0)) == 0.0
    assert used_a_second(Seen(0.5, 0.0, 1.0)) == 0.0
    assert used_a_second(Seen(0.5, 0.01, 1.0)) == pytest.approx(math.log(2) / 0.01)
    assert used_a_second(Seen(1.0, 0.01, 1.0)) == used_a_second(
        Seen(INTERVAL.saturated_fraction, 0.01, 1.0)
    )
