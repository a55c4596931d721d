# SPDX-License-Identifier: Apache-2.0
"""Weights by which new pages are spread over nodes: the demand balance knob for allocation.

New pages that a program lets the kernel interleave are used alike, or nobody knows how. So a
node gets of them what it could serve more until all tiers are equally used: with loads as they
are, bandwidth times (level - used) for the level at which that is the present load and half as
much again. A node without room gets the least there is. Weights go towards that in steps, as
what came of the last ones is seen only when programs have allocated.

Source: Documentation/ABI/testing/sysfs-kernel-mm-mempolicy-weighted-interleave (1 to 255).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tierd.core.nodes import NodeUsage
from tierd.core.tiermap import TierMap
from tierd.core.tuning import BANDWIDTH
from tierd.policy.tiermodel import F64Array, TierModel


def wished(
    tiers: TierMap, model: TierModel, usage: Mapping[int, NodeUsage], low_watermark: float
) -> dict[int, float]:
    """Shares of new pages by node, sum 1; empty where no node has room."""
    wide, load = model.bytes_per_s, model.load
    more = BANDWIDTH.interleave_probe_load * max(float(load.sum()), 0.1 * float(wide.sum()))
    ask = np.maximum(_level(wide, load, more) * wide - load, 0.0)
    shares: dict[int, float] = {}
    for tier in tiers.tiers:
        own = [node for node in tier.nodes if _has_space(usage.get(node), low_watermark)]
        width = {node: tiers.nodes[node].bandwidth_bytes_per_s.value for node in own}
        every = sum(each for each in width.values() if each > 0)
        for node in own:
            part = width[node] / every if every > 0 else 1 / len(own)
            shares[node] = float(ask[tier.rank]) * max(part, 0.0)
    total = sum(shares.values())
    return {node: share / total for node, share in shares.items()} if total > 0 else {}


def _level(wide: F64Array, load: F64Array, more: float) -> float:
    """The utilisation to which `more` load fills tiers, the least used first."""
    used = load / wide
    order = np.argsort(used, kind="stable")
    width = np.cumsum(wide[order])
    held = np.cumsum(load[order])
    level = (more + held) / width
    # The first k tiers, if that leaves them below the next one.
    following = np.append(used[order][1:], np.inf)
    return float(level[int(np.argmax(level <= following))])


def _has_space(usage: NodeUsage | None, low_watermark: float) -> bool:
    if usage is None:
        return False
    return usage.free_bytes > usage.low_bytes(low_watermark)


def weights(before: Mapping[int, float], wish: Mapping[int, float]) -> dict[int, float]:
    """Shares a step from `before` towards `wish`, for all nodes of either."""
    nodes = sorted({*before, *wish})
    if not before:
        return {node: wish.get(node, 0.0) for node in nodes}
    return {
        node: before.get(node, 0.0)
        + min(
            BANDWIDTH.interleave_max_step,
            max(-BANDWIDTH.interleave_max_step, wish.get(node, 0.0) - before.get(node, 0.0)),
        )
        for node in nodes
    }


def integers(shares: Mapping[int, float]) -> dict[int, int]:
    """The kernel's weights, 1 to 255, for shares."""
    return {
        node: min(255, max(1, round(share * BANDWIDTH.interleave_weight_sum)))
        for node, share in shares.items()
    }
