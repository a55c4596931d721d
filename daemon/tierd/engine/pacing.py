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
is new. Where looks tell of news (`tierd.engine.event_source`) it grows as well, without a native
path, but not while they teach something: there is a pass after every second one by then. Other
sources without a native path are read, and acted upon, by passes only: there it is the time of a
few reports, or of one where they are rare, where they are made at intervals, and does not grow
where a source has something to tell at any time.
"""

from __future__ import annotations

from collections.abc import Mapping

from tierd.config import LoopConfig
from tierd.core.tuning import PACING
from tierd.engine.components import Components
from tierd.engine.event_source import event_driven, report_ns
from tierd.engine.fastpath.destinations import low_bytes
from tierd.migration.fastpath_update import PromoterStats
from tierd.observe.tick_record import TickRecord
from tierd.policy.inputs import NodeUsage
from tierd.policy.watermark import WatermarkSettings


class TickPacer:
    """Decides after each pass how long the next one may wait, and then whether it may wait on."""

    def __init__(self) -> None:
        self._pause_ns = 0
        """The last one; none before the first pass."""
        self._had_victims = False
        self._scan_controller = 0
        """Passes that do not wait for longer, as there is something to find out."""
        self._usage_ns = 0
        """Free memory is looked at again then."""

    def pause_ns(self, loop: LoopConfig, components: Components, tick: TickRecord | None) -> int:
        """Time from the start of the last pass to that of the next one."""
        source = event_driven(components.sources.active)
        if source is not None and source.learning_ns:
            return min(loop.interval_ns, source.learning_ns)
        last_ns = max(self._pause_ns, loop.interval_ns)
        self._scan_controller = max(0, self._scan_controller - 1)
        if (
            0 < self._scan_controller < PACING.refused_ticks - 1
            and tick is not None
            and _moved_between(tick) < PACING.few_pages
        ):
            self._scan_controller = 0
        report = report_ns(components.sources.active)
        if tick is None or self._scan_controller or not _can_wait(components, tick):
            self._pause_ns = loop.interval_ns
        elif report:
            self._pause_ns = max(
                loop.interval_ns,
                report,
                min(PACING.reports_per_tick * report, PACING.max_reports_ns),
            )
        elif len(tick.plan) >= PACING.few_pages:
            self._pause_ns = max(loop.interval_ns, last_ns // 2)
        else:
            self._pause_ns = max(loop.interval_ns, min(2 * last_ns, loop.max_interval_ns))
        stats = _native(components)
        self._had_victims = stats is not None and stats.counters["victims"] > 0
        return self._pause_ns

    def must_tick(self, components: Components, tick: TickRecord | None, now_ns: int) -> bool:
        """Whether something has come up since the last pass, which was `tick`."""
        if tick is None or components.fast_path is None:
            return True
        if components.fast_path.miss_burst_seen(now_ns):
            self._scan_controller = PACING.refused_ticks
            return True
        if (looks := event_driven(components.sources.active)) is not None:
            # (News that came while the CPU budget was short are not told of again.)
            if looks.backlog > PACING.ring_fill_fraction or looks.phase_changed():
                return True
            return self._has_become_short(components, tick, now_ns)
        if report_ns(components.sources.active):
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


def _can_wait(components: Components, tick: TickRecord) -> bool:
    """Whether nothing has changed, and the native path knows its way, or there is nothing to read
    for a while, or looks tell of news."""
    fast_path, source = components.fast_path, components.sources.active
    return (
        fast_path is not None
        and (fast_path.settled or event_driven(source) is not None or report_ns(source) > 0)
        and components.tracking.all_walked
        and tick.groups is None
        and tick.traffic is None
        and not tick.hot_set_moved
        and not _short(tick.usage, components, tick)
    )


def _moved_between(tick: TickRecord) -> int:
    """Pages that the native path moved since the pass before."""
    return 0 if tick.between is None else len(tick.between.plan)


def _native(components: Components) -> PromoterStats | None:
    return None if components.fast_path is None else components.fast_path.stats()


def _short(usage: Mapping[int, NodeUsage], components: Components, tick: TickRecord) -> bool:
    """Whether a node that pages are demoted from has less free than it must have."""
    policy = components.policy
    settings = getattr(policy, "settings", None)
    if not isinstance(settings, WatermarkSettings):
        return True
    return any(
        usage[node].free_bytes < low_bytes(usage[node], settings)
        for tier in tick.tiers.tiers
        if tick.tiers.demotion_tier(tier.rank) is not None
        for node in tier.nodes
        if node in usage
    )
