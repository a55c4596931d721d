# SPDX-License-Identifier: Apache-2.0
"""Quantiles of times in bounded memory, each within 1 % of the true one.

A mean hides the few moves or measurements that take long. `Quantiles` is a DDSketch (Masson, Rim
and Lee, "DDSketch: A Fast and Fully-Mergeable Quantile Sketch with Relative-Error Guarantees", VLDB
2019, section 2): counts in buckets whose bounds grow by a constant factor. All have the same
buckets, so that any two can be merged. docs/develop/layout.md says how a time becomes a metric.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from tierd.core.pagekey import I64Array

ACCURACY: Final = 0.01
"""Most that a quantile is off, relative to the true one."""
LEAST_NS: Final = 1.0
MOST_NS: Final = 1e12
"""Values beyond these bounds are counted in the outermost buckets, and in `outside`."""
_FACTOR: Final = (1 + ACCURACY) / (1 - ACCURACY)
_LOG: Final = math.log(_FACTOR)
_BUCKETS: Final = math.ceil(math.log(MOST_NS / LEAST_NS) / _LOG) + 1
_REFUSED: Final = "quantiles need numbers and weights of 0 or more"


class Quantiles:
    """Counts of values by size, 11 KiB. One thread adds; any may read.

    Attributes:
        sum: of all values, as they were given.
        max: the largest value, exact; nan without any.
        outside: how many values were beyond `LEAST_NS` or `MOST_NS`.
    """

    def __init__(self) -> None:
        # Bucket k has the values in (LEAST_NS * _FACTOR**(k - 1), LEAST_NS * _FACTOR**k].
        self._counts: I64Array = np.zeros(_BUCKETS, np.int64)
        self.sum = 0.0
        self.max = math.nan
        self.outside = 0

    @property
    def count(self) -> int:
        """Values that were added, each as often as its weight."""
        return int(self._counts.sum())

    @property
    def nbytes(self) -> int:
        """Bytes of the counts; they are all there from the start."""
        return self._counts.nbytes

    def add(self, values: npt.ArrayLike, weights: npt.ArrayLike = 1) -> None:
        """Count a value, or an array of them.

        Args:
            values: float64[n] or one number, ns.
            weights: int64[n] or one number: how often each value counts.

        Raises:
            ValueError: a value is not a number, or a weight is negative; nothing was counted.
        """
        if isinstance(values, int | float) and isinstance(weights, int):
            self._add_one(values, weights)  # a tenth of the time that arrays take
            return
        value = np.atleast_1d(np.asarray(values, np.float64))
        weight = np.broadcast_to(np.asarray(weights, np.int64), value.shape)
        if np.isnan(value).any() or (weight < 0).any():
            raise ValueError(_REFUSED)
        value, weight = value[weight > 0], weight[weight > 0]
        if not len(value):
            return
        inside = np.clip(value, LEAST_NS, MOST_NS)
        bucket = np.ceil(np.log(inside / LEAST_NS) / _LOG).astype(np.int64)
        np.add.at(self._counts, bucket, weight)
        self.sum += float(value @ weight)
        self.max = float(np.fmax(self.max, value.max()))
        self.outside += int(weight[inside != value].sum())

    def _add_one(self, value: float, weight: int) -> None:
        if math.isnan(value) or weight < 0:
            raise ValueError(_REFUSED)
        if weight:
            inside = min(max(value, LEAST_NS), MOST_NS)
            self._counts[math.ceil(math.log(inside / LEAST_NS) / _LOG)] += weight
            self.sum += value * weight
            self.max = float(value if math.isnan(self.max) else max(self.max, value))
            self.outside += weight * (inside != value)

    def merge(self, other: Quantiles) -> None:
        """Count all that the other one has counted, as if it had been added here."""
        self._counts += other._counts
        self.sum += other.sum
        self.max = float(np.fmax(self.max, other.max))
        self.outside += other.outside

    def quantile(self, q: float) -> float:
        """The value that a share `q` of all are below, ns; nan without any.

        It is within `ACCURACY` of the value at place floor(q * (count - 1)) of the sorted ones, if
        that is within the bounds. The quantile 1 is exact.

        Raises:
            ValueError: `q` is not from 0 to 1.
        """
        if not 0 <= q <= 1:
            raise ValueError(f"{q=} is not from 0 to 1")
        below = np.cumsum(self._counts)
        if q == 1 or not below[-1]:
            return self.max
        bucket = int(np.searchsorted(below, math.floor(q * (int(below[-1]) - 1)), "right"))
        return min(2 * LEAST_NS * _FACTOR**bucket / (_FACTOR + 1), self.max)

    def as_json(self) -> dict[str, float | None]:
        """Count, median, 99 % and the largest in ns, None without any value; JSON types only."""
        found = {"p50": self.quantile(0.5), "p99": self.quantile(0.99), "max": self.max}
        rounded = {k: None if math.isnan(each) else round(each, 1) for k, each in found.items()}
        return {"count": self.count, **rounded}
