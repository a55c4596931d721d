# SPDX-License-Identifier: Apache-2.0
"""Whether what a look found means that programs use other memory.

Two signs tell. Of the pages that become hot, most were found by just the last two looks of eight;
of pages that looks find now and then it is one of seven. Or most of the pages that three looks in a
row had found in use are not in use any more: that is seen by a single look.
"""

from __future__ import annotations

from typing import Final

from tierd.sources._scan_summary import ScanSummary
from tierd.sources.kmod.uapi import HISTORY

STEADY: Final = 0.5
"""More of the pages that became hot than this are newcomers: it is no chance."""
SILENT: Final = 0.65
"""More of the pages in steady use than this are not used any more. Of a hot set that stands, with
pages that looks find just more often than not, it is less than a half."""
CHANCE: Final = 2
"""They are so many times as many as by chance: where looks find each page with a chance p, three in
a row find p**3 of all, and the next one does not find 1 - p of these."""
AWAKE: Final = 0.5
"""A look that finds fewer pages in use than this share of those that fell newly_idle tells of
programs that pause."""
FEW: Final = 64
FEW_OF: Final = 128
"""Fewer pages than this, or than one page of so many, are no news."""
BACKOFF: Final = 2
CALM: Final = 4
"""After news it takes so many times as many looks until there is any again. Programs that use other
memory again and again are like that: the more often, the less it is news. Once so many times as
many looks as it takes have brought none, all is as at the start."""


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
        least = max(FEW, pages // FEW_OF)
        came = found.newly_hot >= least and found.newly_hot_fraction > STEADY
        share = min(1.0, found.accessed / pages) if pages else 0.0
        chance = CHANCE * share**3 * (1 - share) * pages
        went = found.newly_idle >= max(least, chance) and found.newly_idle_fraction > SILENT
        return came or (went and found.accessed >= AWAKE * found.newly_idle)

    def tell(self, looks: int, now_ns: int) -> None:
        """There is news."""
        self._wait = self._first if looks >= CALM * self._wait else BACKOFF * self._wait
        self._held = 0
        self.last, self.last_ns = True, now_ns

    def hold(self, looks: int) -> None:
        """Looks find more, or less, than before for another reason: all newcomers come of it."""
        self._held = looks + HISTORY
