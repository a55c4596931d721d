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
from typing import Final

from tierd.core.tiermap import TierMap

MOVE_S: Final = 1e-5
"""CPU time that the move of a 4 KiB page takes, with the work around it: between 9 and 12 us in the
benchmark, by two ways to count (docs/research/lab-notebook/trials.md). The value is chosen and not
measured where tierd runs, because in a simulated machine moves are as much slower as programs are,
while what they save is computed from the latencies of the tiers. `REMAP_S` of the policy `cost` is
less: it leaves out the copy."""
MOVES: Final = 2
PART: Final = 0.125
"""Of the time for which the hot set has stood still."""


RETURN: Final = 0.125
"""Of the least time to pay in: who was demoted just now and pays in so little left by mistake. It
may come back before its least residency is over: should it leave again, its way there and back
has paid by then."""


def break_even_s(least_s: float, stood_still_s: float) -> float:
    """The time in which a promotion must pay, s; never less than `least_s`."""
    return max(least_s, PART * stood_still_s)


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
    return MOVES * MOVE_S / (saved_ns * 1e-9 * pays_in_s) if saved_ns > 0 else 0.0
