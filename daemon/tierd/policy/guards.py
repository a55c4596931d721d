# SPDX-License-Identifier: Apache-2.0
"""Guards that every policy shares: how much the next plan may move.

Owns: the byte budget of a tick and its back-off when moves fail.
Must not touch: clocks (time comes in), the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tierd.moves import Fate, MoveReport
from tierd.policy.inputs import Budget

LEAST_SHARE = 1 / 64
"""The budget never falls below this share of the rate: recovery must stay possible."""
FAILURES = (Fate.BUSY, Fate.REFUSED, Fate.NO_ROOM, Fate.FAILED)
ENOUGH = 64
"""Reports of fewer moves than this say nothing about the failure share."""


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """Bytes per second that may move, and the share of failures that slows it down."""

    rate_bytes_per_s: int
    failure_share: float


class BudgetKeeper:
    """Turns the configured rate and the last outcome into the next plan's budget."""

    def __init__(self, settings: GuardSettings) -> None:
        self._settings = settings
        self.share = 1.0
        """Share of the rate in force: 1, or less after failures."""

    def configure(self, settings: GuardSettings) -> None:
        """Use other settings from the next plan on; a back-off goes on."""
        self._settings = settings

    def next(self, elapsed_s: float, last: MoveReport | None) -> Budget:
        """The budget for a plan that has `elapsed_s` seconds of the rate to spend.

        More than the allowed share of failures halves the rate in force; a report
        below it doubles the rate again, up to the configured one.
        """
        if last is not None:
            tried = int(np.count_nonzero(last.fate != Fate.NOT_TRIED))
            failed = int(np.count_nonzero(np.isin(last.fate, FAILURES)))
            if tried >= ENOUGH:
                if failed > self._settings.failure_share * tried:
                    self.share = max(LEAST_SHARE, self.share / 2)
                else:
                    self.share = min(1.0, self.share * 2)
        return Budget(int(self._settings.rate_bytes_per_s * self.share * elapsed_s))
