# SPDX-License-Identifier: Apache-2.0
"""Chooses the interval to the next tick.

Exponential back-off from `loop.interval` to `loop.max_interval` while ticks plan few moves, and a
halved interval after a tick that plans more. It needs something that watches in the meantime: a
fast path that has demotion candidates, or scans that find phase changes. A source that reports at
intervals gives the time of a few reports instead, and a source that warms up its own, shorter time.

Reset to `loop.interval` by: a phase change; a node that is short of free memory; targets whose
pages have not been found yet; a policy that measures the effect of a change; a group whose rate
limit defers moves; a new target; a burst of refused promotions, for a few ticks.

`TickPacer.must_tick` ends an interval early: a burst of refused promotions, a phase change, a
source whose ring fills up, a node that is short of free memory, or promotions that wait because the
fast path has used up its demotion candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tierd.config.model import LoopConfig
from tierd.core import bounds
from tierd.core.access import EventDrivenSource
from tierd.core.tiermap import NodeUsage
from tierd.core.tuning import PACING
from tierd.engine.components import Components
from tierd.migration.fastpath_update import PromoterStats
from tierd.observe.tick_record import TickRecord


@dataclass(frozen=True, slots=True)
class Findings:
    """What a tick found that says how long the next one may wait.

    Attributes:
        tick_ns, quiet_tick_ns: of `[loop]`.
        learning_ns: time of two scans while scans warm up; 0: they do not, or nothing scans.
        report_ns: time between two reports of the source; 0: it makes none at intervals.
        settled: the fast path promotes, and has demotion candidates.
        looks: scans find phase changes.
        walked: the node of every page is known, and no target is new.
        free: the policy measures nothing, and no group's rate limit defers moves.
        short: a node that pages are demoted from has less free than it must have.
        planned: moves of the tick.
        between: pages that the fast path moved since the tick before.
        victims: whether the fast path has demotion candidates.
    """

    tick_ns: int
    quiet_tick_ns: int
    learning_ns: int
    report_ns: int
    settled: bool
    looks: bool
    walked: bool
    free: bool
    moved: bool
    short: bool
    planned: int
    between: int
    victims: bool

    @property
    def can_wait(self) -> bool:
        """Whether nothing has changed, and something watches or reports until the next tick."""
        knows = self.settled or self.looks or self.report_ns > 0
        return knows and self.walked and self.free and not self.moved and not self.short


class TickPacer:
    """Chooses the interval after each tick, and then whether to end it early."""

    def __init__(self) -> None:
        self._pause_ns = 0
        """The last interval; 0 before the first tick."""
        self._had_victims = False
        self._eager_ticks = 0
        """So many more ticks come at `loop.interval`, after many refusals."""
        self._usage_ns = 0
        """When free memory is read again."""
        self._targets: frozenset[tuple[int, int]] = frozenset()
        """Numbers and pids of the targets at the end of the last tick."""

    def pause_ns(self, loop: LoopConfig, components: Components, tick: TickRecord | None) -> int:
        """Time from the start of the last tick to that of the next one."""
        source, fast_path = components.sources.active, components.fast_path
        scans, stats = isinstance(source, EventDrivenSource), _native(components)
        tracking, before = components.tracking, self._targets
        self._targets = frozenset(tracking.pids.items())
        return self.next_pause(
            Findings(
                tick_ns=loop.interval_ns,
                quiet_tick_ns=loop.max_interval_ns,
                learning_ns=source.learning_ns if isinstance(source, EventDrivenSource) else 0,
                report_ns=0 if source is None else source.report_ns,
                settled=fast_path is not None and fast_path.settled,
                looks=scans,
                walked=tracking.all_walked and self._targets <= before,
                # Without a fast path, or before the first tick, ticks do all the work.
                free=fast_path is not None
                and tick is not None
                and not components.policy.busy
                and not tick.plan.notes.get("group_rate_limit"),
                moved=tick is not None and tick.hot_set_moved,
                short=tick is not None and _short(tick.usage, components, tick),
                planned=0 if tick is None else len(tick.plan) + len(tick.plan.split),
                between=PACING.few_pages if tick is None else _moved_between(tick),
                victims=stats is not None and stats.counters["victims"] > 0,
            )
        )

    def next_pause(self, found: Findings) -> int:
        """`pause_ns`, as it follows from what was found."""
        if found.learning_ns:
            return min(found.tick_ns, found.learning_ns)
        last_ns, report = max(self._pause_ns, found.tick_ns), found.report_ns
        self._eager_ticks = max(0, self._eager_ticks - 1)
        if 0 < self._eager_ticks < PACING.refused_ticks - 1 and found.between < PACING.few_pages:
            self._eager_ticks = 0
        if self._eager_ticks or not found.can_wait:
            self._pause_ns = found.tick_ns
        elif report:
            self._pause_ns = max(
                found.tick_ns,
                report,
                min(PACING.reports_per_tick * report, PACING.upkeep_interval_ns),
            )
        elif found.planned >= PACING.few_pages:
            self._pause_ns = max(found.tick_ns, last_ns // 2)
        else:
            self._pause_ns = max(found.tick_ns, min(2 * last_ns, found.quiet_tick_ns))
        self._had_victims = found.victims
        return self._pause_ns

    def hurry(self) -> None:
        """Many promotions were refused: the next ticks come at `loop.interval`."""
        self._eager_ticks = PACING.refused_ticks

    def must_tick(self, components: Components, tick: TickRecord | None, now_ns: int) -> bool:
        """Whether the next tick must begin now; `tick` is the last one."""
        if tick is None or components.fast_path is None:
            return True
        if components.fast_path.miss_burst_seen(now_ns):
            self.hurry()
            return True
        active = components.sources.active
        if isinstance(active, EventDrivenSource):
            # The source reports a phase change once, even if the CPU budget was short then.
            if active.backlog > bounds.RING_FILL_FRACTION or active.phase_changed():
                return True
            return self._has_become_short(components, tick, now_ns)
        if active is not None and active.report_ns:
            return self._has_become_short(components, tick, now_ns)
        source, stats = components.fast_path.view.source, _native(components)
        if source is None or stats is None or source.backlog > bounds.RING_FILL_FRACTION:
            return True
        if (
            self._had_victims
            and not stats.counters["victims"]
            and stats.counters["pending"] >= PACING.few_pages
        ):
            return True
        return self._has_become_short(components, tick, now_ns)

    def _has_become_short(self, components: Components, tick: TickRecord, now_ns: int) -> bool:
        """Whether a node is short of free memory; reads it once a `loop.interval`."""
        if now_ns < self._usage_ns:
            return False
        self._usage_ns = now_ns + tick.config.loop.interval_ns
        return _short(components.read_usage(tick.tiers), components, tick)


def _moved_between(tick: TickRecord) -> int:
    """Pages that the fast path moved since the tick before."""
    return 0 if tick.between is None else len(tick.between.plan)


def _native(components: Components) -> PromoterStats | None:
    return None if components.fast_path is None else components.fast_path.stats()


def _short(usage: Mapping[int, NodeUsage], components: Components, tick: TickRecord) -> bool:
    """Whether a node that pages are demoted from has less free than it must have."""
    low = components.policy.low_watermark
    return any(
        usage[node].free_bytes < usage[node].low_bytes(low)
        for node in tick.tiers.demoting_nodes
        if node in usage
    )
