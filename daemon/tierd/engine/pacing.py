# SPDX-License-Identifier: Apache-2.0
"""How long the loop leaves everything to the native path, or to looks.

A pass costs the same whether it finds something to move or not, and what it reads and writes pushes
out of the caches what others had there. Where the native path promotes, what must be quick is done
without passes: they bring it victims, and look after what it does not see. So the time between two
passes doubles, up to `loop.max_interval`, while they move little themselves, however much the
native path does; it is halved by a pass that moves more, and is `loop.interval` again when the hot
set, targets or free memory change, and until it is known what may leave: by then passes are what
makes room. When pages wait and the native path has used up its victims, or when it suddenly refuses
many, the next pass need not wait (`must_tick`); after the latter two more come as quickly, to see
whether the hot set has moved, as long as the native path finds pages to move now that their epoch
is new. Where scans find phase changes (`core.access.EventDrivenSource`) it grows as well, without a
native path, but not while they teach something: there is a pass after every second one by then.
Other sources without a native path are read, and acted upon, by passes only: there it is the time
of a few reports, or of one where they are rare, where they are made at intervals, and does not grow
where a source has something to tell at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tierd.config import LoopConfig
from tierd.core.access import EventDrivenSource
from tierd.core.nodes import NodeUsage
from tierd.core.tuning import PACING
from tierd.engine.components import Components
from tierd.migration.fastpath_update import PromoterStats
from tierd.observe.tick_record import TickRecord


@dataclass(frozen=True, slots=True)
class Findings:
    """What a pass found that says how long the next one may wait.

    Attributes:
        tick_ns, quiet_tick_ns: of `[loop]`.
        learning_ns: time of two looks while they teach something; 0: they do not, or none look.
        report_ns: time between two reports of the source; 0: it makes none at intervals.
        settled: the native path promotes, and knows what to demote.
        looks: looks tell of news.
        walked: it is known where all pages are.
        free: the policy measures nothing, and no group waits for its rate.
        moved: the hot set has moved.
        short: a node that pages are demoted from has less free than it must have.
        planned: moves of the pass.
        between: pages that the native path moved since the pass before.
        victims: whether the native path has pages to demote.
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
        """Whether nothing has changed, and the native path knows its way, or there is nothing to
        read for a while, or looks tell of news."""
        knows = self.settled or self.looks or self.report_ns > 0
        return knows and self.walked and self.free and not self.moved and not self.short


class TickPacer:
    """Decides after each pass how long the next one may wait, and then whether it may wait on."""

    def __init__(self) -> None:
        self._pause_ns = 0
        """The last one; none before the first pass."""
        self._had_victims = False
        self._eager_ticks = 0
        """Passes that do not wait for longer, as there is something to find out."""
        self._usage_ns = 0
        """Free memory is looked at again then."""

    def pause_ns(self, loop: LoopConfig, components: Components, tick: TickRecord | None) -> int:
        """Time from the start of the last pass to that of the next one."""
        source, fast_path = components.sources.active, components.fast_path
        scans, stats = isinstance(source, EventDrivenSource), _native(components)
        return self.next_pause(
            Findings(
                tick_ns=loop.interval_ns,
                quiet_tick_ns=loop.max_interval_ns,
                learning_ns=source.learning_ns if isinstance(source, EventDrivenSource) else 0,
                report_ns=0 if source is None else source.report_ns,
                settled=fast_path is not None and fast_path.settled,
                looks=scans,
                walked=components.tracking.all_walked,
                # Without a fast path, or a pass, there is nobody to leave anything to.
                free=fast_path is not None
                and tick is not None
                and not components.policy.busy
                and not tick.plan.notes.get("group_rate_limit"),
                moved=tick is not None and tick.hot_set_moved,
                short=tick is not None and _short(tick.usage, components, tick),
                planned=0 if tick is None else len(tick.plan),
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
                found.tick_ns, report, min(PACING.reports_per_tick * report, PACING.max_reports_ns)
            )
        elif found.planned >= PACING.few_pages:
            self._pause_ns = max(found.tick_ns, last_ns // 2)
        else:
            self._pause_ns = max(found.tick_ns, min(2 * last_ns, found.quiet_tick_ns))
        self._had_victims = found.victims
        return self._pause_ns

    def hurry(self) -> None:
        """Many pages were refused: the next passes come quickly."""
        self._eager_ticks = PACING.refused_ticks

    def must_tick(self, components: Components, tick: TickRecord | None, now_ns: int) -> bool:
        """Whether something has come up since the last pass, which was `tick`."""
        if tick is None or components.fast_path is None:
            return True
        if components.fast_path.miss_burst_seen(now_ns):
            self.hurry()
            return True
        active = components.sources.active
        if isinstance(active, EventDrivenSource):
            # (A phase change that came while the CPU budget was short is not told of again.)
            if active.backlog > PACING.ring_fill_fraction or active.phase_changed():
                return True
            return self._has_become_short(components, tick, now_ns)
        if active is not None and active.report_ns:
            return self._has_become_short(components, tick, now_ns)
        source, stats = components.fast_path.around.source, _native(components)
        if source is None or stats is None or source.backlog > PACING.ring_fill_fraction:
            return True
        if (
            self._had_victims
            and not stats.counters["victims"]
            and stats.counters["pending"] >= PACING.few_pages
        ):
            return True
        return self._has_become_short(components, tick, now_ns)

    def _has_become_short(self, components: Components, tick: TickRecord, now_ns: int) -> bool:
        """Whether free memory is a reason for a pass, as often as there would be passes."""
        if now_ns < self._usage_ns:
            return False
        self._usage_ns = now_ns + tick.config.loop.interval_ns
        return _short(components.read_usage(tick.tiers), components, tick)


def _moved_between(tick: TickRecord) -> int:
    """Pages that the native path moved since the pass before."""
    return 0 if tick.between is None else len(tick.between.plan)


def _native(components: Components) -> PromoterStats | None:
    return None if components.fast_path is None else components.fast_path.stats()


def _short(usage: Mapping[int, NodeUsage], components: Components, tick: TickRecord) -> bool:
    """Whether a node that pages are demoted from has less free than it must have."""
    low = components.policy.low_watermark
    return any(
        usage[node].free_bytes < usage[node].low_bytes(low)
        for tier in tick.tiers.tiers
        if tick.tiers.demotion_tier(tier.rank) is not None
        for node in tier.nodes
        if node in usage
    )
