# SPDX-License-Identifier: Apache-2.0
"""`SamplingLimits`: gives scans their limits, and heat the unit of their counts.

A scan adapts its sampling interval to the hot fraction that fits into fast memory, and may not
exceed a maximum that follows from the age of the phase. Heat counts the accesses that scans can
see. When the sampling interval changes, heat is scaled by the same factor to stay comparable. And
heat lasts for some scans: where all pages are scanned in 20 s, a half-life of 5 s would order them
by the time of their last scan.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

from tierd.core.access import AccessSource, AdaptiveSource, EventDrivenSource
from tierd.core.tiermap import NodeUsage, TierMap
from tierd.core.tuning import INTERVAL, SCAN, VALUE
from tierd.engine.groups import ResidentBytes
from tierd.hotness.table import HeatTable
from tierd.policy.rule import least_rate

log = logging.getLogger(__name__)


def space_fraction(
    resident_bytes: ResidentBytes, tiers: TierMap, usage: Mapping[int, NodeUsage], kept: float
) -> float | None:
    """The fraction of the targets' pages that fits into tiers with a demotion target, 0 to 1.

    None while the targets' bytes are not known.

    Args:
        kept: fraction of a node that stays free.
    """
    held = resident_bytes.total()
    every = sum(held.values())
    if not every:
        return None
    fast = tiers.demoting_nodes
    space = sum(held.get(node, 0) for node in fast)
    for node in fast:
        if (own := usage.get(node)) is not None:
            space += max(0, own.free_bytes - own.low_bytes(kept))
    return min(1.0, space / every)


def max_sampling_interval_us(tiers: TierMap, least_s: float, phase_age_s: float) -> int | None:
    """The mean time between two uses of a page that just pays for its moves, in us.

    This sampling interval separates pages that pay for their moves best from the others. A longer
    one finds more pages, and those that are used far more no sooner. The result grows with the age
    of the phase, because moves may pay within an eighth of it. It grows by doubling, because the
    kernel module drops its scan history when the interval changes much.

    Args:
        least_s: time in which promotions must pay, at least (`policy.break_even_time`).

    Returns:
        None where the gain of an access is not known.
    """
    lower = [tier for tier in tiers.tiers if tiers.promotion_tier(tier.rank) is not None]
    rate = least_rate(tiers, [node for tier in lower for node in tier.nodes], least_s)
    if rate <= 0:
        return None
    doubled = int(math.log2(max(least_s, VALUE.phase_age_fraction * phase_age_s) / least_s))
    return round(1e6 / rate) << doubled


def bounds_us(tiers: TierMap, least_s: float, phase_age_s: float) -> tuple[int | None, int]:
    """`max_sampling_interval_us`, and the max detection delay of phase changes, in us."""
    longest_us = max_sampling_interval_us(tiers, least_s, phase_age_s)
    return longest_us, round(1e6 * max(least_s, VALUE.phase_age_fraction * phase_age_s))


class SamplingLimits:
    """Sets the limits of the source in use; called in each tick, before heat takes batches in."""

    def __init__(self, heat: HeatTable, resident_bytes: ResidentBytes) -> None:
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
        """Set the target hot fraction of a source that adapts to it."""
        if usage and isinstance(source, AdaptiveSource):
            source.aim = space_fraction(self._residents, tiers, usage, kept)

    def bound(
        self,
        source: AccessSource | None,
        tiers: TierMap,
        least_s: float,
        phase_age_s: float,
    ) -> None:
        """Set the max sampling interval and the max detection delay of a source that scans."""
        if isinstance(source, EventDrivenSource):
            source.longest_us, source.lag_us = bounds_us(tiers, least_s, phase_age_s)

    def follow_unit(self, source: AccessSource | None) -> float | None:
        """Scale heat to the unit the source counts in; by how many half-lives, None: not at all."""
        if source is None:
            return None
        dilution = source.dilution
        if source.name != self._source:
            self._source, self._dilution = source.name, dilution
            return None
        times = self._dilution / dilution
        if 1 / INTERVAL.close_factor < times < INTERVAL.close_factor:
            return None
        self._dilution = dilution
        faded = math.log2(times)
        self._heat.fade(faded)
        return faded

    def follow_period(
        self, source: AccessSource | None, configured_s: float, *, follows: bool = True
    ) -> None:
        """Set heat's half-life to the configured one, or a longer one where scans take long.

        Beside cards it stays as configured: the fast path reckons with that.

        Args:
            follows: false leaves it as configured.
        """
        seen = source.seen if isinstance(source, EventDrivenSource) else None
        before = self._heat.half_life_s
        wanted = configured_s
        if follows and seen is not None:
            # Scans that begin anew have found no page yet, and know no period.
            known = seen.share > 0
            scans_s = SCAN.half_life_scans * seen.period_s if known else before
            wanted = max(configured_s, scans_s)
        alike = 1 / INTERVAL.close_factor < wanted / before < INTERVAL.close_factor
        if wanted != before and not (alike and wanted > configured_s):
            log.info("event=half_life seconds=%.3g before=%.3g", wanted, before)
            self._heat.set_half_life(wanted)
