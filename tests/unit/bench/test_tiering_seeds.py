# SPDX-License-Identifier: Apache-2.0
"""What several seeds tell: means, intervals and pairs."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/tiering"))

from estimates import T_975, estimate, over_workloads, paired
from results import Cell
from samples import Samples, compare
from table import pairs

OFF = "tierd-neoprof/fast-path-off"


def student_below(t: float, freedom: int) -> float:
    """The distribution function of Student's t, from its density."""
    x = np.linspace(0.0, t, 200_001)
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    density = (1 + x**2 / freedom) ** (-(freedom + 1) / 2)
    density *= math.exp(scale) / math.sqrt(freedom * math.pi)
    return 0.5 + float(((density[1:] + density[:-1]) / 2 * np.diff(x)).sum())


@pytest.mark.parametrize("freedom", range(1, len(T_975) + 1))
def test_the_table_is_of_students_t(freedom: int) -> None:
    assert student_below(T_975[freedom - 1], freedom) == pytest.approx(0.975, abs=1e-5)


def test_the_interval_of_three_seeds() -> None:
    """By hand: the standard deviation is 1, so the error is 1/sqrt(3), and t is 4.3027."""
    known = estimate([4.0, 5.0, 6.0])
    assert (known.mean, known.count) == (5.0, 3)
    assert known.error == pytest.approx(1 / math.sqrt(3))
    assert known.half == pytest.approx(4.3027 / math.sqrt(3))


def test_one_seed_has_no_interval() -> None:
    known = estimate([4.0])
    assert (known.mean, known.error, known.half) == (4.0, None, None)
    ratio = paired({1: 4.0}, {1: 2.0})
    assert ratio is not None
    assert (ratio.value, ratio.interval, ratio.differs) == (pytest.approx(2.0), None, None)
    with pytest.raises(ValueError, match="no values"):
        estimate([])


def test_pairs_are_of_the_same_seed() -> None:
    """The seeds differ far more from each other than the two columns do."""
    ratio = paired({1: 2.0, 2: 4.0, 3: 8.0, 4: 1.0}, {1: 1.0, 2: 1.9, 3: 4.1, 5: 1.0})
    assert ratio is not None
    assert ratio.logs.count == 3
    assert ratio.value == pytest.approx((2 * 4 / 1.9 * 8 / 4.1) ** (1 / 3))
    assert ratio.interval is not None
    assert ratio.interval[0] < ratio.value < ratio.interval[1]
    assert ratio.differs
    assert paired({1: 2.0}, {2: 2.0}) is None


def test_twice_and_half_as_fast_make_no_difference() -> None:
    ratio = paired({1: 2.0, 2: 1.0}, {1: 1.0, 2: 2.0})
    assert ratio is not None
    assert ratio.value == pytest.approx(1.0)
    assert ratio.differs is False


def test_runs_that_are_the_same_differ_by_nothing() -> None:
    ratio = paired({1: 2.0, 2: 3.0}, {1: 2.0, 2: 3.0})
    assert ratio is not None
    assert (ratio.value, ratio.interval, ratio.differs) == (1.0, (1.0, 1.0), False)


def test_the_mean_over_workloads_is_of_workloads_with_the_same_seeds() -> None:
    whole = [({1: 2.0, 2: 2.0}, {1: 1.0, 2: 1.0}), ({1: 8.0, 2: 8.0}, {1: 1.0, 2: 1.0})]
    ratio = over_workloads([*whole, ({1: 1.0}, {1: 1.0}), ({}, {1: 3.0})])
    assert ratio is not None
    assert (ratio.value, ratio.workloads, ratio.logs.count) == (pytest.approx(4.0), 2, 2)
    # One workload with more seeds than all others does not leave it alone.
    more = (dict.fromkeys((1, 2, 3), 2.0), dict.fromkeys((1, 2, 3), 1.0))
    ratio = over_workloads([*whole, more])
    assert ratio is not None
    assert (ratio.workloads, ratio.logs.count) == (3, 2)
    assert over_workloads([({1: 1.0}, {2: 1.0})]) is None


def test_a_seed_that_is_good_or_bad_for_all_workloads_is_no_certainty() -> None:
    """Errors of workloads do not cancel if they come with the seed."""
    alike = [({1: 1.1, 2: 1.0, 3: 0.9}, {1: 1.0, 2: 1.0, 3: 1.0})] * 10
    one, ten = over_workloads(alike[:1]), over_workloads(alike)
    assert one is not None
    assert ten is not None
    assert ten.interval == pytest.approx(one.interval)


def test_the_table_of_pairs_has_the_seeds_that_both_have() -> None:
    seconds = {"defaults": (5.0, 5.1, 5.2), "fast-path-off": (5.0, 5.1)}
    samples = Samples(
        Cell("updates", "tierd-neoprof", each, variant=variant, seed=seed)
        for variant, times in seconds.items()
        for seed, each in enumerate(times, start=1)
    )
    table = pairs(compare(samples, "tierd-neoprof", samples, OFF, ["updates", "moving"]))
    lines = table.splitlines()
    assert lines[0].startswith(f"| workload | seeds | tierd-neoprof, s | {OFF}, s |")
    assert lines[2:] == [
        "| updates | 2 | 5.050 ± 0.635 | 5.050 ± 0.635 | 1.000 | 1.000 to 1.000 | no |",
        "| geometric mean of 1 | 2 |  |  | 1.000 | 1.000 to 1.000 | no |",
    ]
