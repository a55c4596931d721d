# SPDX-License-Identifier: Apache-2.0
"""`DecisionContext`: what the policy gets besides heat (budget, groups, traffic), and its call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tierd.config.model import Config
from tierd.core.migration import MigrationPlan, MigrationResult
from tierd.core.tiermap import NodeUsage, TierMap
from tierd.core.tuning import PRESSURE
from tierd.engine.components import Components
from tierd.engine.groups import Shares
from tierd.hotness.view import PageSet
from tierd.policy.inputs import Inputs, Policy, Traffic
from tierd.policy.limits import Budget, Groups, Pressure, RateLimiter, RateLimiterSettings
from tierd.policy.rule import Verdict


class DecisionContext:
    """Asks the policy for a plan in each tick.

    Attributes:
        budget: the migration rate limit and its back-off.
        granted: the budget of the last decision; None if there was none.
        groups: the groups of the last decision, if there are rules.
        traffic: the traffic at the last decision, where the policy uses it.
        exchanged: nodes whose pages the fast path exchanged at the last decision.
    """

    def __init__(self, config: Config) -> None:
        self.budget = RateLimiter(_guards(config))
        self.granted: Budget | None = None
        self.groups: Groups | None = None
        self.traffic: Traffic | None = None
        self.exchanged: frozenset[int] = frozenset()
        self._shares = Shares(config.rules)
        self._rules = config.rules
        self._last_ns = 0
        self._decided = self._limited = False
        self._inputs: Inputs | None = None

    def configure(self, config: Config) -> None:
        """Use other settings from the next decision on; a back-off goes on."""
        if config.rules != self._rules:
            self._shares, self._rules = Shares(config.rules), config.rules
        self.budget.configure(_guards(config))

    def stand(self, now_ns: int) -> None:
        """No decision is made in this tick."""
        self._last_ns, self._decided = now_ns, True
        self.granted = self.groups = self.traffic = self._inputs = None
        self.exchanged = frozenset()

    def explain(self, policy: Policy, page: PageSet) -> Verdict | str:
        """The next decision about a page, on the host's state at the last decision."""
        if self._inputs is None:
            return ""
        node = int(page.node[0])
        if not any(node in tier.nodes for tier in self._inputs.tiers.tiers):
            return f"it stays: node {node} was in no tier at the last decision"
        return policy.explain(self._inputs, page)

    def spent(self, components: Components, report: MigrationResult) -> None:
        """Subtract what was moved from the groups' budgets, and see whose moves failed."""
        self._shares.spent(components.tracking.rules, report)
        self.budget.see(report)

    def _limit(self, components: Components) -> None:
        """Have heat find no more pages of targets whose moves failed than they may move."""
        limits = {} if self.granted is None else self.budget.limits(self.granted)
        if limits or self._limited:
            numbers, pages = np.array(list(limits.items()), np.uint64).reshape(-1, 2).T
            components.heat.limit(numbers, pages)
        self._limited = bool(limits)

    def grant(
        self,
        config: Config,
        components: Components,
        now_ns: int,
        migrations: Any = None,
    ) -> tuple[Budget, float]:
        """What may move now, and the seconds that it is for; `migrations` as for `decide`."""
        tick_s = config.loop.interval_ns / 1e9
        elapsed = (now_ns - self._last_ns) / 1e9 if self._decided else tick_s
        self._last_ns, self._decided = now_ns, True
        # A late tick does not get the budget of the time that it missed.
        elapsed = min(elapsed, 2 * tick_s)
        pressure = components.pressure_monitor.read(now_ns, migrations)
        return self.budget.next(elapsed, pressure), elapsed

    def decide(
        self,
        config: Config,
        components: Components,
        *,
        tiers: TierMap,
        usage: Mapping[int, NodeUsage],
        last: MigrationResult | None,
        now_ns: int,
        migrations: Any = None,
    ) -> MigrationPlan:
        """The policy's plan.

        Args:
            migrations: totals of all page migrations, for `PressureMonitor.read`.
        """
        self.granted, elapsed = self.grant(config, components, now_ns, migrations)
        self._limit(components)
        self.groups = self._shares.groups(
            components.tracking.rules,
            components.tracking.resident_bytes,
            elapsed,
            _strained(config, components, last, now_ns),
            int(self.granted.move_bytes * PRESSURE.min_pressure_rate_fraction),
        )
        loads = components.loads
        self.traffic = (
            None
            if loads is None
            else loads.read(now_ns, sorted(tiers.nodes), components.sources.active)
        )
        fast_path = components.fast_path
        self.exchanged = frozenset() if fast_path is None else fast_path.exchanged
        self._inputs = Inputs(
            heat=components.heat,
            tiers=tiers,
            usage=usage,
            budget=self.granted,
            last=last,
            groups=self.groups,
            traffic=self.traffic,
            exchanged=self.exchanged,
        )
        return components.policy.decide(self._inputs)


def _strained(
    config: Config, components: Components, last: MigrationResult | None, now_ns: int
) -> set[int]:
    """Targets whose control groups wait for memory or a CPU."""
    limits, tracking = config.migration, components.tracking
    pressure_monitor = components.cgroup_pressure
    if last is not None:
        pressure_monitor.note_moves(last)

    def group_of() -> dict[int, str]:
        return {number: target.cgroup for number, target in tracking.targets.items()}

    groups = pressure_monitor.read(now_ns, group_of, limits.memory_pressure, limits.cpu_pressure)
    return {n for n, group in group_of().items() if group in groups} if groups else set()


def _guards(config: Config) -> RateLimiterSettings:
    limits = config.migration
    most = Pressure(limits.memory_pressure, limits.cpu_pressure, limits.max_ping_pong_ratio)
    return RateLimiterSettings(limits.rate_limit_bytes_per_s, limits.max_failure_ratio, most)
