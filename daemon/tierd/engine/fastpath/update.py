# SPDX-License-Identifier: Apache-2.0
"""`FastPathUpdater`: the update that the fast path gets in each tick.

It consists of settings, and of orders: what may be moved, the demotion candidates, and each node's
promotion and demotion targets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tierd.core import bounds
from tierd.core.bounds import MAX_TARGETS
from tierd.core.migration import PROMOTE, MigrationPlan
from tierd.core.pagekey import PAGE_SIZE, VPN_BITS, BoolArray
from tierd.core.tiermap import NodeUsage, Tier, TierMap
from tierd.core.tuning import FAST_PATH, VALUE
from tierd.engine.tracking import Tracking
from tierd.hotness.view import HeatView, heat_of_rate
from tierd.migration.fastpath_update import SPAN, VICTIM, Orders, PromoterSettings, Way
from tierd.observe.explain import ServiceView
from tierd.policy import pageset
from tierd.policy.candidates import Candidates
from tierd.policy.inputs import Inputs
from tierd.policy.limits import Budget, Fairness, Groups
from tierd.policy.rule import break_even_s, least_rate, posterior_mean
from tierd.policy.watermark import WatermarkSettings
from tierd.sources.neoprof import NeoProfSource
from tierd.sources.sampling_interval import used_a_second
from tierd.topology.node_meminfo import read_held

Paths = Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]]
"""Node → nodes that its pages are promoted and demoted to, best first."""


def floor_bytes(usage: NodeUsage, policy: WatermarkSettings) -> int:
    """The bytes that the fast path leaves free: above the low watermark, where ticks demote."""
    gap = int((policy.high_watermark - policy.low_watermark) * usage.total_bytes)
    return usage.low_bytes(policy.low_watermark) + int(gap * FAST_PATH.free_floor_fraction)


def paths(tiers: TierMap) -> Paths:
    """Node → (promotion targets, demotion targets), best first."""
    found = {}
    for tier in tiers.tiers:
        above = tiers.promotion_tier(tier.rank)
        below = tiers.demotion_tier(tier.rank)
        for node in tier.nodes:
            up = tuple(tiers.nearest_first(node, above)) if above else ()
            down = tuple(tiers.nearest_first(node, below)) if below else ()
            found[node] = up, down
    return found


def ways(
    known: Paths,
    usage: Mapping[int, NodeUsage],
    policy: WatermarkSettings,
    held: Mapping[int, int],
) -> dict[int, Way]:
    """Node → targets of its pages, bytes that stay free on it, free bytes in CPUs' lists."""
    return {
        node: Way(*known.get(node, ((), ())), floor_bytes(figures, policy), held.get(node, 0))
        for node, figures in usage.items()
    }


def victims(
    heat: HeatView,
    tiers: TierMap,
    usage: Mapping[int, NodeUsage],
    policy: WatermarkSettings,
    wanted: int,
    *,
    groups: Groups | None = None,
) -> npt.NDArray[np.void]:
    """The coldest pages, `VICTIM`[≤ wanted], of the tiers that pages are promoted into.

    It is empty where free memory holds twice as many. Pages within a group's floor are left out.
    """
    above = promoted_into(tiers)
    nodes = [node for tier in above for node in tier.nodes]
    space = sum(
        max(0, usage[node].free_bytes - floor_bytes(usage[node], policy))
        for node in nodes
        if node in usage
    )
    if wanted <= 0 or space // PAGE_SIZE > 2 * wanted:
        return np.zeros(0, VICTIM)
    inputs = Inputs(heat, tiers, usage, Budget(0), groups=groups)
    fair = _fairness(groups, usage)
    find = Candidates(inputs, policy.min_residency_s, Counter(), fair)
    cold = pageset.concat([find.coldest(tier.nodes, wanted) for tier in above])
    if len(above) == 1:
        cold = pageset.take(cold, slice(0, wanted))
    else:
        cold = pageset.take(cold, np.argsort(cold.heat, kind="stable")[:wanted])
    found = np.zeros(len(cold), VICTIM)
    for name in VICTIM.names or ():
        found[name] = getattr(cold, name)
    return found


def promoted_into(tiers: TierMap) -> list[Tier]:
    """The tiers that pages are promoted into, by rank."""
    above = [tiers.promotion_tier(tier.rank) for tier in tiers.tiers]
    return [tier for tier in tiers.tiers if tier in above]


def over_group_limit(
    groups: Groups | None, tiers: TierMap, usage: Mapping[int, NodeUsage], slack_bytes: int
) -> BoolArray:
    """Targets, bool[MAX_TARGETS], whose caps or budgets admit less than `slack_bytes`.

    The fast path knows no groups: all that it may promote before its next update must fit.
    """
    fair = _fairness(groups, usage)
    if fair is None:
        return np.zeros(MAX_TARGETS, np.bool_)
    space = [fair.space(tier.nodes) for tier in promoted_into(tiers)]
    least = np.min(space, axis=0) if space else np.full(len(fair), slack_bytes)
    return fair.targets(set(np.flatnonzero(least < slack_bytes).tolist()), inside=True)


def within_quota(plan: MigrationPlan, left_bytes: int) -> tuple[MigrationPlan, int]:
    """A plan that promotes no more than `left_bytes`, and the number of deferred pages.

    Its first promotions stay, which are the hottest. The last demotions make room for the deferred
    promotions, so they are deferred too.
    """
    if len(plan) * PAGE_SIZE << int(plan.order.max(initial=0)) <= left_bytes:
        return plan, 0
    size = np.int64(PAGE_SIZE) << plan.order.astype(np.int64)
    up = plan.direction == PROMOTE
    waits = up & (np.cumsum(np.where(up, size, 0)) > left_bytes)
    missing = int(size[waits].sum())
    if not missing:
        return plan, 0
    from_end = np.cumsum(np.where(up, 0, size)[::-1])[::-1]
    keep = ~waits & (up | (from_end > missing))
    return plan.take(keep), missing // PAGE_SIZE


def _fairness(groups: Groups | None, usage: Mapping[int, NodeUsage]) -> Fairness | None:
    if groups is None:
        return None
    return Fairness(groups, {node: figures.total_bytes for node, figures in usage.items()})


@dataclass(frozen=True, slots=True)
class FastPathSettings:
    """Settings of the fast path.

    Attributes:
        enabled: false leaves all promotion to the ticks.
        quota_bytes_per_s: the most bytes promoted in any second.
        break_even_s: the least break-even time of a promotion.
    """

    enabled: bool
    interval_ns: int
    quota_bytes_per_s: int
    half_life_s: float
    break_even_s: float


class FastPathUpdater:
    """Makes settings and orders; parts of them are cached until their inputs change.

    Args:
        policy: the watermark policy's settings, whose rule the promoter applies.
    """

    def __init__(
        self,
        settings: FastPathSettings,
        policy: WatermarkSettings,
        *,
        heat: HeatView,
        tracking: Tracking,
        root: Path,
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._heat = heat
        self._tracking = tracking
        self._root = root
        self._known_spans: list[tuple[int, int]] = []
        self._spans: npt.NDArray[np.void] = np.empty(0, SPAN)
        self._tiers: TierMap | None = None
        self._known_paths: Paths = {}
        self._rate_of: tuple[TierMap, frozenset[int]] | None = None
        self._a_second = 0.0
        """Requests a second that pay for a page's moves in one second, for `_rate_of`."""

    def least_rate(self, source: NeoProfSource, tiers: TierMap, phase_age_s: float) -> float:
        """Requests a second that a page must have to be promoted, now."""
        nodes = frozenset(node for node, share in source.coverage.covered.items() if share > 0)
        known = self._rate_of
        if known is None or known[0] is not tiers or known[1] != nodes:
            self._rate_of = tiers, nodes
            self._a_second = least_rate(tiers, nodes, 1.0)
        return self._a_second / break_even_s(self._settings.break_even_s, phase_age_s)

    def settings(self, source: NeoProfSource | None, rate: float = 0.0) -> PromoterSettings:
        """Its settings for reports of this source; None if it shall only record moves.

        `rate`: requests a second that pay for a promotion.
        """
        policy = self._policy
        if source is None:
            dilution = rate_cap = visits = 1.0
            copy_requests = 0.0
        else:
            dilution, rate_cap, visits = source.dilution, source.rate_cap, source.visits
            copy_requests = source.copy_requests
        return PromoterSettings(
            interval_ns=self._settings.interval_ns,
            quota_bytes_per_s=self._settings.quota_bytes_per_s,
            residency_s=policy.min_residency_s,
            bounce_s=FAST_PATH.memory_s,
            patience_s=FAST_PATH.memory_s,
            margin=policy.margin,
            confidence=policy.confidence,
            heat_s=heat_of_rate(self._settings.half_life_s) * dilution,
            rate_cap=rate_cap,
            visits=visits,
            copy_requests=copy_requests,
            least_rate=rate,
            return_rate=0.0
            if rate <= 0
            else self._a_second / (VALUE.phase_age_fraction * self._settings.break_even_s),
            expected=rate > 0 and source is not None and used_a_second(source.seen) > 0,
        )

    def orders(
        self, source: NeoProfSource, around: ServiceView, came_in: int, groups: Groups | None
    ) -> Orders:
        """Its orders; `came_in` pages were promoted since the last ones."""
        tiers, usage = around.tiers, around.usage
        wanted = self._victims_wanted(source, came_in)
        cold = victims(self._heat, tiers, usage, self._policy, wanted, groups=groups)
        return Orders(
            spans=self._movable(around, groups),
            pids=self._tracking.pids,
            victims=self._with_posterior_mean(source, cold),
            epochs={
                number: (epoch.start_ns, epoch.before_ns, epoch.scale)
                for number, epoch in source.epochs.items()
            },
            ways=ways(self._paths(tiers), usage, self._policy, self._held()),
        )

    def _held(self) -> Mapping[int, int]:
        """Free bytes in CPUs' page lists, by node."""
        return read_held(self._root)

    def _victims_wanted(self, source: NeoProfSource, came_in: int) -> int:
        """Twice the promotions since the last tick; 0 while the source finds no cold pages."""
        if not source.knows_cold:
            return 0
        return min(max(FAST_PATH.min_victims, 2 * came_in), self._policy.max_moves_per_tick)

    def _movable(self, around: ServiceView, groups: Groups | None) -> npt.NDArray[np.void]:
        """The ranges that it may move, `SPAN`[n]: all but targets close to their group's cap."""
        known = self._tracking.spans()
        if known != self._known_spans:
            self._known_spans, self._spans = known, np.array(known, SPAN)
        if groups is None:
            return self._spans
        slack = int(self._settings.quota_bytes_per_s * FAST_PATH.group_slack_s)
        held = over_group_limit(groups, around.tiers, around.usage, slack)
        target = (self._spans["start"] >> np.uint64(VPN_BITS)).astype(np.int64)
        return self._spans[~held[target]]

    def _paths(self, tiers: TierMap) -> Paths:
        if tiers is not self._tiers:
            self._tiers, self._known_paths = tiers, paths(tiers)
        return self._known_paths

    def _with_posterior_mean(
        self, source: NeoProfSource, cold: npt.NDArray[np.void]
    ) -> npt.NDArray[np.void]:
        """Demotion candidates with the heat that they reach in the long run, as promotions have it.

        Heat begins at 0 and grows for some half-lives. Without this, a page would seem far colder
        than one that is used as much and has been tracked for longer. For scans it is the
        posterior mean (`tierd.policy.rule`).
        """
        half_lives = max(source.taught_s, bounds.LEAST_AGE_S) / self._settings.half_life_s
        grown = 1 - 0.5**half_lives
        long_run = heat_of_rate(self._settings.half_life_s) * source.dilution
        mean = used_a_second(source.seen) * long_run
        heat = cold["heat"]
        cold["heat"] = posterior_mean(heat, grown, mean) if mean > 0 else heat / grown
        return cold
