# SPDX-License-Identifier: Apache-2.0
"""NeoMem's algorithm for a card's threshold (NeoMem, MICRO 2024, Algorithm 1).

Once a period, with B the bandwidth utilisation of the card, P the ping-pong ratio of promoted
pages, M the bytes promoted in the period, E the error bound of the counts and QF(q) the q-quantile
of the counters:

    if M < quota:     p = clamp(p (1 + B)^alpha / (1 + P)^beta, p_min, p_max)
    else:             p = max(p_min, p / 2)
    if QF(1 - p) < E: p = max(p_min, p / 2)
    threshold = QF(1 - p)

Four things differ from the paper:

- QF leaves out counters of pages that cannot be promoted, which would use up a small p. These are
  pages reported in this epoch that are not movable (the kernel's above all), and pages that moved
  in this epoch. The latter count the lines of their copy as well, 64 a page and direction.
- P is the share of the pages promoted, or of those that p may admit where these are more. In a
  quiet period a few pages are all that moves: by their share of it p fell to a sixteenth in
  seconds, which (1 + B)^alpha makes good in minutes.
- The threshold has limits: at least the least meaningful count (`least_count`) and the count that
  pays for a move, at most what the card can hold.
- While the card's hot list overflows, `boost` raises the threshold. It doubles, and is halved again
  without overflow. What does not fit would be lost by its place in the list, not by its heat.

A card without a histogram has no quantile. Its threshold doubles when too much is moved or
reported, and is halved while nothing is.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from tierd.config.model import Config
from tierd.core.pagekey import I64Array
from tierd.core.tuning import HMU


@dataclass(frozen=True, slots=True)
class NeoMemSettings:
    """The algorithm's constants.

    Attributes:
        p_min, p_init, p_max: fractions of the counters that may count as hot.
        quota_bytes_per_s: p is halved when so many bytes are promoted a second.
        least_count: no threshold is below this count.
    """

    p_min: float
    p_init: float
    p_max: float
    alpha: float
    beta: float
    quota_bytes_per_s: int
    least_count: int

    @classmethod
    def of(cls, config: Config) -> NeoMemSettings:
        """As configured.

        A card reports a page once an epoch: a count too small to pass the rule against a much
        colder page would be refused, and the page not be reported again.
        """
        threshold, policy = config.sources.neoprof.threshold, config.policy
        certain = 1 - HMU.certain_victim_ratio * (1 + policy.hysteresis)
        return cls(
            p_min=threshold.p_min,
            p_init=threshold.p_init,
            p_max=threshold.p_max,
            alpha=threshold.alpha,
            beta=threshold.beta,
            quota_bytes_per_s=policy.promotion_rate_limit_bytes_per_s,
            least_count=math.floor((policy.confidence_sigmas / certain) ** 2),
        )


@dataclass(frozen=True, slots=True)
class CardProfile:
    """A card's statistics of a period.

    Attributes:
        histogram: int64[bins], counters of the sketch's first row by value, zeros
            included; all zero where the card has no histogram.
        edges: int64[bins], lower edges of the bins, ascending from 0.
        error_bound: E, in counts; 0 where the card has none.
        busy: requests in the period, reads and writes.
        capacity: the most requests in the period (cycles times channels); 0 where the card
            does not report it.
        refused: reports lost to an overflow, in the card or behind it.
        unmovable: pages reported in this epoch that cannot be promoted.
        moved: pages that were promoted from the card's memory or demoted into it in this
            epoch.
    """

    histogram: I64Array
    edges: I64Array
    error_bound: int
    busy: int
    capacity: int
    reports: int
    refused: int
    threshold_max: int
    unmovable: int = 0
    moved: int = 0

    def admitted(self, p: float) -> float:
        """Pages that a fraction p of the counters may admit: none that was not used."""
        used = self.histogram[1:].sum()
        return float(min(p * (used + self.histogram[0]), used))

    @property
    def bandwidth(self) -> float:
        """B: the bandwidth utilisation, 0 to 1."""
        return min(1.0, self.busy / self.capacity) if self.capacity > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Moved:
    """The moves of the period, over all cards.

    Attributes:
        ping_pong_pages: of these, and of those rejected for it, the pages that had been
            demoted just before.
    """

    promoted_pages: int
    ping_pong_pages: int
    promoted_bytes: int
    seconds: float

    def ping_pong(self, admitted: float) -> float:
        """P, from 0 to 1, where so many pages may be admitted."""
        if not self.ping_pong_pages:
            return 0.0
        return min(1.0, self.ping_pong_pages / max(1, self.promoted_pages, admitted))


@dataclass(frozen=True, slots=True)
class CardState:
    """The state of a card from period to period."""

    p: float
    threshold: int
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of a period.

    Attributes:
        quantile: QF(1 - p), None without a histogram.
        over_quota, under_error, overflow: which limits were applied.
    """

    state: CardState
    quantile: int | None
    over_quota: bool
    under_error: bool
    overflow: bool


def first_state(settings: NeoMemSettings, threshold: int) -> CardState:
    """The state of a card that was enabled with this threshold."""
    return CardState(settings.p_init, threshold)


def quantiles(histogram: I64Array, edges: I64Array, q: npt.NDArray[np.float64]) -> I64Array:
    """Quantiles, int64[len(q)], of the counters; q from 0 to 1.

    Linear within a bin; a quantile in the last bin, which has no upper edge, is its lower
    edge. The histogram must not be empty.
    """
    # Plain numbers are faster than arrays here: 64 bins, one quantile.
    counts, lower = np.asarray(histogram, np.int64).tolist(), edges.tolist()
    below = list(accumulate(counts))
    # The first bin that holds anything, for q = 0.
    first = next(index for index, count in enumerate(counts) if count > 0)
    found = []
    for share in q.tolist():
        wanted = min(1.0, max(0.0, share)) * below[-1]
        index = max(first, min(bisect_left(below, wanted), len(counts) - 1))
        width = lower[index + 1] - lower[index] if index + 1 < len(lower) else 1
        inside = (wanted - (below[index] - counts[index])) / max(counts[index], 1)
        step = min(int(min(1.0, max(0.0, inside)) * width), width - 1)
        found.append(lower[index] + step)
    return np.array(found, np.int64)


def decide(
    state: CardState,
    profile: CardProfile,
    moved: Moved,
    settings: NeoMemSettings,
    least_count: int = 0,
) -> Decision:
    """One period of Algorithm 1 for one card.

    `least_count` is of this period; the larger of it and the settings' holds.
    """
    over_quota = moved.promoted_bytes >= settings.quota_bytes_per_s * moved.seconds
    overflow = profile.refused > 0
    boost = min(profile.threshold_max, state.boost * 2) if overflow else max(1.0, state.boost / 2)
    p = _share(state.p, profile, moved, settings, over_quota=over_quota)
    if not int(profile.histogram.sum()):
        raw = _blind(state, profile, over_quota=over_quota or overflow)
        threshold = _clamp(raw, profile, max(settings.least_count, least_count))
        return Decision(CardState(p, threshold, 1.0), None, over_quota, False, overflow)
    quantile = _quantile(profile, p)
    under_error = quantile < profile.error_bound
    if under_error:
        p = max(settings.p_min, p / 2)
        quantile = _quantile(profile, p)
    raw = int(max(1, quantile) * boost) if boost > 1 else quantile
    threshold = _clamp(raw, profile, max(settings.least_count, least_count))
    return Decision(CardState(p, threshold, boost), quantile, over_quota, under_error, overflow)


def _share(
    p: float, profile: CardProfile, moved: Moved, settings: NeoMemSettings, *, over_quota: bool
) -> float:
    if over_quota:
        return max(settings.p_min, p / 2)
    wanted = p * (1 + profile.bandwidth) ** settings.alpha
    wanted /= (1 + moved.ping_pong(profile.admitted(p))) ** settings.beta
    return float(min(settings.p_max, max(settings.p_min, wanted)))


def _quantile(profile: CardProfile, p: float) -> int:
    width = int(profile.histogram.sum())
    left_out = (profile.unmovable + profile.moved) / width
    share = p + min(HMU.max_left_out_fraction, left_out)
    return int(quantiles(profile.histogram, profile.edges, np.array([1.0 - share]))[0])


def _blind(state: CardState, profile: CardProfile, *, over_quota: bool) -> int:
    """The threshold of a card that has no histogram."""
    if over_quota:
        return max(1, state.threshold) * 2
    return state.threshold // 2 if not profile.reports else state.threshold


def _clamp(threshold: int, profile: CardProfile, least: int) -> int:
    return min(profile.threshold_max, max(least, threshold))
