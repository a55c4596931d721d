# SPDX-License-Identifier: Apache-2.0
"""`RateLimiter`: how much the next plan may move (multiplicative back-off and recovery)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tierd.core.migration import Fate, MigrationResult
from tierd.core.tuning import PRESSURE
from tierd.policy.inputs import Budget, Pressure

CALM = Pressure()
UNLIMITED = Pressure(1.0, 1.0, 1.0)
FAILURES = (Fate.BUSY, Fate.REFUSED, Fate.NO_ROOM, Fate.FAILED)


@dataclass(frozen=True, slots=True)
class RateLimiterSettings:
    """Bytes a second that may move, and the limits above which that is less.

    Attributes:
        rate_bytes_per_s: the configured rate.
        failure_share: fraction of failed moves above which the rate is halved.
        most: pressure above which the rate is halved; 1 turns a limit off.
    """

    rate_bytes_per_s: int
    failure_share: float
    most: Pressure = UNLIMITED

    def strained(self, pressure: Pressure) -> bool:
        """Whether any kind of pressure is above its limit."""
        return (
            pressure.memory > self.most.memory
            or pressure.cpu > self.most.cpu
            or pressure.ping_pong > self.most.ping_pong
        )


class RateLimiter:
    """Makes the next plan's budget from the configured rate and the last result."""

    def __init__(self, settings: RateLimiterSettings) -> None:
        self._settings = settings
        self.share = 1.0
        """Fraction of the rate that is left after failures."""
        self.calm = 1.0
        """Fraction of the rate that is left under pressure."""

    @property
    def in_force(self) -> float:
        """Fraction of the rate in force."""
        return max(PRESSURE.min_rate_fraction, self.share * self.calm)

    def configure(self, settings: RateLimiterSettings) -> None:
        """Use other settings from the next plan on; a back-off goes on."""
        self._settings = settings

    def next(
        self, elapsed_s: float, last: MigrationResult | None, pressure: Pressure = CALM
    ) -> Budget:
        """The budget of a plan, for `elapsed_s` seconds of the rate.

        A report with more than the allowed failures halves the rate in force, and a report with
        fewer doubles it, up to the configured rate. In the same way pressure above a limit halves
        the rate, down to an eighth, and pressure below all limits doubles it.
        """
        if self._settings.strained(pressure):
            self.calm = max(PRESSURE.min_pressure_rate_fraction, self.calm / 2)
        else:
            self.calm = min(1.0, self.calm * 2)
        if last is not None:
            fates = np.bincount(last.fate, minlength=len(Fate)).tolist()
            tried = len(last.fate) - fates[Fate.NOT_TRIED]
            failed = sum(fates[fate] for fate in FAILURES)
            if tried >= PRESSURE.min_reported_moves:
                if failed > self._settings.failure_share * tried:
                    self.share = max(PRESSURE.min_rate_fraction, self.share / 2)
                else:
                    self.share = min(1.0, self.share * 2)
        return Budget(int(self._settings.rate_bytes_per_s * self.in_force * elapsed_s))
