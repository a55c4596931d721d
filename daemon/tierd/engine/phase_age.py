# SPDX-License-Identifier: Apache-2.0
"""For how long the hot set has stood still, as far as heat and looks tell."""

from __future__ import annotations

from collections.abc import Sequence

from tierd.core.access import AccessBatch
from tierd.engine.phase_detector import PhaseDetector


class PhaseAge:
    """See the module's text; called in each pass.

    Attributes:
        begun_ns: when the first samples came, CLOCK_MONOTONIC; 0: not yet.
        scan_changes: phase changes that scans found.
    """

    def __init__(self) -> None:
        self.begun_ns = self.scan_changes = 0
        self._phase_change_ns = 0

    def see(self, phase_change_ns: int | None, batches: Sequence[AccessBatch], now_ns: int) -> None:
        """Take in what a source saw; `phase_change_ns` is `EventDrivenSource.phase_change_ns`."""
        if batches:
            self.begun_ns = self.begun_ns or now_ns
        if phase_change_ns is not None and phase_change_ns > self._phase_change_ns:
            self._phase_change_ns = phase_change_ns
            self.scan_changes += 1

    def seconds(self, changes: PhaseDetector | None, now_ns: int) -> float:
        """For how long the hot set has not moved; `changes`: what heat tells, if anybody asks."""
        moved_ns = 0 if changes is None else changes.last_ns
        return (now_ns - max(self.begun_ns or now_ns, moved_ns, self._phase_change_ns)) / 1e9
