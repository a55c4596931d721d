# SPDX-License-Identifier: Apache-2.0
"""Signs beside the cards' reports that the hot set may have moved.

A card reports a page once an epoch, when its count passes the threshold. A page that becomes hot
late in an epoch has the mean rate since the epoch's start: it is reported late, or is reported
before its rate pays, is refused, and not reported again before the next epoch. Two counts tell
sooner: the native path suddenly refuses many pages, or slow memory is suddenly asked for much more
often, which a card knows without any page. A new epoch then tells at once which pages they are.
"""

from __future__ import annotations

from tierd.core.tuning import PHASE
from tierd.engine.spike import SpikeDetector
from tierd.sources.neoprof import NeoProfSource


class MissBurstDetector:
    """See the module's text."""

    def __init__(self) -> None:
        self._refusals = SpikeDetector(PHASE.burst_refused_pages)
        self._requests = SpikeDetector(PHASE.burst_requests, PHASE.burst_settling_s)
        self._asked_ns = 0
        self._signs: set[str] = set()

    def update(self, source: NeoProfSource, refused: int, now_ns: int) -> bool:
        """Whether there has been a sign since `take`.

        Args:
            source: the cards.
            refused: pages that the native path did not find hot enough since the start.
            now_ns: CLOCK_MONOTONIC.
        """
        begun = max((epoch.start_ns for epoch in source.epochs.values()), default=now_ns)
        if self._refusals.is_spike(refused, now_ns, begun):
            self._signs.add("many_refused")
        if now_ns - self._asked_ns >= PHASE.burst_check_interval_ns:
            self._asked_ns = now_ns
            if self._requests.is_spike(source.requests(), now_ns, begun):
                self._signs.add("many_requests")
        return bool(self._signs)

    def take(self) -> frozenset[str]:
        """The signs since the last call."""
        signs, self._signs = frozenset(self._signs), set()
        return signs

    def pages(self, signs: frozenset[str], refused: int, least_rate: float) -> int:
        """How many pages may come in once their epoch is new, at most.

        Args:
            signs: of `take`.
            refused: as for `update`.
            least_rate: requests a second that make a page worth its moves.
        """
        pages = self._refusals.since(refused) if "many_refused" in signs else 0
        if "many_requests" in signs and least_rate > 0:
            pages = max(pages, int(self._requests.rate / least_rate))
        return pages
