# SPDX-License-Identifier: Apache-2.0
"""`FastPathController`: controls the fast path, that is, the native promoter and cards' thresholds.

The promoter runs while the source in use is `neoprof` and pages may be moved. It is stopped from
the start of a tick's decision to the end of its moves (`begin` to `end`). So the two never work on
different budgets, free memory or page locations.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tierd.core.migration import (
    DEMOTE,
    MOVED,
    PROMOTE,
    Direction,
    MigrationPlan,
    MigrationResult,
    Reason,
)
from tierd.core.pagekey import PAGE_SIZE, small_pages
from tierd.core.tiermap import NodeUsage, TierMap
from tierd.engine.fastpath.runner import FastPathRunner
from tierd.engine.fastpath.thresholds import Costs, HotnessThresholdController
from tierd.engine.fastpath.update import FastPathSettings, FastPathUpdater, within_quota
from tierd.engine.phase import MissBurstDetector
from tierd.engine.tracking import Tracking
from tierd.hotness.table import HeatTable
from tierd.migration import Mover, NativeMover
from tierd.migration.fastpath_update import PromoterStats
from tierd.migration.promoter import Promoter
from tierd.migration.results import pages_moved
from tierd.observe.decisions import DecisionLog
from tierd.observe.explain import Explainer, ServiceView
from tierd.observe.totals import Totals
from tierd.policy.limits import Groups
from tierd.policy.watermark import WatermarkSettings
from tierd.sources.kmod.ring import Ring
from tierd.sources.kmod.uapi import Kind
from tierd.sources.neoprof import NeoProfSource
from tierd.sources.selection import SourceSelector

log = logging.getLogger(__name__)


class FastPathController:
    """Controls the fast path between ticks; for the loop's thread."""

    def __init__(
        self,
        settings: FastPathSettings,
        policy: WatermarkSettings,
        *,
        heat: HeatTable,
        tracking: Tracking,
        sources: SourceSelector,
        mover: Mover,
        thresholds: HotnessThresholdController,
        open_ring: Callable[[Path, Collection[Kind]], Ring] = Ring.open,
        root: Path = Path("/"),
    ) -> None:
        self._settings = settings
        self._heat = heat
        self._sources = sources
        self.thresholds_of = thresholds
        self.miss_burst = MissBurstDetector()
        self._epoch_restarts = 0
        self.log = DecisionLog()
        self.view = ServiceView(lambda: tracking.pids, tracking.movable, sources)
        self.explainer = Explainer(heat, self.log, self.view)
        self._update_of = settings, policy
        self._update_with = {"heat": heat, "tracking": tracking, "root": root}
        self.update_with(FastPathUpdater)
        # It exists without cards as well: it records moves, and so finds ping-pong.
        self._native = (
            FastPathRunner(mover, self.updater.settings(None), open_ring=open_ring, root=root)
            if isinstance(mover, NativeMover)
            else None
        )
        self._tick_promoted = self._tick_demoted = 0
        self._recent_pages = 0
        self._may_come = 0
        """Pages that may be promoted after an early epoch restart; for one tick."""
        self._over_quota = 0
        self._groups: Groups | None = None
        self._rate = 0.0
        """Requests a second that pay for a page's moves, as of the last update."""

    def update_with(self, make: Callable[..., FastPathUpdater]) -> None:
        """Replace the `FastPathUpdater` by another one with the same arguments."""
        self.updater = make(*self._update_of, **self._update_with)

    def tap(self) -> Promoter | None:
        """Record the inputs and choices of the fast path; call it first. None without one."""
        return None if self._native is None else self._native.tap()

    # ------------------------------------------------------------- the loop's calls

    def listen(self) -> None:
        """Let cards leave page copies out of their counts; called before sources are read."""
        source, native = self._source, self._native
        if source is None or native is None:
            return
        fresh = native.collect()
        if not len(fresh):
            return
        source.promoted(pages_moved(fresh, Direction.PROMOTE))
        source.demoted(pages_moved(fresh, Direction.DEMOTE))

    def restart_epoch(self, now_ns: int) -> bool:
        """End the cards' epoch early, after a burst of misses; whether there was one."""
        source = self._source
        signs = self.miss_burst.take() if self.miss_burst_seen(now_ns) else frozenset()
        if source is None or not signs:
            return False
        # The cards' counts are still of the old hot set.
        self._heat.ingest(source.clear())
        self._epoch_restarts += 1
        self._may_come = self.miss_burst.pages(signs, self._refused(), self._rate)
        log.info("event=epoch_restart reason=%s", ",".join(sorted(signs)))
        return True

    def miss_burst_seen(self, now_ns: int) -> bool:
        """Whether there was a burst of misses since the last tick."""
        source, native = self._source, self._native
        if source is None or native is None or not native.running:
            return False
        return self.miss_burst.update(source, self._refused(), now_ns)

    def _refused(self) -> int:
        """Pages that the fast path has refused as not hot enough, since the start."""
        stats = self.stats()
        return 0 if stats is None else stats.held[Reason.NOT_HOTTER] + stats.held[Reason.NOT_WORTH]

    def prepare(
        self, tiers: TierMap, read_usage: Callable[[TierMap], Mapping[int, NodeUsage]]
    ) -> None:
        """Start the fast path as soon as cards count, as the rest of the tick may take long."""
        source, native = self._source, self._native
        if source is None or native is None or native.running or not self._settings.enabled:
            return
        self.view.tiers, self.view.usage = tiers, read_usage(tiers)
        self._run(source, native, self.updater.least_rate(source, tiers, 0.0))

    def begin(self, now_ns: int) -> MigrationResult | None:
        """Stop the fast path before a decision; its moves since the last tick."""
        if self._native is None:
            return None
        self._native.hold()
        ran = self._native.running
        if not ran and self._native.silent(now_ns):
            self._recent_pages = 0
            return None
        report = self._collect(self._native, now_ns)
        if ran and (self._source is None or not self._settings.enabled):
            self._stop(self._native)
        return report if ran or len(report.plan) else None

    def allow(self, plan: MigrationPlan) -> MigrationPlan:
        """The part of a tick's plan that the promotion rate limit admits.

        The fast path shares that limit. Call it just before the plan is executed.
        """
        if self._native is not None and self._native.running:
            plan, waiting = within_quota(plan, self._native.quota_left())
            self._over_quota += waiting
        if self._source is not None and len(plan):
            down = plan.direction == DEMOTE
            self._source.demoted(small_pages(plan.page[down], plan.order[down]))
        return plan

    def end(
        self,
        now_ns: int,
        tiers: TierMap,
        usage: Mapping[int, NodeUsage],
        report: MigrationResult | None,
        *,
        phase_age_s: float,
        paused: bool = False,
        groups: Groups | None = None,
    ) -> None:
        """After a tick's moves: update the fast path, and start it again."""
        self.view.tiers, self.view.usage, self._groups = tiers, usage, groups
        if report is not None:
            self.log.add_report(report, now_ns)
            moved = report.counts()[MOVED]
            self._tick_promoted += moved[PROMOTE]
            self._tick_demoted += moved[DEMOTE]
            if self._source is not None:
                up = (report.fate == MOVED) & (report.plan.direction == PROMOTE)
                self._source.promoted(small_pages(report.plan.page[up], report.plan.order[up]))
            if self._native is not None:
                self._native.note(report, now_ns)
        source = self._source
        if source is None:
            return
        rate = self.updater.least_rate(source, tiers, phase_age_s)
        self.thresholds_of.update(source, self._costs(), now_ns, rate, phase_age_s)
        if not paused and self._settings.enabled and self._native is not None:
            self._run(source, self._native, rate)

    def close(self) -> None:
        """End the fast path."""
        if self._native is not None:
            self._native.close()

    @property
    def settled(self) -> bool:
        """Whether the fast path promotes, and has demotion candidates."""
        source, native = self._source, self._native
        return native is not None and native.running and source is not None and source.knows_cold

    @property
    def exchanged(self) -> frozenset[int]:
        """Nodes whose hot 4 KiB pages the fast path exchanges for cold ones by itself."""
        source = self._source
        return source.coverage.whole if source is not None and self.settled else frozenset()

    def stats(self) -> PromoterStats | None:
        """The promoter's counters; None in a dry run."""
        return None if self._native is None else self._native.stats()

    def tell(self, totals: Totals) -> None:
        """Add the counters of the fast path to the service's totals."""
        totals.epoch_restarts = self._epoch_restarts
        stats = self.stats()
        if stats is None:
            return
        totals.ping_pong_pages = stats.counters["bounced"]
        totals.ping_pong_prevented = stats.counters["bounce_held"]
        # They are read far less often than written.
        totals.tell_native = partial(_native, stats, self._over_quota, self._epoch_restarts)

    # ------------------------------------------------------------- inside

    @property
    def _source(self) -> NeoProfSource | None:
        return self.view.source

    def _run(self, source: NeoProfSource, native: FastPathRunner, rate: float) -> None:
        native.hold()
        self._rate = rate
        # After an epoch restart refused and unreported pages may be promoted.
        comes, self._may_come = max(self._recent_pages, self._may_come), 0
        native.run(
            self.updater.settings(source, rate),
            self.updater.orders(source, self.view, comes, self._groups),
        )

    def _stop(self, native: FastPathRunner) -> None:
        """End the thread; the record of recent moves stays."""
        if native.stop():
            self.thresholds_of.forget()

    def _collect(self, native: FastPathRunner, now_ns: int) -> MigrationResult:
        """Give the results since the last tick to heat, the log and the source."""
        self.listen()
        outcomes, report = native.take(now_ns)
        self._heat.moved(report)
        self.log.add(outcomes)
        up = (report.plan.direction == PROMOTE) & (report.fate == MOVED)
        self._recent_pages = int(np.count_nonzero(up)) + native.stats().counters["pending"]
        return report

    def _costs(self) -> Costs:
        """The cost of moves since the start, of both paths together."""
        stats = self.stats()
        counters = stats.counters if stats is not None else {}
        promoted = counters.get("promoted", 0) + self._tick_promoted
        return Costs(
            promoted_pages=promoted,
            demoted_pages=counters.get("demoted", 0) + self._tick_demoted,
            promoted_bytes=promoted * PAGE_SIZE,
            ping_pong_pages=counters.get("bounced", 0) + counters.get("bounce_held", 0),
            ring_dropped=counters.get("ring_dropped", 0),
        )


def _native(stats: PromoterStats, over_quota: int, epoch_restarts: int) -> dict[str, Any]:
    """The counters of the fast path, for `Totals.tell_native`."""
    rejected = {Reason(i).name.lower(): count for i, count in enumerate(stats.held) if count}
    more = {
        "deferred_by_rate_limit": over_quota,
        "epoch_restarts": epoch_restarts,
        "rejected": rejected,
    }
    return dict(stats.counters) | more
