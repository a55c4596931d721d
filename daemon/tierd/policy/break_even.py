# SPDX-License-Identifier: Apache-2.0
"""How often a page must be asked for to be worth the moves that it takes.

A page that comes into a full tier costs two moves, its own and that of the page which leaves. Each
of its requests is answered sooner then by the difference of the tiers' latencies, if requests wait
one after another, as those of a pointer chase do. What saves less than it costs within the time
that it is given is left where it is, however much hotter it may be than a page that nobody uses.

How long requests go on nobody knows. What has lasted is likely to last as long again (Lindy's law):
a page is given a part of the time for which the hot set has stood still. So that after a change
only what is asked for most comes in, and in hours of rest all that is hotter by anything. It is a
small part, for who leaves is not known to be idle: looks find one use where cards count several.
"""

from __future__ import annotations

from collections.abc import Collection

from tierd.core.tiermap import TierMap
from tierd.core.tuning import VALUE


def break_even_s(least_s: float, stood_still_s: float) -> float:
    """The time in which a promotion must pay, s; never less than `least_s`."""
    return max(least_s, VALUE.phase_age_fraction * stood_still_s)


def least_rate(tiers: TierMap, nodes: Collection[int], pays_in_s: float) -> float:
    """Requests a second that make a page's promotion pay within `pays_in_s`.

    Args:
        tiers: latencies, ns.
        nodes: where pages are promoted from; of those that gain most by it.
        pays_in_s: time to pay in.

    Returns:
        0 where it is not known what is saved.
    """
    saved_ns = 0.0
    for tier in tiers.tiers:
        above = tiers.promotion_tier(tier.rank)
        if above is not None and not set(nodes).isdisjoint(tier.nodes):
            saved_ns = max(saved_ns, tier.latency_ns.value - above.latency_ns.value)
    return (
        VALUE.moves_per_exchange * VALUE.move_s / (saved_ns * 1e-9 * pays_in_s)
        if saved_ns > 0
        else 0.0
    )
