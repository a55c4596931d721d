# SPDX-License-Identifier: Apache-2.0
"""Load that no known page explains, and the surprise when it changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tierd.core.tuning import COST
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
        self._since_ns: int | None = None

    def surprised(self, wait_s: float) -> bool:
        """Whether loads have lately been other than pages' heat leads to expect.

        Use has changed then, and heat does not tell yet to what. For `wait_s`, and then not for
        as long: loads that never keep still are no reason to do nothing for ever.
        """
        return self._since_ns is not None and self._last_ns - self._since_ns < wait_s * 1e9

    def follow(
        self, model: TierModel, known: F64Array, traffic: Traffic, wait_s: float
    ) -> TierModel:
        """The model with the load to decide on.

        Args:
            model: with the loads as told.
            known: float64[tiers] bytes a second that known pages ask for.
            traffic: when that is.
            wait_s: as of `surprised`.
        """
        silent = np.array([source == "none" for source in model.source])
        residual = np.where(silent, 0.0, model.load - known)
        if self._mean is not None and len(self._mean) == len(residual):
            elapsed_s = (traffic.time_ns - self._last_ns) / 1e9
            kept = 0.5 ** (elapsed_s / traffic.half_life_s)
            off = np.abs(residual - self._mean)[~silent].sum()
            calm = self._since_ns is None or traffic.time_ns - self._since_ns > 2 * wait_s * 1e9
            if calm and off > COST.residual_load_fraction * model.load[~silent].sum():
                self._since_ns = traffic.time_ns
            residual = np.where(silent, 0.0, kept * self._mean + (1 - kept) * residual)
        if traffic.time_ns:
            self._mean, self._last_ns = residual, traffic.time_ns
        return replace(model, load=np.maximum(known + residual, 0.0))
