# SPDX-License-Identifier: Apache-2.0
"""Phases: when the hot set changes, and how long it has been the same.

A phase is a time in which the hot set stays the same. Three detectors find its end:

- `PhaseDetector` (heat) watches the logarithm of the accesses a second to pages that were not hot.
  In a phase that is the noise of cold pages. At a phase change it rises at once, because the newly
  hot pages are new to the heat table, whichever source reports them. A card that reports nothing,
  because all hot pages are elsewhere, counts as a low value while other sources report accesses.
  This detector alone cools heat.
- `MissBurstDetector` (cards) watches two counts: promotions that the fast path refuses, and
  requests to slow memory. A card reports a page once an epoch, when its count passes the threshold.
  A page that becomes hot late in an epoch is therefore reported late, or refused and not reported
  again. A burst of either count shows this, and a new epoch finds those pages at once.
- Scans: the source reports phase changes itself (`EventDrivenSource.phase_change_ns`).

`PhaseAge` is the time since the last phase change that heat or scans found. The fast path keeps an
age of its own (`FastPathController`), which a burst restarts as well.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tierd.core.access import AccessBatch
from tierd.core.tuning import PHASE
from tierd.hotness.change_point import ChangeDetector, ChangeSettings
from tierd.hotness.table import HeatTable
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
        """Growth of the count since the beginning of the last spike.

        Args:
            count: since the start.
        """
        return max(0, count - self._before)

    def is_spike(self, count: int, now_ns: int, epoch_ns: int) -> bool:
        """Whether the count has a spike since the last call.

        Args:
            count: since the start.
            now_ns: CLOCK_MONOTONIC.
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
        self._old_ns = min(2 * self._old_ns, PHASE.spike_max_wait_ns)
        return True


class MissBurstDetector:
    """Finds bursts of refusals by the fast path, and of requests to slow memory."""

    def __init__(self) -> None:
        self._refusals = SpikeDetector(PHASE.burst_refused_pages)
        self._requests = SpikeDetector(PHASE.burst_requests, PHASE.burst_settling_s)
        self._asked_ns = 0
        self._signs: set[str] = set()

    def update(self, source: NeoProfSource, refused: int, now_ns: int) -> bool:
        """Whether there has been a burst since `take`.

        Args:
            source: the cards.
            refused: pages that the fast path has refused as not hot enough, since the start.
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
        """The kinds of bursts since the last call."""
        signs, self._signs = frozenset(self._signs), set()
        return signs

    def pages(self, signs: frozenset[str], refused: int, least_rate: float) -> int:
        """The most pages that may be promoted in the new epoch.

        Args:
            signs: of `take`.
            refused: as for `update`.
            least_rate: requests a second that make a page worth its moves.
        """
        pages = self._refusals.since(refused) if "many_refused" in signs else 0
        if "many_requests" in signs and least_rate > 0:
            pages = max(pages, int(self._requests.rate / least_rate))
        return pages


@dataclass(frozen=True, slots=True)
class CoolingSettings:
    """The reaction to phase changes.

    Attributes:
        enabled: whether there is any.
        certainty: posterior probability above which a change counts.
        half_lives: by how many half-lives all heat decays at once.
        least: heat below which a page counts as not hot.
    """

    enabled: bool = True
    certainty: float = 0.9
    half_lives: float = 3.0
    least: float = 6.25


class PhaseDetector:
    """Finds phase changes in batches, before heat takes them in.

    Args:
        heat: the table that takes the batches in.
        settings: the reaction to phase changes.
    """

    def __init__(self, heat: HeatTable, settings: CoolingSettings) -> None:
        self._heat = heat
        self.settings = settings
        self._detector = self._fresh()
        self._source = ""
        self._last_ns = 0
        self._spoke = False
        self.found = 0
        """Phase changes since the start."""
        self.last_ns = 0
        """Time of the last one, CLOCK_MONOTONIC; 0 if there was none."""

    @property
    def probability(self) -> float:
        """Posterior probability that the present run of the number is a new one."""
        return self._detector.probability

    @property
    def run_length(self) -> int:
        """The likeliest length of the present run."""
        return self._detector.run_length

    def _fresh(self) -> ChangeDetector:
        return ChangeDetector(
            ChangeSettings(certainty=self.settings.certainty, noise=0.3, least_shift=0.7)
        )

    def restart(self) -> None:
        """Begin anew, because accesses are counted in another unit from now on."""
        self._detector, self._spoke = self._fresh(), False

    def watch(self, batches: Sequence[AccessBatch], source: str, now_ns: int) -> bool:
        """Take in a tick's batches before heat does; true at a phase change.

        Heat has been cooled then.
        """
        # Reports of another source, about pages that this one does not see, are left out.
        own = [batch for batch in batches if batch.source == source and len(batch)]
        fresh = 0.0
        if source == self._source and self.settings.enabled:
            fresh = float(sum(self._heat.novel(batch, self.settings.least) for batch in own))
        heard = any(map(len, batches))
        moved = self.judge(source, now_ns, own=bool(own), heard=heard, fresh=fresh)
        if moved:
            self._heat.fade(self.settings.half_lives)
            log.info(
                "event=phase_change detector=heat source=%s probability=%.3f fade=%g",
                source,
                self.probability,
                self.settings.half_lives,
            )
        return moved

    def judge(self, source: str, now_ns: int, *, own: bool, heard: bool, fresh: float) -> bool:
        """Whether a tick's batches show a phase change; heat is not changed.

        Args:
            source: the name of the source in use.
            now_ns: CLOCK_MONOTONIC.
            own: the source has reported accesses.
            heard: that source, or another one, has reported accesses.
            fresh: the source's accesses to pages that were not hot.
        """
        if source != self._source:
            # The levels of two sources cannot be compared.
            self._source, self._detector, self._last_ns = source, self._fresh(), now_ns
            self._spoke = False
            return False
        seconds = (now_ns - self._last_ns) / 1e9
        self._last_ns = now_ns
        if seconds <= 0 or not self.settings.enabled or not source:
            return False
        if not own and not (self._spoke and heard):
            # A tick without any report says nothing, and is no level to rise from.
            return False
        self._spoke = True
        noise = PHASE.noise_pages_per_s * self.settings.least
        if not self._detector.observe(math.log(noise + fresh / seconds)):
            return False
        self.found += 1
        self.last_ns = now_ns
        return True


class PhaseAge:
    """The time since the last phase change; called in each tick.

    Attributes:
        begun_ns: when the first samples came, CLOCK_MONOTONIC; 0 before.
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
        """The age of the phase, s; `changes`: the detector in heat, if it is enabled."""
        moved_ns = 0 if changes is None else changes.last_ns
        return (now_ns - max(self.begun_ns or now_ns, moved_ns, self._phase_change_ns)) / 1e9
