# SPDX-License-Identifier: Apache-2.0
"""What several seeds tell: means, intervals, and ratios of pairs.

A ratio is of two columns of the matrix with the same seed, and is averaged as a logarithm: twice
as fast and half as fast are then as far from 1. Intervals are of Student's t with one degree of
freedom less than there are seeds. They speak of other seeds of these workloads, on this
machine, and not of other workloads.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

T_975 = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)
"""The 97.5 % point of Student's t for 1 to 30 degrees of freedom; the last one serves for more."""
ERRORS = 2.0
"""Standard errors beyond which a difference is told as one."""


@dataclass(frozen=True)
class Estimate:
    """A mean of several values.

    Attributes:
        mean: their mean.
        error: the standard error of the mean; None of a single value.
        count: how many values there are.
    """

    mean: float
    error: float | None
    count: int

    @property
    def half(self) -> float | None:
        """Half of the 95 % interval."""
        if self.error is None:
            return None
        return self.error * T_975[min(self.count - 1, len(T_975)) - 1]


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of values.

    Raises:
        ValueError: there are none.
    """
    if not values:
        raise ValueError("no values to take the mean of")
    count = len(values)
    error = statistics.stdev(values) / math.sqrt(count) if count > 1 else None
    return Estimate(statistics.fmean(values), error, count)


@dataclass(frozen=True)
class Ratio:
    """How many times as fast one column is as another.

    Attributes:
        logs: the mean of the logarithms of the ratios.
        workloads: how many workloads it is of.
    """

    logs: Estimate
    workloads: int = 1

    @property
    def value(self) -> float:
        """The geometric mean; above 1: faster."""
        return math.exp(self.logs.mean)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval; None of a single seed."""
        half = self.logs.half
        if half is None:
            return None
        return math.exp(self.logs.mean - half), math.exp(self.logs.mean + half)

    @property
    def differs(self) -> bool | None:
        """Whether it is more than two standard errors from 1; None of a single seed."""
        if self.logs.error is None:
            return None
        return abs(self.logs.mean) > ERRORS * self.logs.error


Seconds = Mapping[int, float]
"""Seconds by seed."""


def log_ratios(base: Seconds, new: Seconds) -> dict[int, float]:
    """Logarithm of how many times `new` is as fast as `base`, for seeds that both have."""
    return {seed: math.log(base[seed] / new[seed]) for seed in sorted(base.keys() & new.keys())}


def paired(base: Seconds, new: Seconds) -> Ratio | None:
    """How many times `new` is as fast as `base`; None if they have no seed in common."""
    logs = log_ratios(base, new)
    return Ratio(estimate(list(logs.values()))) if logs else None


def over_workloads(pairs: Sequence[tuple[Seconds, Seconds]]) -> Ratio | None:
    """The same over workloads: a mean for each seed, and the mean of these.

    The seeds and workloads that count are such that each of these workloads has all of these
    seeds: a seed's mean is of the same workloads as another seed's. There are as many cells as
    that allows. None if no workload has a seed that both columns have.
    """
    logs = [each for base, new in pairs if (each := log_ratios(base, new))]
    if not logs:
        return None

    def cells(seeds: frozenset[int]) -> tuple[int, int]:
        return len(seeds) * sum(each.keys() >= seeds for each in logs), len(seeds)

    seeds = max(sorted((frozenset(each) for each in logs), key=sorted), key=cells)
    whole = [each for each in logs if each.keys() >= seeds]
    means = [statistics.fmean(each[seed] for each in whole) for seed in sorted(seeds)]
    return Ratio(estimate(means), len(whole))
