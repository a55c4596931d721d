# SPDX-License-Identifier: Apache-2.0
"""Load that no known page explains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tierd.policy.tiermodel import F64Array, TierModel
from tierd.policy.traffic import Traffic


class ResidualLoad:
    """Load that no known page explains, float64[tiers], as slow to follow as heat is.

    Loads are told at once and heat lags: where use changes, the two would be of different
    times, and pages that were used before would be blamed for what others do now. So what is
    decided on is what known pages ask for where they are now, and of the difference to what is
    told a mean over heat's own time.
    """

    def __init__(self) -> None:
        self._mean: F64Array | None = None
        self._last_ns = 0

    def follow(self, model: TierModel, known: F64Array, traffic: Traffic) -> TierModel:
        """The model with the load to decide on.

        Args:
            model: with the loads as told.
            known: float64[tiers] bytes a second that known pages ask for.
            traffic: when that is.
        """
        silent = np.array([source == "none" for source in model.source])
        residual = np.where(silent, 0.0, model.load - known)
        if self._mean is not None and len(self._mean) == len(residual):
            elapsed_s = (traffic.time_ns - self._last_ns) / 1e9
            kept = 0.5 ** (elapsed_s / traffic.half_life_s)
            residual = np.where(silent, 0.0, kept * self._mean + (1 - kept) * residual)
        if traffic.time_ns:
            self._mean, self._last_ns = residual, traffic.time_ns
        return replace(model, load=np.maximum(known + residual, 0.0))
