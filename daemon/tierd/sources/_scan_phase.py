# SPDX-License-Identifier: Apache-2.0
"""Whether what a look found means that programs use other memory.

Two signs tell. Of the pages that become hot, most were found by just the last two looks of eight;
of pages that looks find now and then it is one of seven. Or most of the pages that three looks in a
row had found in use are not in use any more: that is seen by a single look.
"""

from __future__ import annotations

from tierd.core.tuning import PHASE
from tierd.sources._scan_summary import ScanSummary
from tierd.sources.kmod.uapi import HISTORY


class ScanPhaseDetector:
    """See the module's text.

    Args:
        looks: so many after a start, or after news, there is none.

    Attributes:
        last: what is being learned began with news.
        last_ns: when there were any, CLOCK_MONOTONIC; 0: not yet.
    """

    def __init__(self, looks: int) -> None:
        self._first = self._wait = looks
        self._held = 0
        self.last = False
        self.last_ns = 0

    def is_phase_change(self, found: ScanSummary, pages: int, looks: int) -> bool:
        """Whether that is news.

        Args:
            found: what a look found.
            pages: that are looked at.
            looks: that have taught since the start, or since the last news.
        """
        if looks < max(self._wait, self._held):
            return False
        least = max(PHASE.min_pages, pages // PHASE.min_pages_divisor)
        came = found.newly_hot >= least and found.newly_hot_fraction > PHASE.newly_hot_fraction
        share = min(1.0, found.accessed / pages) if pages else 0.0
        chance = PHASE.chance_factor * share**3 * (1 - share) * pages
        went = (
            found.newly_idle >= max(least, chance)
            and found.newly_idle_fraction > PHASE.newly_idle_fraction
        )
        return came or (went and found.accessed >= PHASE.active_fraction * found.newly_idle)

    def tell(self, looks: int, now_ns: int) -> None:
        """There is news."""
        self._wait = (
            self._first
            if looks >= PHASE.calm_factor * self._wait
            else PHASE.backoff_factor * self._wait
        )
        self._held = 0
        self.last, self.last_ns = True, now_ns

    def hold(self, looks: int) -> None:
        """Looks find more, or less, than before for another reason: all newcomers come of it."""
        self._held = looks + HISTORY
