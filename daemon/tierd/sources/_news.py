# SPDX-License-Identifier: Apache-2.0
"""Whether pages that have become hot mean that programs use other memory.

Owns: what counts as news, and how often.
Must not touch: records (`tierd.sources._scan_records` counts newcomers), looks.
"""

from __future__ import annotations

from typing import Final

from tierd.kmod.uapi import HISTORY

FEW: Final = 64
FEW_OF: Final = 128
"""Fewer newcomers than this, or than one page of so many, are no news."""
WARY: Final = 2
CALM: Final = 4
"""After news it takes so many times as many looks until there is any again. Programs that use other
memory again and again are like that: the more often, the less it is news. Once so many times as
many looks as it takes have brought none, all is as at the start."""


class News:
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

    def is_news(self, newcomers: int, pages: int, looks: int) -> bool:
        """Whether so many newcomers are news.

        Args:
            newcomers: pages that the last two looks found accessed, and none before.
            pages: that are looked at.
            looks: that have taught since the start, or since the last news.
        """
        return newcomers >= max(FEW, pages // FEW_OF) and looks >= max(self._wait, self._held)

    def tell(self, looks: int, now_ns: int) -> None:
        """There is news."""
        self._wait = self._first if looks >= CALM * self._wait else WARY * self._wait
        self._held = 0
        self.last, self.last_ns = True, now_ns

    def hold(self, looks: int) -> None:
        """Looks find more, or less, than before for another reason: all newcomers come of it."""
        self._held = looks + HISTORY
