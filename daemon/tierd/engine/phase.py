# SPDX-License-Identifier: Apache-2.0
"""Phases: when the hot set changes, and how long it has been the same.

A phase is a time in which the hot set stays the same. Sources find its end, each by what it sees:

- Scans report phase changes themselves (`EventDrivenSource.phase_change_ns`).
- Cards do not, and `MissBurstDetector` watches two counts for them: promotions that the fast path
  refuses, and requests to slow memory. A card reports a page once an epoch, when its count passes
  the threshold. A page that becomes hot late in an epoch is therefore reported late, or refused and
  not reported again. A burst of either count shows this, and a new epoch finds those pages at once.

`PhaseAge` is the time since the last of them. Heat itself forgets by its half-life alone: cooling
it at a phase change gained 0.4 % at most (docs/research/benchmarks/ablations/README.md).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tierd.core import bounds
from tierd.core.access import LINES_PER_PAGE, AccessBatch
from tierd.core.logfmt import logfmt
from tierd.core.tuning import PHASE
from tierd.sources.neoprof import NeoProfSource

log = logging.getLogger(__name__)


class SpikeDetector:
    """Finds a sudden growth of a count, compared with its moving average, within an epoch.

    Some loads have spikes all the time, and gain nothing from a new epoch. So after each spike the
    epoch must be twice as old for the next one to count. That age is halved again by each epoch
    without a spike. A spike in a younger epoch counts once the epoch is old enough.

    Args:
        least: growth by less than this between two calls is no spike.
        calms_s: time over which the average follows a lower rate; None for
            `PHASE.spike_mean_s`.

    Attributes:
        rate: growth of the count a second, between the last two calls.
    """

    def __init__(self, least: int, calms_s: float | None = None) -> None:
        calms_s = PHASE.spike_mean_s if calms_s is None else calms_s
        self._least, self._calms_s = least, calms_s
        self._count = self._before = 0
        self._last_ns = self._leapt_ns = 0
        self._waits_ns = 0
        """Start of the epoch of the last spike, whether it was old enough or not."""
        self._usual = 0.0
        self._old_ns = PHASE.spike_min_epoch_ns
        self._epoch_ns = 0
        self.rate = 0.0

    def since(self, count: int) -> int:
        """Growth of the count since the beginning of the last spike."""
        return max(0, count - self._before)

    def is_spike(self, count: int, now_ns: int, epoch_ns: int) -> bool:
        """Whether the count has a spike since the last call.

        Args:
            count: since the start.
            epoch_ns: when the cards' present epoch began, CLOCK_MONOTONIC.
        """
        grown, seconds = count - self._count, (now_ns - self._last_ns) / 1e9
        known = self._last_ns > 0
        self._count, self._last_ns = count, now_ns
        if not known or seconds <= 0 or grown < 0:
            return False
        usual, self.rate = self._usual, grown / seconds
        over_s = PHASE.spike_mean_s if self.rate > usual else self._calms_s
        self._usual += min(1.0, seconds / over_s) * (self.rate - usual)
        if epoch_ns > self._epoch_ns:
            if self._leapt_ns < self._epoch_ns:
                self._old_ns = max(PHASE.spike_min_epoch_ns, self._old_ns // 2)
            self._epoch_ns = epoch_ns
        if self._leapt_ns >= epoch_ns:
            return False
        miss_burst = grown >= self._least and self.rate >= PHASE.spike_factor * usual
        if (
            miss_burst
            and self._waits_ns != epoch_ns
            and now_ns - epoch_ns >= PHASE.spike_min_epoch_ns
        ):
            self._waits_ns, self._before = epoch_ns, count - grown
        if self._waits_ns != epoch_ns or now_ns - epoch_ns < self._old_ns:
            return False
        self._leapt_ns = now_ns
        self._old_ns *= 2
        return True


class MissBurstDetector:
    """Finds bursts of refusals by the fast path, and of requests to slow memory."""

    def __init__(self) -> None:
        self._refusals = SpikeDetector(PHASE.burst_refused_pages)
        self._requests = SpikeDetector(
            PHASE.burst_refused_pages * LINES_PER_PAGE, PHASE.burst_settling_s
        )
        self._asked_ns = 0
        self._signs: set[str] = set()

    def update(self, source: NeoProfSource, refused: int, now_ns: int) -> bool:
        """Whether there has been a burst since `take`.

        Args:
            refused: pages that the fast path has refused as not hot enough, since the start.
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
        """The kinds of bursts since the last call."""
        signs, self._signs = frozenset(self._signs), set()
        return signs

    def pages(self, signs: frozenset[str], refused: int, least_rate: float) -> int:
        """The most pages that may be promoted in the new epoch.

        Args:
            least_rate: requests a second that make a page worth its moves.
        """
        pages = self._refusals.since(refused) if "many_refused" in signs else 0
        if "many_requests" in signs and least_rate > 0:
            pages = max(pages, int(self._requests.rate / least_rate))
        return pages


class PhaseAge:
    """The time since the last phase change; called in each tick.

    Attributes:
        begun_ns: when the first samples came, CLOCK_MONOTONIC; 0 before.
    """

    def __init__(self) -> None:
        self.begun_ns = self.scan_changes = self._waits_ns = 0
        self._scan_ns = self._changed_ns = 0

    def see(self, scan_ns: int | None, batches: Sequence[AccessBatch], now_ns: int) -> bool:
        """Take in what a source saw; true at a phase change.

        Args:
            scan_ns: `EventDrivenSource.phase_change_ns`; None: nothing scans.
        """
        if batches:
            self.begun_ns = self.begun_ns or now_ns
        if scan_ns is None or scan_ns <= self._scan_ns:
            return False
        self._scan_ns = scan_ns
        self._changed_ns = max(self._changed_ns, scan_ns)
        self.scan_changes += 1
        return True

    def restart(self, now_ns: int) -> None:
        """A burst of misses showed a phase change."""
        self._changed_ns = now_ns

    def seconds(self, now_ns: int) -> float:
        """The age of the phase, s; 0 before the first samples."""
        return (now_ns - max(self.begun_ns or now_ns, self._changed_ns)) / 1e9

    def gathered(self, now_ns: int, half_life_ns: int, *, walked: bool) -> bool:
        """Whether `tierd run --once` may decide.

        All pages were located (`walked`), and samples came in for a half-life of heat; or none came
        in for some half-lives.
        """
        self._waits_ns = self._waits_ns or now_ns
        if self.begun_ns:
            return walked and now_ns - self.begun_ns >= half_life_ns
        waited_ns = now_ns - self._waits_ns
        if waited_ns < bounds.ONCE_HALF_LIVES * half_life_ns:
            return False
        log.warning(
            logfmt(
                event="no_samples",
                waited_seconds=waited_ns / 1e9,
                effect="decided without: only what is known of places and free memory counts",
            )
        )
        return True
