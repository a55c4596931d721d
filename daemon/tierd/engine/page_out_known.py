# SPDX-License-Identifier: Apache-2.0
"""What the loop knows and page-outs need: `Known`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tierd.core.access import F32Array, WatchedTarget
from tierd.core.pagekey import U64Array
from tierd.policy.page_out import HeatAge

if TYPE_CHECKING:
    from tierd.engine.loop import Service
    from tierd.workloads.target import Target


@dataclass(frozen=True, slots=True)
class Known:
    """What the loop knows.

    Attributes:
        why_not: why pages must not be paged out now; "" if they may.
        faults: major faults of each target since its start.
        heat_of: heat by page keys, uint64[n].
        heat: of the heat table.
        half_life_s: of heat.
        counted: share of the time whose accesses the source counts, in (0, 1].
        scan_s: time between two scans of a page.
    """

    why_not: str
    targets: Sequence[WatchedTarget] = ()
    faults: Mapping[int, int] = field(default_factory=dict)
    heat_of: Callable[[U64Array], F32Array] = lambda keys: np.zeros(len(keys), np.float32)
    heat: HeatAge = field(default_factory=lambda: HeatAge(0, 0.0))
    half_life_s: float = 1.0
    counted: float = 1.0
    scan_s: float = 0.0


def known_of(service: Service) -> Known:
    """What the loop of a service knows; to be called in its thread."""
    work, components = service.work, service.components
    source = components.sources.active
    if work.paused:
        return Known("the service is paused")
    if source is None:
        return Known("there is no source of page accesses")
    if source.seen is None:
        return Known(f"the source {source.name} has not checked each page for accesses")
    unseen, targets = source.unseen, components.tracking.targets
    return Known(
        "",
        [each for each in components.tracking.watched() if each.target not in unseen],
        {number: _major_faults(target) for number, target in targets.items()},
        components.heat.of,
        HeatAge(components.heat.stats().evicted + work.totals.lost_samples, components.heat.aged),
        components.heat.half_life_s,
        source.dilution,
        source.seen.period_s,
    )


def _major_faults(target: Target) -> int:
    return int(target.activity[1]) if len(target.activity) > 1 else 0
