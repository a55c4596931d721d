# SPDX-License-Identifier: Apache-2.0
"""How the module scans: how often, with which sampling interval, and what is known by now.

Scans are quick while each of them teaches something: at the start, when programs wake, and after
a phase change. They begin with a sampling interval of the whole period, or with the longest that is
allowed. Where scans find so many pages in use that they tell none from another, the interval
becomes shorter, and scans quicker still, until the absence of a page from the reports means
something again; then the module scans as often as it was told to, and more rarely in a phase that
has lasted for long.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from tierd.core.access import Seen
from tierd.core.tuning import INTERVAL, PACING, PHASE, SCAN
from tierd.sources.kmod.uapi import HISTORY
from tierd.sources.sampling_interval import choose
from tierd.sources.scan_records import ScanSummary, WarmupState

log = logging.getLogger(__name__)


Stats = Mapping[int, Mapping[str, int]]
"""struct tierd_target_stats by field name, by target."""


class ScanPhaseDetector:
    """Whether what a scan found means that programs use other memory.

    Either of two signs will do. Of the pages that become hot, most were found by just the last two
    scans of eight; of pages that scans find now and then it is one of seven. Or most of the pages
    that three scans in a row had found in use are not in use any more: a single scan finds that.

    Args:
        scans: so many after a start, or after a phase change, there is none.

    Attributes:
        last: what is being learned began with a phase change.
        last_ns: when there was one, CLOCK_MONOTONIC; 0: not yet.
    """

    def __init__(self, scans: int) -> None:
        self._first = self._wait = scans
        self._held = 0
        self.last = False
        self.last_ns = 0

    def is_phase_change(self, found: ScanSummary, pages: int, scans: int) -> bool:
        """Whether that is a phase change.

        Args:
            pages: that are scanned.
            scans: that have taught since the start, or since the last phase change.
        """
        if scans < max(self._wait, self._held):
            return False
        least = max(PACING.few_pages, pages // PHASE.min_pages_divisor)
        came = found.newly_hot >= least and found.newly_hot_fraction > PHASE.newly_hot_fraction
        share = min(1.0, found.accessed / pages) if pages else 0.0
        chance = PHASE.chance_factor * share**3 * (1 - share) * pages
        went = (
            found.newly_idle >= max(least, chance)
            and found.newly_idle_fraction > PHASE.newly_idle_fraction
        )
        return came or (went and found.accessed >= PHASE.active_fraction * found.newly_idle)

    def tell(self, scans: int, now_ns: int) -> None:
        """There is a phase change."""
        calm = scans >= PHASE.calm_factor * self._wait
        self._wait = self._first if calm else PHASE.backoff_factor * self._wait
        self._held = 0
        self.last, self.last_ns = True, now_ns

    def hold(self, scans: int) -> None:
        """The sampling interval changes, which alone makes pages newly hot or newly idle."""
        self._held = scans + HISTORY


class ScanController:
    """Chooses when pages are scanned, and for how long each is sampled.

    Args:
        period_us: least time between two scans, once they have taught enough.
        min_sampling_interval_us: no sampling interval is shorter; from half of the period on there
            is none.
        alone: no other source finds pages that become hot.

    Attributes:
        aim: share of the targets' pages that fast memory has room for; None: not known.
        awake: another source saw the programs run since the last `take`, whatever scans found.
        sampling_interval_us: the sampling interval that is set; 0 is the whole period.
        lag_us: a phase change may go undetected for so long.
        longest_us: no sampling interval is longer, where that is less than half of the period;
            None: none is too long.
        seen: what the last whole scans found.
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
        self.sampling_interval_us = self._bounded(0)
        self._rounds: dict[int, int] = {}
        self._round_pages: dict[int, int] = {}
        self._since: dict[int, int] = {}
        self._valid_from: dict[int, int] = {}
        self.phase_detector = ScanPhaseDetector(SCAN.warmup_scans)
        self._taken = 0
        self._pages = self._asleep = self._apart = self._round_ns = 0
        self._awake_ns = now_ns
        period = self.period_us
        self.seen = Seen(0.0, (self.sampling_interval_us or period) / 1e6, period / 1e6)

    def is_phase_change(self, found: ScanSummary) -> bool:
        """Whether what a scan found means that programs use other memory."""
        return self._alone and self.phase_detector.is_phase_change(found, self._pages, self._taken)

    def on_phase_change(self, found: ScanSummary, now_ns: int) -> bool:
        """A scan has found this; true if it is a phase change: `period_us` has changed."""
        if not self.is_phase_change(found):
            return False
        log.info(
            "event=phase_change detector=scan newly_hot=%d newly_idle=%d",
            found.newly_hot,
            found.newly_idle,
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
        """Scan no more often than this, once scans have taught enough."""
        self._configured_us = period_us
        self.sampling_interval_us = min(self.sampling_interval_us, period_us)

    @property
    def period_us(self) -> int:
        """Least time between two scans now."""
        if not (self._learning or self._joining):
            return self._rested_us
        slower = 1 if self._alone else SCAN.beside_factor
        wanted = SCAN.warmup_speed * self.sampling_interval_us
        wanted = wanted or self._configured_us * slower // SCAN.warmup_speed
        return min(self._configured_us, max(slower * SCAN.warmup_period_us, wanted))

    @property
    def _rested_us(self) -> int:
        # A sampling interval of the whole period would find more pages in use if it were longer.
        if not (self._alone and self.sampling_interval_us):
            return self._configured_us
        doubled = (self.lag_us // self._configured_us).bit_length() - 1
        return self._configured_us << max(0, min(doubled, SCAN.rest_doublings))

    @property
    def learning_ns(self) -> int:
        """Time of two scans while they teach something; 0 after that."""
        if not (self._teaches or self._joining):
            return 0
        # The budget may make a scan take longer than the time between two.
        return 2 * max(self.period_us * 1000, self._round_ns)

    @property
    def rounds(self) -> int:
        """Whole scans of each target that say what programs do now."""
        counts = [each - self._since.get(target, 0) for target, each in self._rounds.items()]
        return max(0, min(counts, default=0))

    @property
    def _teaches(self) -> bool:
        # What teaches: pages that may become hot.
        return self._alone and self._taken < SCAN.warmup_scans

    @property
    def _learning(self) -> bool:
        # The absence of a page from the reports says nothing yet.
        return self._teaches or self.rounds < SCAN.known_scans

    @property
    def _joining(self) -> bool:
        """Whether targets warm up that came later, and have as many pages as a phase change."""
        if not self._alone:
            return False
        new = [target for target, each in self._rounds.items() if each < SCAN.warmup_scans]
        pages = sum(self._round_pages.get(target, 0) for target in new)
        total = sum(self._round_pages.values())
        return pages >= max(PACING.few_pages, total // PHASE.min_pages_divisor)

    @property
    def dilution(self) -> float:
        """The share of time whose accesses scans see, in (0, 1]: what heat counts."""
        return min(1.0, self.seen.sampling_interval_s / self.seen.period_s)

    def taught_s(self, now_ns: int) -> float:
        """For how long scans of programs that run have gone to heat."""
        return (now_ns - self._awake_ns) / 1e9

    def take(self, stats: Stats, now_ns: int) -> bool:
        """Take in the scanner's statistics; true if an interval of the scanner has changed."""
        rounds = {target: each.get("rounds", 0) for target, each in stats.items()}
        if rounds == self._rounds:
            return False  # no scan has ended since
        before = self.period_us, self.sampling_interval_us
        taught = not self._learning
        self._round_pages = {target: each.get("round_pages", 0) for target, each in stats.items()}
        self._round_ns = max((each.get("round_ns", 0) for each in stats.values()), default=0)
        self._count(rounds)
        valid = all(each > self._valid_from.get(target, 1) for target, each in rounds.items())
        if valid and any(each.get("round_pages", 0) for each in stats.values()):
            self._judge(list(stats.values()), now_ns, taught=taught)
        self.awake = False
        return before != (self.period_us, self.sampling_interval_us)

    def _count(self, rounds: dict[int, int]) -> None:
        # Of targets that were there before: one that comes does not have all learned anew.
        grown = [
            each - self._rounds[target] for target, each in rounds.items() if target in self._rounds
        ]
        self._taken += max([0, *grown])
        self._rounds = rounds
        for kept in (self._since, self._valid_from):
            # A number may be another process' by now, whose rounds begin at 0.
            for target in [each for each in kept if rounds.get(each, 0) + 1 < kept[each]]:
                del kept[target]

    def _judge(self, stats: Sequence[Mapping[str, int]], now_ns: int, *, taught: bool) -> None:
        """What whole scans found, some pages at least, says how to go on."""
        pages = sum(each.get("round_pages", 0) for each in stats)
        self.seen = self._mean(stats, pages)
        idle = self.seen.share < INTERVAL.idle_fraction and self._asleep < SCAN.idle_scans
        if self._pages and pages > INTERVAL.alike_factor * self._pages:
            self._begin_anew(now_ns)
        elif idle and not self.awake:
            self._asleep += 1
            self._forget(now_ns)
        else:
            self._pages = self._pages or pages
            self._choose_interval(taught=taught)

    def rest(self, lag_us: int) -> bool:
        """Set `lag_us`; true if `period_us` changed."""
        before = self.period_us
        self.lag_us = lag_us
        return self.period_us != before

    def bound(self, longest_us: int | None) -> bool:
        """Set `longest_us`; true if an interval has changed, as nothing was seen yet."""
        self.longest_us = longest_us
        wanted = self._bounded(self.sampling_interval_us)
        if self._rounds or wanted == self.sampling_interval_us:
            return False
        self.sampling_interval_us = wanted
        return True

    def _bounded(self, wanted_us: int) -> int:
        longest = self.longest_us
        least = max(self._least_us, longest or 0)
        if longest is None or least * INTERVAL.alike_factor >= self._configured_us:
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

    def _mean(self, stats: Sequence[Mapping[str, int]], pages: int) -> Seen:
        period = sampling_interval = 0.0
        for each in stats:
            weight = each.get("round_pages", 0) / pages
            own = max(each.get("period_ns", 0) / 1e9, self.period_us / 1e6)
            period += weight * own
            sampling_interval += weight * min(each.get("sampling_interval_ns", 0) / 1e9 or own, own)
        accessed = sum(each.get("round_accessed", 0) for each in stats)
        return Seen(accessed / pages, sampling_interval, period)

    def _choose_interval(self, *, taught: bool) -> None:
        """Set another sampling interval, if the last scans say so."""
        if self.aim is None:
            return
        before, apart = self.sampling_interval_us, SCAN.interval_apart_factor
        wanted = self._bounded(
            choose(
                self.seen, self.aim, before, least_us=self._least_us, most_us=self._configured_us
            )
        )
        self._apart = self._apart + 1 if wanted != before else 0
        if wanted == before or (taught and self._apart < SCAN.patience_scans):
            return
        if taught and wanted and before:
            # What the last eight scans saw stays of use.
            wanted = min(max(wanted, before // apart), before * apart)
        self._apart = 0
        self.phase_detector.hold(self._taken)
        log.info(
            "event=sampling_interval us=%d before_us=%d accessed=%.3f aim=%.3f",
            wanted,
            before,
            self.seen.share,
            self.aim,
        )
        self.sampling_interval_us = wanted
        rounds = self._rounds.items()
        # The scan under way began with the interval before.
        self._valid_from = {target: each + 1 for target, each in rounds}
        far = not before or not wanted or not 1 / apart <= wanted / before <= apart
        if far and not taught:
            self._since = {target: each + 1 for target, each in rounds}
