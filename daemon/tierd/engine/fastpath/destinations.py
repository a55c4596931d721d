# SPDX-License-Identifier: Apache-2.0
"""What the native path is told: where pages of a node go, and which may leave fast ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tierd.core.migration import PROMOTE, MigrationPlan
from tierd.core.nodes import NodeUsage
from tierd.core.pagekey import MAX_TARGETS, PAGE_SIZE
from tierd.core.tiermap import Tier, TierMap
from tierd.core.tuning import FAST_PATH
from tierd.hotness.view import HeatView
from tierd.migration.fastpath_update import VICTIM, Way
from tierd.policy import pageset
from tierd.policy.candidates import Candidates
from tierd.policy.group_limits import BoolArray, Fairness, Groups
from tierd.policy.inputs import Budget, Inputs
from tierd.policy.watermark import WatermarkSettings

Paths = Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]]
"""Node → nodes that its pages are promoted and demoted to, best first."""
MOVE_COLUMNS = ("page", "order", "source", "dest", "direction", "heat")


def floor_bytes(usage: NodeUsage, policy: WatermarkSettings) -> int:
    """What the fast path leaves free: above the low watermark, or ticks would relieve the node."""
    gap = int((policy.high_watermark - policy.low_watermark) * usage.total_bytes)
    return usage.low_bytes(policy.low_watermark) + int(gap * FAST_PATH.free_floor_fraction)


def paths(tiers: TierMap) -> Paths:
    """Where each node's pages go: node → (nodes above, nodes below), best first."""
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
    """Where each node's pages go, what stays free on it, and what CPUs hold of its free pages."""
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

    Empty where free room holds twice as many. Pages that floors hold are none.
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


def held_back(
    groups: Groups | None, tiers: TierMap, usage: Mapping[int, NodeUsage], slack_bytes: int
) -> BoolArray:
    """Targets, bool[MAX_TARGETS], that caps or budgets leave less than `slack_bytes` to come in.

    The native path knows no groups: what it could bring in before its next orders must fit.
    """
    fair = _fairness(groups, usage)
    if fair is None:
        return np.zeros(MAX_TARGETS, np.bool_)
    space = [fair.space(tier.nodes) for tier in promoted_into(tiers)]
    least = np.min(space, axis=0) if space else np.full(len(fair), slack_bytes)
    return fair.targets(set(np.flatnonzero(least < slack_bytes).tolist()), inside=True)


def within_quota(plan: MigrationPlan, left_bytes: int) -> tuple[MigrationPlan, int]:
    """A plan that promotes no more than so much, and the pages of it that must wait.

    The first of its promotions stay, which are the hottest. What was to be demoted last made
    room for those that wait, and stays where it is.
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
    kept = {name: getattr(plan, name)[keep] for name in MOVE_COLUMNS}
    return MigrationPlan(**kept, notes=plan.notes, split=plan.split), missing // PAGE_SIZE


def _fairness(groups: Groups | None, usage: Mapping[int, NodeUsage]) -> Fairness | None:
    if groups is None:
        return None
    return Fairness(groups, {node: figures.total_bytes for node, figures in usage.items()})
