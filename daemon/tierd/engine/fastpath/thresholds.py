# SPDX-License-Identifier: Apache-2.0
"""`HotnessThresholdController`: sets the cards' thresholds once a period, by NeoMem's algorithm."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tierd.core import bounds
from tierd.policy import neomem
from tierd.sources.kmod.neoprof import Profile, histogram_edges
from tierd.sources.kmod.uapi import Features
from tierd.sources.neoprof import NeoProfSource

log = logging.getLogger(__name__)

UNMOVABLE = ("not_target", "shared", "file", "other", "outside")
"""A card's counters of reported pages that cannot be promoted."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Counters of the cost of moves, since the start."""

    promoted_pages: int
    demoted_pages: int
    promoted_bytes: int
    ping_pong_pages: int
    ring_dropped: int


class HotnessThresholdController:
    """Controls the cards' thresholds."""

    def __init__(self, settings: neomem.NeoMemSettings, interval_ns: int) -> None:
        self.settings = settings
        self.interval_ns = interval_ns
        self._states: dict[int, neomem.CardState] = {}
        self._counters: dict[int, Mapping[str, int]] = {}
        self._epochs: dict[tuple[str, int], tuple[int, int]] = {}
        self._seen: dict[tuple[str, int], int] = {}
        self._costs: Costs | None = None
        self._last_ns = 0
        self.decisions: dict[int, neomem.Decision] = {}
        """The last decision, by card."""
        self.history: deque[tuple[float, int, int, float, int]] = deque(
            maxlen=bounds.THRESHOLD_HISTORY
        )
        """The latest decisions: time in s, card, threshold, p, error bound."""

    def forget(self) -> None:
        """Begin anew, because the cards were lost or the hot set has changed."""
        self._states, self._counters, self.decisions = {}, {}, {}
        self._costs, self._last_ns = None, 0

    def update(
        self,
        source: NeoProfSource,
        costs: Costs,
        now_ns: int,
        least_rate: float = 0.0,
        phase_age_s: float = 0.0,
    ) -> bool:
        """Decide for every card once a period; true if a period was over.

        A page with less than `least_rate` requests a second does not pay for its promotion. The
        least threshold is the count that such a page reaches before the next decision. Otherwise
        the card would report the page early, and not again in this epoch after its refusal. While
        the phase age, `phase_age_s`, is below a period, the least threshold is lower.

        A histogram counts from the start of the epoch. In a young epoch its quantiles mean
        nothing, and thresholds stay.
        """
        if now_ns - self._last_ns < self.interval_ns or any(
            now_ns - epoch.start_ns < self.interval_ns // 2 for epoch in source.epochs.values()
        ):
            return False
        seconds = (now_ns - self._last_ns) / 1e9 if self._last_ns else self.interval_ns / 1e9
        before = self._costs or costs
        self._last_ns, self._costs = now_ns, costs
        moved = neomem.Moved(
            promoted_pages=costs.promoted_pages - before.promoted_pages,
            ping_pong_pages=costs.ping_pong_pages - before.ping_pong_pages,
            promoted_bytes=costs.promoted_bytes - before.promoted_bytes,
            seconds=seconds,
        )
        ahead_s = min(seconds, 2e-9 * self.interval_ns, phase_age_s)
        dropped = costs.ring_dropped - before.ring_dropped
        elsewhere = costs.promoted_pages + costs.demoted_pages
        for number, profile in source.profiles().items():
            age_s = max(0, now_ns - source.epochs[number].start_ns) / 1e9
            least = least_rate * (age_s + ahead_s) / source.epochs[number].scale
            self._decide(
                source,
                number,
                profile,
                moved,
                dropped=dropped,
                elsewhere=elsewhere,
                least=math.ceil(least),
            )
        return True

    def _decide(
        self,
        source: NeoProfSource,
        number: int,
        profile: Profile,
        moved: neomem.Moved,
        *,
        dropped: int,
        elsewhere: int,
        least: int,
    ) -> None:
        card, epoch_ns = source.cards[number], source.epochs[number].start_ns
        counters = {**card.stats, **profile.counters}
        before = self._counters.get(number, counters)
        self._counters[number] = counters

        def grown(*names: str) -> int:
            return sum(max(0, counters.get(name, 0) - before.get(name, 0)) for name in names)

        # The card counts an overflow before the driver sees it, so either of them counts.
        refusals = "reports_refused" if Features.COUNTERS in profile.valid else "overflows"
        seen = neomem.CardProfile(
            histogram=profile.histogram.astype(np.int64),
            edges=histogram_edges(),
            error_bound=profile.error_high if Features.ERROR_BOUND in profile.valid else 0,
            busy=grown("read_beats", "write_beats"),
            capacity=grown("cycles") * max(1, card.geometry.channels)
            if Features.BANDWIDTH in profile.valid
            else 0,
            reports=grown("reports", "entries"),
            refused=grown(refusals, "limited") + dropped,
            threshold_max=card.geometry.threshold_max,
            unmovable=self._in_epoch(
                "unmovable",
                number,
                epoch_ns,
                sum(card.stats.get(name, 0) for name in UNMOVABLE),
            ),
            moved=self._in_epoch("moved", number, epoch_ns, elsewhere) // len(source.cards),
        )
        state = self._states.get(number)
        if state is None:
            state = neomem.first_state(self.settings, card.settings.threshold)
        decision = neomem.decide(state, seen, moved, self.settings, least)
        self._states[number] = decision.state
        self.decisions[number] = decision
        source.program(number, decision.state.threshold)
        told = (self._last_ns / 1e9, number, decision.state.threshold, decision.state.p)
        self.history.append((*told, seen.error_bound))
        self._log(number, decision, seen, moved.ping_pong(seen.admitted(state.p)))

    @staticmethod
    def _log(
        number: int, decision: neomem.Decision, seen: neomem.CardProfile, ping_pong: float
    ) -> None:
        log.debug(
            "event=threshold card=%d p=%.5f threshold=%d quantile=%s error=%d bandwidth=%.4f "
            "ping_pong=%.3f over_quota=%s under_error=%s boost=%g",
            number,
            decision.state.p,
            decision.state.threshold,
            decision.quantile,
            seen.error_bound,
            seen.bandwidth,
            ping_pong,
            decision.over_quota,
            decision.under_error,
            decision.state.boost,
        )

    def _in_epoch(self, what: str, number: int, epoch_ns: int, count: int) -> int:
        """Growth of a count since the card's epoch began."""
        key = what, number
        known = self._epochs.get(key)
        if known is None or known[0] != epoch_ns:
            # The count at the last call, which was in an earlier epoch.
            known = self._epochs[key] = (epoch_ns, self._seen.get(key, count))
        self._seen[key] = count
        return max(0, count - known[1])
