# SPDX-License-Identifier: Apache-2.0
"""Guards that every policy shares: how much the next plan may move."""

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
    """Bytes per second that may move, and what slows it down.

    Attributes:
        rate_bytes_per_s: the most.
        failure_share: share of failed moves above which it slows down.
        most: pressure above which it slows down; a share of 1 is never passed.
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
    """Turns the configured rate and the last outcome into the next plan's budget."""

    def __init__(self, settings: RateLimiterSettings) -> None:
        self._settings = settings
        self.share = 1.0
        """Share of the rate that failures leave: 1, or less after some."""
        self.calm = 1.0
        """Share of the rate that pressure leaves."""

    @property
    def in_force(self) -> float:
        """Share of the rate in force."""
        return max(PRESSURE.min_rate_fraction, self.share * self.calm)

    def configure(self, settings: RateLimiterSettings) -> None:
        """Use other settings from the next plan on; a back-off goes on."""
        self._settings = settings

    def next(
        self, elapsed_s: float, last: MigrationResult | None, pressure: Pressure = CALM
    ) -> Budget:
        """The budget for a plan that has `elapsed_s` seconds of the rate to spend.

        More than the allowed share of failures halves the rate in force; a report
        below it doubles the rate again, up to the configured one. In the same way too
        much pressure halves it, down to an eighth, and its end doubles it.
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
