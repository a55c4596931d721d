# SPDX-License-Identifier: Apache-2.0
"""What the loop knows and page-outs need: `Known`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tierd.core.access import F32Array, WatchedTarget
from tierd.core.pagekey import U64Array

if TYPE_CHECKING:
    from tierd.engine.loop import Service


def _no_heat(keys: U64Array) -> tuple[F32Array, float]:
    return np.zeros(len(keys), np.float32), 0.0


@dataclass(frozen=True, slots=True)
class Known:
    """What the loop knows.

    Attributes:
        why_not: why pages must not be paged out now; "" if they may.
        started: start times of the targets, by number, in clock ticks since boot.
        heat_of: heat by page keys, uint64[n], and half-lives by which all heat has decayed.
        unknown: folios that the heat table has evicted, and samples that were lost.
        half_life_s: of heat.
        counted: share of the time whose accesses the source counts, in (0, 1].
        scan_s: time between two scans of a page.
    """

    why_not: str
    targets: Sequence[WatchedTarget] = ()
    started: Mapping[int, int] = field(default_factory=dict)
    heat_of: Callable[[U64Array], tuple[F32Array, float]] = _no_heat
    unknown: int = 0
    half_life_s: float = 1.0
    counted: float = 1.0
    scan_s: float = 0.0


def known_of(service: Service) -> Known:
    """What the loop of a service knows; to be called in its thread."""
    work, components = service.work, service.components
    source = components.sources.active
    if work.stands:
        return Known("the service moves nothing: it is paused, undoes moves, or stands down")
    if source is None:
        return Known("there is no source of page accesses")
    # What cards count is not in the unit of an access.
    if source.seen is None or source.counted_nodes:
        return Known(f"the source {source.name} does not check each page for accesses, or not yet")
    unseen, targets = source.unseen, components.tracking.targets
    return Known(
        "",
        [each for each in components.tracking.watched() if each.target not in unseen],
        {number: target.start_time for number, target in targets.items()},
        components.heat.of,
        components.heat.stats().evicted + work.totals.lost_samples,
        components.heat.half_life_s,
        source.dilution,
        source.seen.period_s,
    )
