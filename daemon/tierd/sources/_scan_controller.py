# SPDX-License-Identifier: Apache-2.0
"""How the module's scanner looks: how often, with which exposure, and what is known by now.

Looks are quick while each of them teaches something: at the start, when programs wake, and when
they begin to use other memory (`tierd.sources._scan_phase`). They begin with whole periods, or with
the longest exposure that is allowed; where they find so many pages in use that they tell none from
another, exposures become shorter, and looks quicker still, until the scanner's silence about a page
means something again; then it looks as often as it was told to, and more rarely once what programs
use has stood still for long.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from tierd.core.access import Seen
from tierd.core.tuning import INTERVAL, SCAN
from tierd.sources._scan_phase import ScanPhaseDetector
from tierd.sources._scan_records import WarmupState
from tierd.sources._scan_summary import ScanSummary
from tierd.sources.sampling_interval import choose

log = logging.getLogger(__name__)


Stats = Mapping[int, Mapping[str, int]]
"""struct tierd_target_stats by field name, by target."""


class ScanController:
    """See the module's text.

    Args:
        period_us: least time between two looks, once they have taught enough.
        min_sampling_interval_us: no exposure is shorter.
        now_ns: CLOCK_MONOTONIC.
        alone: nobody else tells of pages that become hot.

    Attributes:
        aim: share of the targets' pages that fast memory has room for; None: not known.
        awake: somebody else saw the programs run since the last `take`, whatever looks found.
        exposure_us: what is set; 0 is the whole period.
        lag_us: programs may have used other memory for so long before a look finds that.
        longest_us: no exposure is longer, where that is less than half of the period; None: none
            is too long.
        seen: the last whole looks.
    """

    def __init__(
        self,
        period_us: int,
        min_sampling_interval_us: int,
        now_ns: int,
        *,
        alone: bool = True,
    ) -> None:
        self._configured_us = period_us
        self._least_us = min_sampling_interval_us
        self._alone = alone
        self.aim: float | None = None
        self.longest_us: int | None = None
        self.lag_us = 0
        self.awake = False
        self.start(now_ns)

    def start(self, now_ns: int) -> None:
        """The scanner begins anew."""
        self.exposure_us = self._bounded(0)
        self._rounds: dict[int, int] = {}
        self._since: dict[int, int] = {}
        self._valid_from: dict[int, int] = {}
        self.phase_detector = ScanPhaseDetector(SCAN.warmup_scans)
        self._taken = 0
        self._pages = self._asleep = self._apart = 0
        self._awake_ns = now_ns
        period = self.period_us
        self.seen = Seen(0.0, (self.exposure_us or period) / 1e6, period / 1e6)

    def is_phase_change(self, turnover: ScanSummary) -> bool:
        """Whether what a look found means that programs use other memory."""
        return self._alone and self.phase_detector.is_phase_change(
            turnover, self._pages, self._taken
        )

    def on_phase_change(self, turnover: ScanSummary, now_ns: int) -> bool:
        """A look has found this; true if that is news: `period_us` has changed."""
        if not self.is_phase_change(turnover):
            return False
        log.info(
            "event=phase_change detector=scan newly_hot=%d newly_idle=%d",
            turnover.newly_hot,
            turnover.newly_idle,
        )
        self.phase_detector.tell(self._taken, now_ns)
        self._taken = 0
        return True

    @property
    def fresh(self) -> WarmupState:
        """What may just have begun."""
        if not self._teaches:
            return WarmupState.NOTHING
        return WarmupState.OTHERS if self.phase_detector.last else WarmupState.START

    def pace(self, period_us: int) -> None:
        """Look no more often than this, once looks have taught enough."""
        self._configured_us = period_us
        self.exposure_us = min(self.exposure_us, period_us)

    @property
    def period_us(self) -> int:
        """Least time between two looks now."""
        if not self._learning:
            return self._rested_us
        least, warmup_speed = (
            (SCAN.warmup_period_us, SCAN.warmup_speed)
            if self._alone
            else (SCAN.warmup_period_beside_us, SCAN.warmup_speed_beside)
        )
        wanted = 4 * self.exposure_us if self.exposure_us else self._configured_us // warmup_speed
        return min(self._configured_us, max(least, wanted))

    @property
    def _rested_us(self) -> int:
        # Whole periods would find more pages in use if they were longer.
        if not (self._alone and self.exposure_us):
            return self._configured_us
        doubled = (self.lag_us // self._configured_us).bit_length() - 1
        return self._configured_us << max(0, min(doubled, SCAN.rest_doublings))

    @property
    def learning_ns(self) -> int:
        """Time of two looks while they teach something; 0 after that."""
        return 2 * self.period_us * 1000 if self._teaches else 0

    @property
    def rounds(self) -> int:
        """Whole looks at each target that tell of what programs do now."""
        counts = [each - self._since.get(target, 0) for target, each in self._rounds.items()]
        return max(0, min(counts, default=0))

    @property
    def _teaches(self) -> bool:
        # Of pages that may become hot.
        return self._alone and self._taken < SCAN.warmup_scans

    @property
    def _learning(self) -> bool:
        # Silence about a page says nothing yet.
        return self._teaches or self.rounds < SCAN.known_scans

    @property
    def dilution(self) -> float:
        """The share of time whose accesses looks see, in (0, 1]: what heat counts."""
        return min(1.0, self.seen.sampling_interval_s / self.seen.period_s)

    def taught_s(self, now_ns: int) -> float:
        """For how long looks at programs that run have gone to heat."""
        return (now_ns - self._awake_ns) / 1e9

    def take(self, stats: Stats, now_ns: int) -> bool:
        """Take in what the scanner tells; true if `exposure_us` or `period_us` changed."""
        rounds = {target: each.get("rounds", 0) for target, each in stats.items()}
        if rounds == self._rounds:
            return False  # no look has ended since
        before = self.period_us, self.exposure_us
        taught = not self._learning
        # Of targets that were there before: one that comes does not have all learned anew.
        known = [target for target in rounds if target in self._rounds]
        self._taken += max([0, *(rounds[target] - self._rounds[target] for target in known)])
        self._rounds = rounds
        for kept in (self._since, self._valid_from):
            # A number may be another process' by now, whose rounds begin at 0.
            for target in [each for each in kept if rounds.get(each, 0) + 1 < kept[each]]:
                del kept[target]
        pages = sum(each.get("round_pages", 0) for each in stats.values())
        valid = all(
            each > self._valid_from.get(target, SCAN.stale_scans - 1)
            for target, each in rounds.items()
        )
        if valid and pages:
            self.seen = self._mean(list(stats.values()))
            if self._pages and pages > SCAN.grown_factor * self._pages:
                self._begin_anew(now_ns)
            elif (
                self.seen.share < INTERVAL.idle_fraction
                and self._asleep < SCAN.idle_scans
                and not self.awake
            ):
                self._asleep += 1
                self._forget(now_ns)
            else:
                self._pages = self._pages or pages
                self._expose(taught=taught)
        self.awake = False
        return before != (self.period_us, self.exposure_us)

    def rest(self, lag_us: int) -> bool:
        """Set `lag_us`; true if `period_us` changed."""
        before = self.period_us
        self.lag_us = lag_us
        return self.period_us != before

    def bound(self, longest_us: int | None) -> bool:
        """Set `longest_us`; true if `exposure_us` or `period_us` changed: nothing was seen yet."""
        self.longest_us = longest_us
        wanted = self._bounded(self.exposure_us)
        if self._rounds or wanted == self.exposure_us:
            return False
        self.exposure_us = wanted
        return True

    def _bounded(self, wanted_us: int) -> int:
        longest = self.longest_us
        if longest is None or longest >= INTERVAL.whole_fraction * self._configured_us:
            return wanted_us
        return max(self._least_us, min(wanted_us or longest, longest))

    def _begin_anew(self, now_ns: int) -> None:
        """What is known is of the lesser part of all memory."""
        rounds, aim = self._rounds, self.aim
        self.start(now_ns)
        self._rounds, self.aim = rounds, aim
        self._forget(now_ns)
        self._valid_from = {target: each + 1 for target, each in rounds.items()}

    def _forget(self, now_ns: int) -> None:
        """Programs that do not run teach nothing of what they will use."""
        self._since = dict(self._rounds)
        self._taken, self.phase_detector.last = 0, False
        self._valid_from = dict(self._rounds)
        self._awake_ns = now_ns

    def _mean(self, stats: Sequence[Mapping[str, int]]) -> Seen:
        pages = sum(each.get("round_pages", 0) for each in stats)
        period = sampling_interval = 0.0
        for each in stats:
            weight = each.get("round_pages", 0) / pages
            own = max(each.get("period_ns", 0) / 1e9, self.period_us / 1e6)
            period += weight * own
            sampling_interval += weight * min(each.get("exposure_ns", 0) / 1e9 or own, own)
        return Seen(
            sum(each.get("round_accessed", 0) for each in stats) / pages, sampling_interval, period
        )

    def _expose(self, *, taught: bool) -> None:
        """Look with another exposure, if the last looks say so."""
        if self.aim is None:
            return
        before = self.exposure_us
        wanted = self._bounded(
            choose(
                self.seen, self.aim, before, least_us=self._least_us, most_us=self._configured_us
            )
        )
        self._apart = self._apart + 1 if wanted != before else 0
        if wanted == before or (taught and self._apart < SCAN.patience_scans):
            return
        if taught and wanted and before:
            # What the last eight looks saw stays of use.
            wanted = min(
                max(wanted, before // SCAN.interval_apart_factor),
                before * SCAN.interval_apart_factor,
            )
        self._apart = 0
        self.phase_detector.hold(self._taken)
        told = "event=sampling_interval us=%d before_us=%d accessed=%.3f aim=%.3f"
        log.info(told, wanted, before, self.seen.share, self.aim)
        self.exposure_us = wanted
        self._valid_from = {
            target: each + SCAN.stale_scans - 1 for target, each in self._rounds.items()
        }
        apart = (
            not before
            or not wanted
            or not 1 / SCAN.interval_apart_factor <= wanted / before <= SCAN.interval_apart_factor
        )
        if apart and not taught:
            self._since = {target: each + 1 for target, each in self._rounds.items()}
