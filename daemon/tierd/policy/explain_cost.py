# SPDX-License-Identifier: Apache-2.0
"""The cost rule in words, for one page: `tierd explain`."""

from __future__ import annotations

import numpy as np

from tierd.core.tiermap import TierMap
from tierd.core.tuning import COST
from tierd.hotness.view import PageSet
from tierd.policy.demand import estimate, kinds_of
from tierd.policy.scheduler import MigrationScheduler, Rule
from tierd.policy.tiermodel import F64Array, TierModel
from tierd.policy.traffic import Traffic


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
    """What the rule says of one page on a known node.

    Args:
        page: one folio.
        tiers: the map.
        traffic, model, weight, rule, confidence: of the last decision.
    """
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
