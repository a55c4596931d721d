# SPDX-License-Identifier: Apache-2.0
"""NeoMem's policy: which count makes a page hot (NeoMem, MICRO 2024, Algorithm 1).

Once a period, with B the card's use of its bandwidth, P the share of promoted pages that
had been demoted just before (ping-pong), M the bytes promoted in the period, E the error
bound of the counts and QF(q) the q-quantile of the counters:

    if M < quota:     p = clamp(p (1 + B)^alpha / (1 + P)^beta, p_min, p_max)
    else:             p = max(p_min, p / 2)
    if QF(1 - p) < E: p = max(p_min, p / 2)
    threshold = QF(1 - p)

Three things are ours. QF is of the pages that it is about: the counters of others, which
would use up a small p, are taken off the top. They are those of pages that were reported in
this epoch and cannot be promoted, the kernel's own above all; and those of pages that have
moved in this epoch, which counted until they left, and count each line that a move copies,
64 a page, whether it is read to promote the page or written to demote it. The threshold
stays between the least count that means anything (`least_count`) or is worth a move, and what
the card can hold; and while the card's hot list overflows, it is raised by `boost`, which
doubles, and halves again when the list is calm: what does not fit is lost by its place in the
list, not by its heat.

A card without a histogram gives no quantile. Its threshold doubles when too much is moved
or reported, and halves while nothing is.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from tierd.core.tuning import HMU

I64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NeoMemSettings:
    """The algorithm's constants; the paper's values are the defaults.

    Attributes:
        p_min, p_init, p_max: shares of the counters that may count as hot.
        alpha: weight of bandwidth use.
        beta: weight of ping-pong.
        quota_bytes_per_s: bytes promoted a second from which on p is halved.
        least_count: no threshold is below this count.
    """

    p_min: float = 0.0001
    p_init: float = 0.001
    p_max: float = 0.0156
    alpha: float = 1.0
    beta: float = 2.0
    quota_bytes_per_s: int = 256_000_000
    least_count: int = 6


@dataclass(frozen=True, slots=True)
class CardProfile:
    """What a card told of a period.

    Attributes:
        histogram: int64[bins], counters of the sketch's first row by value, zeros
            included; all zero where the card has no histogram.
        edges: int64[bins], lower edges of the bins, ascending from 0.
        error_bound: E, in counts; 0 where the card tells none.
        busy: requests in the period, reads and writes.
        capacity: requests that the period had room for (cycles times channels); 0 where
            the card does not tell.
        reports: pages it reported in the period.
        refused: reports that found no place, in the card or behind it.
        threshold_max: the largest threshold it takes.
        unmovable: pages reported in this epoch that are nobody's to promote.
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

    @property
    def bandwidth(self) -> float:
        """B: the share of its bandwidth in use, 0 to 1."""
        return min(1.0, self.busy / self.capacity) if self.capacity > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Moved:
    """What was moved in the period, over all cards.

    Attributes:
        promoted_pages: pages promoted.
        ping_pong_pages: of these, and of those held back for it, the pages that had been
            demoted just before.
        promoted_bytes: bytes promoted.
        seconds: length of the period.
    """

    promoted_pages: int
    ping_pong_pages: int
    promoted_bytes: int
    seconds: float

    @property
    def ping_pong(self) -> float:
        """P, from 0 to 1."""
        if not self.ping_pong_pages:
            return 0.0
        return min(1.0, self.ping_pong_pages / max(1, self.promoted_pages))


@dataclass(frozen=True, slots=True)
class CardState:
    """What is kept of a card from period to period."""

    p: float
    threshold: int
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Decision:
    """A period's outcome.

    Attributes:
        state: to be kept for the next period.
        quantile: QF(1 - p), None without a histogram.
        over_quota, under_error, overflow: which brakes were applied.
        clamped: the threshold is not the quantile, but a limit.
    """

    state: CardState
    quantile: int | None
    over_quota: bool
    under_error: bool
    overflow: bool
    clamped: bool


def first_state(settings: NeoMemSettings, threshold: int) -> CardState:
    """The state of a card that was just enabled with this threshold."""
    return CardState(settings.p_init, threshold)


def quantiles(histogram: I64Array, edges: I64Array, q: npt.NDArray[np.float64]) -> I64Array:
    """Values, int64[len(q)], that a share q (0 to 1) of the counters do not pass.

    Linear within a bin; a quantile in the last bin, which has no upper edge, is its lower
    edge. The histogram must not be empty.
    """
    # Numbers, not arrays: there are 64, and one quantile is asked for.
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

    `least_count` is of this period; where the settings' is larger, that holds.
    """
    over_quota = moved.promoted_bytes >= settings.quota_bytes_per_s * moved.seconds
    overflow = profile.refused > 0
    boost = min(HMU.max_threshold_boost, state.boost * 2) if overflow else max(1.0, state.boost / 2)
    p = _share(state.p, profile, moved, settings, over_quota=over_quota)
    if not int(profile.histogram.sum()):
        raw = _blind(state, profile, over_quota=over_quota or overflow)
        threshold = _clamp(raw, profile, max(settings.least_count, least_count))
        kept = CardState(p, threshold, 1.0)
        return Decision(kept, None, over_quota, False, overflow, threshold != raw)
    quantile = _quantile(profile, p)
    under_error = quantile < profile.error_bound
    if under_error:
        p = max(settings.p_min, p / 2)
        quantile = _quantile(profile, p)
    raw = int(max(1, quantile) * boost) if boost > 1 else quantile
    threshold = _clamp(raw, profile, max(settings.least_count, least_count))
    return Decision(
        CardState(p, threshold, boost),
        quantile,
        over_quota,
        under_error,
        overflow,
        threshold != raw,
    )


def _share(
    p: float, profile: CardProfile, moved: Moved, settings: NeoMemSettings, *, over_quota: bool
) -> float:
    if over_quota:
        return max(settings.p_min, p / 2)
    wanted = p * (1 + profile.bandwidth) ** settings.alpha
    wanted /= (1 + moved.ping_pong) ** settings.beta
    return float(min(settings.p_max, max(settings.p_min, wanted)))


def _quantile(profile: CardProfile, p: float) -> int:
    width = int(profile.histogram.sum())
    share = p + min(HMU.max_unmovable_fraction, profile.unmovable / width)
    share += min(HMU.max_moved_fraction, profile.moved / width)
    return int(quantiles(profile.histogram, profile.edges, np.array([1.0 - share]))[0])


def _blind(state: CardState, profile: CardProfile, *, over_quota: bool) -> int:
    """The threshold of a card that has no histogram."""
    if over_quota:
        return max(1, state.threshold) * 2
    return state.threshold // 2 if not profile.reports else state.threshold


def _clamp(threshold: int, profile: CardProfile, least: int) -> int:
    return min(profile.threshold_max, max(least, threshold))
