# SPDX-License-Identifier: Apache-2.0
"""Quantiles: within 1 % of the true ones, mergeable, bounded, and honest about what is outside."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.core.pagekey import F64Array
from tierd.core.quantiles import ACCURACY, LEAST_NS, MOST_NS, Quantiles

SHARES = (0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0)
MADE_UP: dict[str, Callable[[np.random.Generator, int], F64Array]] = {
    "one value": lambda random, n: np.full(n, random.uniform(1, 1e9)),
    "uniform": lambda random, n: random.uniform(1, 1e9, n),
    "log-uniform over all bounds": lambda random, n: 10 ** random.uniform(0, 12, n),
    "exponential": lambda random, n: 1 + random.exponential(1e5, n),
    "log-normal": lambda random, n: np.clip(random.lognormal(10, 2, n), LEAST_NS, MOST_NS),
    "Pareto": lambda random, n: np.minimum(1e3 * (1 + random.pareto(1.1, n)), MOST_NS),
    "two kinds": lambda random, n: np.where(random.random(n) < 0.97, 2e3, 5e7),
    "whole ns": lambda random, n: random.integers(1, 300, n).astype(np.float64),
}


def true(values: F64Array, share: float) -> float:
    """The value at place floor(share * (n - 1)) of the sorted ones."""
    return float(np.sort(values)[math.floor(share * (len(values) - 1))])


def near(value: float) -> object:
    """Within the accuracy, and what a float's rounding adds."""
    return pytest.approx(value, rel=ACCURACY * (1 + 1e-9))


@pytest.mark.parametrize("kind", MADE_UP)
def test_quantiles_are_within_one_percent(kind: str) -> None:
    for seed in range(25):
        random = np.random.default_rng(seed)
        values = MADE_UP[kind](random, int(random.integers(1, 5000)))
        found = Quantiles()
        found.add(values)
        for share in SHARES:
            assert found.quantile(share) == near(true(values, share)), (seed, share)
        assert found.quantile(1) == found.max == values.max()
        assert (found.count, found.outside) == (len(values), 0)
        assert found.sum == pytest.approx(values.sum())


@given(st.lists(st.floats(LEAST_NS, MOST_NS), min_size=1, max_size=40), st.floats(0, 1))
def test_any_numbers_are_within_one_percent(values: list[float], share: float) -> None:
    found = Quantiles()
    for value in values:
        found.add(value)
    assert found.quantile(share) == near(true(np.array(values), share))


def same(one: Quantiles, other: Quantiles) -> bool:
    return (one.count, one.outside, one.max) == (other.count, other.outside, other.max) and [
        one.quantile(share) for share in SHARES
    ] == [other.quantile(share) for share in SHARES]


def test_one_by_one_is_as_all_at_once() -> None:
    random = np.random.default_rng(11)
    values = np.concatenate([random.lognormal(8, 4, 2000), [0.0, 1e13, LEAST_NS, MOST_NS]])
    weights = random.integers(0, 4, len(values))
    single, whole = Quantiles(), Quantiles()
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        single.add(value, weight)
    whole.add(values, weights)
    assert same(single, whole)
    assert single.sum == pytest.approx(whole.sum)


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_merged_parts_are_as_one_of_all(parts: int) -> None:
    random = np.random.default_rng(parts)
    values, whole, merged = random.lognormal(8, 3, 4001), Quantiles(), Quantiles()
    whole.add(values)
    for part in np.array_split(values, parts):
        own = Quantiles()
        own.add(part)
        merged.merge(own)
    assert same(merged, whole)
    assert merged.sum == pytest.approx(whole.sum)
    merged.merge(Quantiles())
    assert same(merged, whole)


def test_a_weight_counts_a_value_so_often() -> None:
    random = np.random.default_rng(3)
    values, weights = random.lognormal(9, 2, 500), random.integers(0, 9, 500)
    weighted, repeated = Quantiles(), Quantiles()
    weighted.add(values, weights)
    repeated.add(np.repeat(values, weights))
    assert same(weighted, repeated)
    assert weighted.sum == pytest.approx(repeated.sum)
    weighted.add(1e11, 0)
    weighted.add([])
    assert same(weighted, repeated)


def test_large_counts_are_exact() -> None:
    found = Quantiles()
    found.add([10.0, 20.0], [2**60, 1])
    assert found.count == 2**60 + 1
    assert (found.quantile(0.5), found.quantile(1)) == (near(10), 20)


def test_without_values_there_are_no_quantiles() -> None:
    found = Quantiles()
    assert (found.count, found.sum, found.outside) == (0, 0.0, 0)
    assert all(math.isnan(found.quantile(share)) for share in SHARES)
    assert json.dumps(found.as_json())
    assert found.as_json() == {"count": 0, "p50": None, "p99": None, "max": None}


def test_values_beyond_the_bounds_are_counted_as_such() -> None:
    """Zero is one of them: a clock that did not move."""
    found = Quantiles()
    found.add([0.0, 0.0, 0.5, -3.0, LEAST_NS, MOST_NS, 5 * MOST_NS, math.inf])
    assert (found.count, found.outside) == (8, 6)
    assert found.quantile(0) <= LEAST_NS
    assert found.quantile(0.9) == near(MOST_NS)
    assert found.quantile(1) == math.inf
    nothing = Quantiles()
    nothing.add(0, 5)
    assert [nothing.quantile(share) for share in SHARES] == [0.0] * len(SHARES)
    assert nothing.outside == 5


def test_memory_does_not_grow() -> None:
    found = Quantiles()
    before = found.nbytes
    assert before < 12 << 10
    found.add(10 ** np.random.default_rng(1).uniform(-3, 15, 100_000))
    assert found.nbytes == before


@pytest.mark.parametrize(
    ("values", "weights"), [(math.nan, 1), ([1.0, math.nan], 1), (5.0, -1), ([1.0, 2.0], [1, -1])]
)
def test_what_is_no_number_is_refused_whole(values: object, weights: object) -> None:
    found = Quantiles()
    with pytest.raises(ValueError, match="numbers and weights"):
        found.add(values, weights)  # type: ignore[arg-type]
    assert found.count == 0


@pytest.mark.parametrize("share", [-0.01, 1.01, math.nan])
def test_a_share_is_from_0_to_1(share: float) -> None:
    with pytest.raises(ValueError, match="is not from 0 to 1"):
        Quantiles().quantile(share)
