# SPDX-License-Identifier: Apache-2.0
"""Predicted and observed gains of moves, and how well the ones tell the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch with moves: seconds of waiting saved a second, and seconds spent on moving."""

    end_ns: int
    predicted: float
    observed: float
    spent_s: float

    def gain_s(self, horizon_s: float) -> float:
        """Seconds gained over the horizon."""
        return self.observed * horizon_s - self.spent_s


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's, NaN for fewer than three pairs; ties get their mean rank."""
    if len(one) < 3:
        return float("nan")
    ranks = [_ranks(np.asarray(each, np.float64)) for each in (one, other)]
    deviations = [each - each.mean() for each in ranks]
    norm = float(np.sqrt((deviations[0] ** 2).sum() * (deviations[1] ** 2).sum()))
    return float((deviations[0] * deviations[1]).sum()) / norm if norm else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    _, at, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[at])
