# SPDX-License-Identifier: Apache-2.0
"""What the loop's ticks add to the figures.

Everything runs in the loop's thread. A tick costs a few array sums and one copy of the
values, however many pages moved; what costs time by the number of targets is done every
few seconds.
"""

from __future__ import annotations

import errno
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from tierd import __version__
from tierd.config.model import Config
from tierd.core.access import AccessSource
from tierd.core.migration import Direction, Fate, MigrationPlan, MigrationResult, SplitFate
from tierd.core.pagekey import PAGE_SIZE
from tierd.core.tiermap import TierMap
from tierd.migration.results import directed_flows
from tierd.observe.metrics import families as f
from tierd.observe.metrics.background import set_cost
from tierd.observe.metrics.values import OTHER, Groups, Labels, Values, label, summary_of
from tierd.observe.tick_record import TickRecord
from tierd.observe.totals import Totals

SLOW_NS: Final = 5 * 10**9
"""Figures about single targets are brought up to date at most this often."""
UNKNOWN: Final = "unknown"
DONE: Final = SplitFate.DONE.name.lower()
NOT_SPLIT: Final = tuple(fate.name.lower() for fate in SplitFate if fate is not SplitFate.DONE)


class Observed(Protocol):
    """What the metrics need of the running service (`tierd.engine.Service`)."""

    paused: bool
    work: Any
    """`tierd.engine.tick.Tick`."""

    @property
    def totals(self) -> Totals:
        """Counts since the start."""

    @property
    def config(self) -> Config:
        """The configuration in force."""

    @property
    def components(self) -> Any:
        """The loop's components."""


class MetricsState:
    """An observer of ticks that keeps all values; it asks the service in the loop's thread only."""

    def __init__(
        self,
        service: Observed,
        *,
        dry_run: bool = False,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._service = service
        self._wall = wall
        self._tiers: TierMap | None = None
        self._names: list[str] = []
        self._tier_of: dict[int, str] = {}
        self._groups = Groups(service.config.metrics.groups)
        self._group_of: dict[int, str] = {}
        self._slow_due_ns = 0
        self.values = Values()
        now = wall()
        values = self.values
        values.set(f.BUILD_INFO, 1, __version__)
        values.set(f.START_TIME, now)
        values.set(f.DRY_RUN, dry_run)
        values.set(f.RELOAD_OK, 1)  # the configuration it started with
        values.set(f.RELOAD_TIME, now)
        for result in ("success", "failure"):
            values.add(f.RELOADS, 0, result)
        for fate in Fate:
            values.add(f.FATES, 0, fate.name.lower())
        for split in NOT_SPLIT:
            values.add(f.SPLITS_FAILED, 0, split)
        values.add(f.FOLIOS_SPLIT, 0)
        values.replace(f.MOVE_PAGE, summary_of(service.totals.move_page_ns))
        for direction in Direction:
            values.add(f.PLANNED_PAGES, 0, direction.name.lower())
        values.publish()

    def on_tick(self, tick: TickRecord) -> None:
        """Take a tick in and publish."""
        if tick.tiers is not self._tiers:
            self._tiers = tick.tiers
            self._names = [label(tier.name) for tier in tick.tiers.tiers]
            named = list(zip(self._names, tick.tiers.tiers, strict=True))
            self._tier_of = {node: name for name, tier in named for node in tier.nodes}
            self.values.replace(f.RANK, {(name,): float(tier.rank) for name, tier in named})
        self._loop(tick)
        self._capacity(tick)
        self._sources(tick)
        self._plan(tick.plan)
        state = self._service.components.policy.state
        if state is not None:
            set_cost(self.values, self._names, state)
        for report in (tick.between, tick.report):
            if report is not None:
                self._report(report)
        if tick.time_ns >= self._slow_due_ns:
            self._slow_due_ns = tick.time_ns + SLOW_NS
            self._slow()
        self.values.publish()

    def reload_result(self, ok: bool, reason: str = "") -> None:
        """A reload of the configuration ended."""
        del reason
        values = self.values
        values.add(f.RELOADS, 1, "success" if ok else "failure")
        values.set(f.RELOAD_OK, ok)
        if ok:
            values.set(f.RELOAD_TIME, self._wall())
        values.publish()

    def _loop(self, tick: TickRecord) -> None:
        values, now = self.values, self._wall()
        values.add(f.TICKS, 1)
        values.observe_tick((tick.end_ns - tick.time_ns) / 1e9)
        values.set(f.LAST_TICK, now)
        if tick.budget is not None:
            values.set(f.LAST_DECISION, now)
            values.add(f.BUDGET_GRANTED, tick.budget.move_bytes)
        values.set(f.BUDGET_RATE, self._service.config.migration.rate_limit_bytes_per_s)
        values.set(f.BUDGET_SHARE, self._service.work.decision.budget.in_force)
        account = self._service.work.account
        values.set(f.STANDS_DOWN, account.stands)
        values.set(f.STOOD_DOWN, account.times)
        part, _ = account.part
        values.replace(f.PART_SEEN, {} if math.isnan(part) else {(): part})
        values.set(f.TARGETS, tick.targets)
        values.add(f.WALKED, tick.located + tick.walked)

    def _capacity(self, tick: TickRecord) -> None:
        capacity: dict[Labels, float] = {}
        free: dict[Labels, float] = {}
        reserve: dict[Labels, float] = {}
        for rank, tier in enumerate(tick.tiers.tiers):
            for node in tier.nodes:
                key = (self._names[rank], str(node))
                usage = tick.usage.get(node)
                if usage is None:
                    capacity[key] = float(tick.tiers.nodes[node].size_bytes)
                    continue
                capacity[key] = float(usage.total_bytes)
                free[key] = float(usage.free_bytes)
                reserve[key] = float(usage.reserve_bytes)
        self.values.replace(f.CAPACITY, capacity)
        self.values.replace(f.FREE, free)
        self.values.replace(f.RESERVE, reserve)

    def _sources(self, tick: TickRecord) -> None:
        values, selector = self.values, self._service.components.sources
        for batch in tick.batches:
            values.add(f.SAMPLES, len(batch), batch.source)
            values.add(f.LOST, batch.lost, batch.source)
        active = {name: float(name == tick.source) for name in selector.names}
        for name in active:
            values.add(f.SAMPLES, 0, name)
            values.add(f.LOST, 0, name)
        values.replace(f.SOURCE_ACTIVE, {(name,): value for name, value in active.items()})
        values.replace(
            f.SOURCE_AVAILABLE, {(name,): float(name not in selector.reasons) for name in active}
        )
        sampling_interval: dict[Labels, float] = {}
        period: dict[Labels, float] = {}
        source: AccessSource | None = selector.active
        if source is not None and (seen := source.seen) is not None:
            sampling_interval[(source.name,)] = seen.sampling_interval_s
            period[(source.name,)] = seen.period_s
        if source is not None:
            self._dropped(source)
        totals = self._service.totals
        values.set(f.PHASE_CHANGES, totals.scan_phase_changes, "scan")
        values.set(f.PHASE_CHANGES, totals.epoch_restarts, "device")
        values.replace(f.SAMPLING_INTERVAL, sampling_interval)
        values.replace(f.SCAN_INTERVAL, period)

    def _dropped(self, source: AccessSource) -> None:
        """What the source in use did not see, or did not count."""
        for family, count in (
            (f.REPORTS_LEFT_OUT, source.left_out),
            (f.UNWATCHED, source.unwatched),
            (f.PASSED_OVER, source.passed_over),
        ):
            if count is not None:
                self.values.set(family, count, source.name)
        for reason, pages in source.untracked.items():
            self.values.set(f.UNTRACKED, pages, reason)

    def _plan(self, plan: MigrationPlan) -> None:
        for reason, count in plan.notes.items():
            if reason not in ("paused", "stands_down", "control"):
                self.values.add(f.HELD_BACK, count, reason.replace(" ", "_"))
        totals = self._service.totals
        for direction, pages in (
            (Direction.PROMOTE, totals.planned_promotions),
            (Direction.DEMOTE, totals.planned_demotions),
        ):
            self.values.set(f.PLANNED_PAGES, pages, direction.name.lower())

    def _report(self, report: MigrationResult) -> None:
        values, totals = self.values, self._service.totals
        for flow in directed_flows(report):
            direction = flow.direction.name.lower()
            tiers = [self._tier_of.get(node, UNKNOWN) for node in (flow.source, flow.dest)]
            values.add(f.MOVED_PAGES, flow.bytes // PAGE_SIZE, direction, *tiers)
            values.add(f.MOVED_BYTES, flow.bytes, direction, *tiers)
            group = self._groups.name(self._group_of.get(flow.target, OTHER))
            values.add(f.GROUP_MOVED, flow.bytes, group, direction)
        for fate, count in totals.fates.items():
            values.set(f.FATES, count, fate)
        for number, count in report.errors.items():
            values.add(f.ERRORS, count, errno.errorcode.get(number, str(number)))
        for split, count in totals.splits.items():
            if split in NOT_SPLIT:
                values.set(f.SPLITS_FAILED, count, split)
        values.set(f.FOLIOS_SPLIT, totals.splits[DONE])
        values.set(f.RETRIES, totals.retries)
        values.replace(f.MOVE_PAGE, summary_of(totals.move_page_ns))
        values.set(f.MOVE_SECONDS, totals.move_ns / 1e9)
        values.set(f.MOVE_CPU, totals.move_cpu_ns / 1e9)

    def _heat(self, table: Any) -> None:
        values, heat = self.values, table.stats()
        values.set(f.HEAT_PAGES, heat.tracked)
        values.set(f.HEAT_CAPACITY, heat.capacity)
        values.set(f.HEAT_BYTES, heat.memory_bytes)
        values.set(f.HEAT_HALF_LIFE, table.half_life_s)
        values.set(f.HEAT_EVICTED, heat.evicted)
        for reason, count in heat.dropped.items():
            values.set(f.HEAT_DROPPED, count, reason)

    def _slow(self) -> None:
        """What is counted target by target, and the heat table."""
        values, components = self.values, self._service.components
        resident: Counter[str] = Counter()
        processes: Counter[str] = Counter()
        rules: Counter[Labels] = Counter()
        rule_names = [label(rule.name) for rule in self._service.config.rules]
        tracked = components.tracking.targets
        self._group_of = {}
        for number, target in tracked.items():
            group = label(target.cgroup)
            self._group_of[number] = group
            resident[group] += target.rss_bytes
            processes[group] += 1
            rules[(_rule(rule_names, target.rule),)] += 1
        for gone in self._groups.choose(resident):
            values.forget(f.GROUP_MOVED, gone)
        values.replace(f.GROUP_RESIDENT, self._by_group(resident))
        values.replace(f.GROUP_TARGETS, self._by_group(processes))
        values.replace(f.RULE_TARGETS, {key: float(count) for key, count in rules.items()})
        by_group: Counter[Labels] = Counter()
        by_rule: Counter[Labels] = Counter()
        for number, target in tracked.items():
            group = self._groups.name(self._group_of[number])
            rule = _rule(rule_names, target.rule)
            for node, size in components.tracking.resident_bytes.of(number).items():
                tier = self._tier_of.get(node, UNKNOWN)
                by_group[group, tier] += size
                by_rule[rule, tier] += size
        values.replace(f.GROUP_TIER, {key: float(size) for key, size in by_group.items()})
        values.replace(f.RULE_TIER, {key: float(size) for key, size in by_rule.items()})
        pressure_monitor = components.cgroup_pressure
        values.set(f.STRAINED, len(pressure_monitor.strained))
        values.set(f.STRAIN_DEFERRED, pressure_monitor.deferred)
        values.set(f.FOLDED, self._groups.folded, "cgroup")
        values.set(f.LEFT_OUT, components.tracking.registry.left_out)
        values.set(f.NOT_ANSWERING, len(components.tracking.not_answering))
        values.set(f.UNJUDGED, len(components.tracking.registry.unjudged))
        values.set(f.GIVEN_UP, components.tracking.given_up)
        values.set(f.UNDO_FORGOTTEN, self._service.work.origins.dropped)
        values.set(f.NEW_PROCESSES_DROPPED, components.tracking.registry.new_processes.dropped)
        values.replace(
            f.SKIPPED,
            {(why.replace(" ", "_"),): float(n) for why, n in components.tracking.skipped.items()},
        )
        self._refusals(self._service.totals.tell_refusals())
        self._heat(components.heat)
        migrations = self._service.totals.migrations
        if migrations.watched:
            values.set(f.PING_PONG, migrations.ping_pong)
            values.set(f.HOST_MOVED, migrations.by_kernel, "kernel")
            values.set(f.HOST_MOVED, migrations.by_tierd, "tierd")
            values.set(f.HOST_MOVED, migrations.by_others, "others")

    def _refusals(self, told: Mapping[str, Any]) -> None:
        """What is left alone, as its pages or their mappings refuse to move."""
        if not told:
            return
        for result, pages in told["pages"].items():
            self.values.set(f.LEFT_ALONE, pages, result)
        for result, pages in told["retried"].items():
            self.values.set(f.TRIED_AGAIN, pages, result)
        self.values.set(f.REFUSALS_DROPPED, told["dropped"])
        self.values.set(f.LIMITED_TARGETS, len(told["limited"]))

    def _by_group(self, counts: Mapping[str, int]) -> dict[Labels, float]:
        found: Counter[Labels] = Counter()
        for group, count in counts.items():
            found[(self._groups.name(group),)] += count
        return {key: float(value) for key, value in found.items()}


def _rule(names: Sequence[str], index: int) -> str:
    """A rule's label value; "none" for what no rule matches."""
    return names[index] if 0 <= index < len(names) else "none"
