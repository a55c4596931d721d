# SPDX-License-Identifier: Apache-2.0
"""Gains of moves by epoch, as predicted and as observed by the policy `cost`."""

from __future__ import annotations

import numpy as np

from tierd.policy.feedback import FeedbackController


class Epochs:
    """The epochs with moves, taken from the sums of the feedback controller.

    Attributes:
        rows: end in seconds, predicted and observed seconds saved a second, seconds of moving.
    """

    def __init__(self) -> None:
        self.rows: list[tuple[float, float, float, float]] = []
        self._sums = np.zeros(3)

    def note(self, end_s: float, outcomes: FeedbackController) -> None:
        """Take in a decision: the sums differ when another epoch is settled."""
        sums = np.array([outcomes.predicted, outcomes.observed, outcomes.spent_s])
        if (sums != self._sums).any():
            predicted, observed, spent_s = (sums - self._sums).tolist()
            self.rows.append((end_s, predicted, observed, spent_s))
            self._sums = sums


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's, for values of which few are the same."""
    ranks = np.array([np.argsort(np.argsort(each)) for each in (one, other)])
    return float(np.corrcoef(ranks)[0, 1])
