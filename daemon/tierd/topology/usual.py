# SPDX-License-Identifier: Apache-2.0
"""`Usual`: what is usual of a node's probes, by their median and median absolute deviation."""

from __future__ import annotations

import math
from collections import deque
from typing import Final, NamedTuple

import numpy as np

from tierd.core import bounds
from tierd.core.tuning import COST, HEALTH
from tierd.topology.probe import Probed

NORMAL_MAD: Final = 1.4826
"""Median absolute deviations in a standard deviation of a normal distribution."""
STALE: Final = 12
"""Probes after which figures are made anew, unless there are few: they move that slowly."""


class Figures(NamedTuple):
    """Of the probes that are usual.

    Attributes:
        most_latency_ns, least_bandwidth: beyond them a probe is out of the usual.
        stalls: mean of slow blocks in a probe.
        mean_ns, bandwidth: medians; the latency with slow accesses.
    """

    most_latency_ns: float
    least_bandwidth: float
    stalls: float
    mean_ns: float
    bandwidth: float


class Usual:
    """The last probes that are usual."""

    def __init__(self) -> None:
        self._probes: deque[Probed] = deque(maxlen=bounds.HEALTH_HISTORY)
        self._figures: Figures | None = None
        self._added = 0

    def __len__(self) -> int:
        return len(self._probes)

    def add(self, probed: Probed) -> None:
        """Take in a probe."""
        self._probes.append(probed)
        self._added += 1
        if self._added >= STALE or len(self._probes) < 4 * STALE:
            self._figures, self._added = None, 0

    def clear(self) -> None:
        """Forget all."""
        self._probes.clear()
        self._figures = None

    @property
    def figures(self) -> Figures:
        """What is usual; there has to be a probe."""
        if self._figures is None:
            found = np.array([tuple(each) for each in self._probes], np.float64)
            latency_ns, mean_ns, slow_blocks, bandwidth = found.T
            self._figures = Figures(
                math.exp(_limit(np.log(latency_ns))),
                math.exp(-_limit(-np.log(bandwidth))),
                float(slow_blocks.mean()),
                float(np.median(mean_ns)),
                float(np.median(bandwidth)),
            )
        return self._figures


def _limit(logs: np.ndarray) -> float:
    """A value above this is out of the usual; all are logarithms."""
    middle = float(np.median(logs))
    spread = NORMAL_MAD * float(np.median(np.abs(logs - middle)))
    return middle + max(math.log(COST.probe_factor), HEALTH.deviations * spread)
