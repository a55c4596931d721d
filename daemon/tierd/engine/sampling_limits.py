# SPDX-License-Identifier: Apache-2.0
"""What sources are told of fast memory and of the phase, and heat of the sampling interval.

Heat counts the accesses that scans can see. When a sampling interval becomes shorter or longer,
what was counted with the last one fades or grows by as much, so that it can be compared.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Protocol

from tierd.core.access import AccessSource, AdaptiveSource, EventDrivenSource
from tierd.core.nodes import NodeUsage
from tierd.core.tiermap import TierMap
from tierd.core.tuning import INTERVAL
from tierd.engine.groups import ResidentBytes
from tierd.policy.rule import least_rate

log = logging.getLogger(__name__)


class Fading(Protocol):
    """Heat, as far as it is needed here."""

    def fade(self, half_lives: float) -> None:
        """All heat decays by so much at once, or grows."""
        ...


def space_fraction(
    resident_bytes: ResidentBytes, tiers: TierMap, usage: Mapping[int, NodeUsage], kept: float
) -> float | None:
    """The share of the targets' pages that fits into tiers which pages can leave, 0 to 1.

    None while it is not known what they have.

    Args:
        residents: what the targets have where.
        tiers: the host's.
        usage: how full nodes are.
        kept: share of a node that stays free.
    """
    held = resident_bytes.total()
    every = sum(held.values())
    if not every:
        return None
    fast = [
        node
        for tier in tiers.tiers
        if tiers.demotion_tier(tier.rank) is not None
        for node in tier.nodes
    ]
    space = sum(held.get(node, 0) for node in fast)
    for node in fast:
        if (own := usage.get(node)) is not None:
            keeps = max(own.reserve_bytes, int(kept * own.total_bytes))
            space += max(0, own.free_bytes - keeps)
    return min(1.0, space / every)


def max_sampling_interval_us(tiers: TierMap, least_s: float, stood_still_s: float) -> int | None:
    """The mean time between two uses of a page that is only just worth its moves, in us.

    Scans with this sampling interval tell the pages that are worth their moves best from others.
    Longer ones find more pages, and those that are used far more among them no sooner. The interval
    grows with the age of the phase, an eighth of which moves have to pay in: longer ones find less
    of a hot set that changes. It grows by doubling, for the module forgets what it saw with a very
    different interval.

    Args:
        tiers: the host's.
        least_s: time in which promotions must pay, at least (`policy.break_even_time`).
        stood_still_s: age of the phase, as far as is known.

    Returns:
        None where it is not known what a use saves.
    """
    lower = [tier for tier in tiers.tiers if tiers.promotion_tier(tier.rank) is not None]
    rate = least_rate(tiers, [node for tier in lower for node in tier.nodes], least_s)
    if rate <= 0:
        return None
    doubled = int(math.log2(max(least_s, INTERVAL.max_phase_fraction * stood_still_s) / least_s))
    return round(1e6 / rate) << doubled


def bounds_us(tiers: TierMap, least_s: float, stood_still_s: float) -> tuple[int | None, int]:
    """`max_sampling_interval_us`, and how long changes may go unseen, in us."""
    longest_us = max_sampling_interval_us(tiers, least_s, stood_still_s)
    return longest_us, round(1e6 * max(least_s, INTERVAL.max_phase_fraction * stood_still_s))


class SamplingLimits:
    """See the module's text; called once a pass, before its batches go into heat."""

    def __init__(self, heat: Fading, resident_bytes: ResidentBytes) -> None:
        self._heat = heat
        self._residents = resident_bytes
        self._source = ""
        self._dilution = 1.0

    def aim(
        self,
        source: AccessSource | None,
        tiers: TierMap,
        usage: Mapping[int, NodeUsage],
        kept: float,
    ) -> None:
        """Tell a source that adapts to it what fast memory has room for."""
        if usage and isinstance(source, AdaptiveSource):
            source.aim = space_fraction(self._residents, tiers, usage, kept)

    def bound(
        self,
        source: AccessSource | None,
        tiers: TierMap,
        least_s: float,
        stood_still_s: float,
    ) -> None:
        """Tell a source that scans how long sampling intervals may be.

        And for how long phase changes may go undetected: an eighth of the age of the phase.
        """
        if isinstance(source, EventDrivenSource):
            source.longest_us, source.lag_us = bounds_us(tiers, least_s, stood_still_s)

    def changed(self, source: AccessSource | None) -> bool:
        """Whether the source counts in another unit than before; heat has faded then."""
        if source is None:
            return False
        dilution = source.dilution
        if source.name != self._source:
            self._source, self._dilution = source.name, dilution
            return False
        times = self._dilution / dilution
        if 1 / INTERVAL.unit_apart_factor < times < INTERVAL.unit_apart_factor:
            return False
        self._dilution = dilution
        self._heat.fade(math.log2(times))
        return True
