# SPDX-License-Identifier: Apache-2.0
"""What a measured region's curve says."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FAST = 0
POINTS = 128
"""Most points of a curve that is kept."""


def shares(
    requests: npt.NDArray[np.uint64], interval_ns: float, points: int = POINTS
) -> list[tuple[float, float]]:
    """(end of an interval in seconds, share served fast) where there were requests.

    Args:
        requests: uint64[n, nodes], in each interval.
        interval_ns: length of an interval.
        points: intervals are joined until there are no more than these.
    """
    join = max(1, -(-len(requests) // points))
    padded = np.zeros((-(-len(requests) // join) * join, requests.shape[1]), np.uint64)
    padded[: len(requests)] = requests
    joined = padded.reshape(-1, join, requests.shape[1]).sum(axis=1)
    total = joined.sum(axis=1)
    return [
        (round((i + 1) * join * interval_ns / 1e9, 6), round(float(row[FAST]) / int(all_), 5))
        for i, (row, all_) in enumerate(zip(joined, total, strict=True))
        if all_
    ]


def seconds_to_95(curve: list[tuple[float, float]]) -> float | None:
    """Seconds until the share reached 95 % of its level at the end, and stayed there.

    The level at the end is the mean of the last tenth; single intervals below do not
    count as long as the mean of five does not fall below. None without a curve.
    """
    if not curve:
        return None
    share = np.array([point[1] for point in curve])
    level = share[-max(1, len(share) // 10) :].mean()
    window = min(5, len(share))
    smooth = np.convolve(share, np.ones(window) / window, "valid")
    below = np.flatnonzero(smooth < 0.95 * level)
    if not len(below):
        return 0.0
    at = below[-1] + window
    return curve[at][0] if at < len(curve) else None
