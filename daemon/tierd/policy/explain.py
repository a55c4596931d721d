# SPDX-License-Identifier: Apache-2.0
"""What the policies decided about one page, and why: `tierd explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierd.core.migration import Direction, Reason
from tierd.core.pagekey import F64Array
from tierd.core.tiermap import TierMap
from tierd.core.tuning import COST
from tierd.hotness.view import PageSet
from tierd.policy.demand import estimate, kinds_of
from tierd.policy.inputs import Traffic
from tierd.policy.rule import Contest, Verdict
from tierd.policy.scheduler import MigrationScheduler, Rule
from tierd.policy.tiermodel import TierModel

if TYPE_CHECKING:
    from tierd.policy.watermark import Round


def verdict(work: Round, page: PageSet) -> Verdict:
    """The decision of the policy `watermark` about one folio, on a node that a tier has."""
    plan, heat = work.plan(), float(page.heat[0])
    at = np.flatnonzero(plan.page == page.page[0])
    if not len(at):
        return _why_not(work, page)
    direction, dest = Direction(int(plan.direction[at[0]])), int(plan.dest[at[0]])
    if direction is Direction.DEMOTE:
        return Verdict(Reason.MAKES_ROOM, heat, direction, dest)
    won = ((victims, pages.page == page.page[0]) for pages, victims in work.won)
    victim = next((float(victims[which][0]) for victims, which in won if which.any()), None)
    terms = None if victim is None else work.rule.terms(heat, victim)
    return Verdict(Reason.HOTTER_THAN_THE_COLDEST, heat, direction, dest, victim, terms)


def _why_not(work: Round, page: PageSet) -> Verdict:
    """The reason for which the plan leaves a folio where it is."""
    node, heat = int(page.node[0]), float(page.heat[0])
    above = work.inputs.tiers.promotion_tier(work.inputs.tiers.tier_of(node).rank)
    if node in work.inputs.exchanged and not page.order[0]:
        return Verdict(Reason.FAST_PATH, heat)
    if float(page.idle_s[0]) < work.settings.min_residency_s:
        return Verdict(Reason.MOVED_LATELY, heat)
    if above is None:
        return Verdict(Reason.TOP_TIER, heat)
    if not heat > work.rule.least:
        return Verdict(Reason.NOT_HOTTER, heat, victim=0.0, terms=work.rule.terms(heat, 0.0))
    if work.fair is not None and not work.fair.may_enter(page, above.nodes)[0]:
        return Verdict(Reason.GROUP_LIMIT, heat)
    contest = work.contests.get(above.rank, Contest(None, None))
    if contest.refused is not None and heat <= contest.refused:
        if contest.victim is None:
            return Verdict(Reason.NO_ROOM, heat)
        terms = work.rule.terms(heat, contest.victim)
        return Verdict(Reason.NOT_HOTTER, heat, victim=contest.victim, terms=terms)
    if work.fair is not None and not work.fair.may_move(page)[0]:
        return Verdict(Reason.GROUP_LIMIT, heat)
    return Verdict(Reason.NO_ROOM if work.notes["no room"] else Reason.OVER_QUOTA, heat)


def sentence(
    page: PageSet,
    tiers: TierMap,
    *,
    traffic: Traffic,
    model: TierModel,
    weight: F64Array,
    rule: Rule,
    confidence: float,
) -> str:
    """What the rule says of one page on a known node, by the last decision's model and traffic."""
    here = tiers.tier_of(int(page.node[0]))
    demand = estimate(page, traffic)
    kinds = kinds_of(page, np.array([here.rank]), demand, confidence)
    space = np.zeros(len(tiers.tiers), np.int64)
    net = MigrationScheduler(model, kinds, weight, space=space, spare=space, rule=rule).net()[0]
    loaded = model.loaded_ns(model.load, weight)
    times = ", ".join(
        f"{tier.name} {loaded[tier.rank]:.0f} ns "
        f"({model.load[tier.rank] / model.bytes_per_s[tier.rank]:.0%} used, "
        f"by {model.source[tier.rank]})"
        for tier in tiers.tiers
    )
    streamed = float(np.clip((1 - demand.share[0]) / (1 - 1 / COST.stream_lines), 0, 1))
    text = (
        f"{demand.lines[0]:.3g} lines a second, {streamed:.0%} of them streamed or written; "
        f"loaded latencies: {times}; "
    )
    best = int(net.argmax())
    if net[best] <= 0 or not np.isfinite(net[best]):
        return text + f"it stays on {here.name}: no move saves more than it costs"
    return text + (
        f"on {tiers.tiers[best].name} it would save {net[best] * 1e6:.3g} us over "
        f"{rule.horizon_s:g} s, beyond what the move costs: it moves when room and budget allow, "
        "if what would give way loses less"
    )
