# SPDX-License-Identifier: Apache-2.0
"""Figures that others keep: of the cost policy, a recording, GPU memory, who else moves pages.

The questions who else moves pages take milliseconds, and whoever scrapes or asks for the status
waits for them.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tierd.core.quantiles import Quantiles
from tierd.core.tiermap import TierMap
from tierd.doctor import conflicting
from tierd.doctor.findings import Finding, Group, all_probes
from tierd.observe.metrics import families as f
from tierd.observe.metrics.values import Labels, Values, summary_of
from tierd.policy.cost import CostPolicyState
from tierd.topology.error_report import ErrorTotals, Kind
from tierd.topology.health import Health, Symptom

if TYPE_CHECKING:
    from tierd.observe.recording.recorder import RecorderStats
    from tierd.policy.page_out import PageOutState

Figures = Mapping[str, Mapping[Labels, float]]


def of_recorder(stats: RecorderStats) -> Figures:
    """A recording's figures."""
    return {
        f.RECORDING: {(): float(not stats.ended)},
        f.RECORDED_TICKS: {(): float(stats.ticks)},
        f.RECORDED_BYTES: {(): float(stats.bytes)},
        f.RECORDING_DROPPED: {(): float(stats.dropped_ticks)},
    }


def of_gpu(samples: Iterable[Any]) -> Figures:
    """The harvester's figures.

    Args:
        samples: `tierd_gpu.metrics.Sample`; counters have the kind of event in their names.
    """
    found: dict[str, dict[Labels, float]] = {}
    for sample in samples:
        name, labels = sample.name, tuple(sample.labels.values())
        if name not in f.FAMILIES:
            group, _, what = name.removeprefix("tierd_gpu_").removesuffix("_total").partition("_")
            if group == "moves":
                name, labels = f.GPU_MOVES, (what, *labels)
            elif group == "connections":
                name, labels = f.GPU_CONNECTIONS, (what, *labels)
            else:
                name, labels = f.GPU_EVENTS, ("_".join(filter(None, (group, what))),)
        found.setdefault(name, {})[labels] = float(sample.value)
    return found


def of_health(
    health: Mapping[int, Health],
    results: Mapping[tuple[int, str], int],
    cpu_ns: Mapping[int, Quantiles],
) -> Figures:
    """What measurements of nodes found, how many there were by result, and their CPU time."""
    known = {(str(node),): each for node, each in health.items()}
    return {
        f.NODE_LATENCY: {node: each.latest.mean_ns / 1e9 for node, each in known.items()},
        f.NODE_BANDWIDTH: {node: each.latest.bandwidth_bytes_per_s for node, each in known.items()},
        f.NODE_USUAL_LATENCY: {node: each.usual_latency_ns / 1e9 for node, each in known.items()},
        f.NODE_USUAL_BANDWIDTH: {node: each.usual_bandwidth for node, each in known.items()},
        f.NODE_SLOW: {
            (*node, symptom): float(symptom in each.symptoms)
            for node, each in known.items()
            for symptom in Symptom
        },
        f.NODE_PROBES: {(str(node), what): float(n) for (node, what), n in results.items()},
        f.NODE_PROBE_CPU: {
            labels: value
            for node, times in cpu_ns.items()
            for labels, value in summary_of(times, str(node)).items()
        },
    }


def of_page_out(state: PageOutState) -> Figures:
    """What was paged out, and what that costs."""
    return {
        f.PAGE_OUT_ACTIVE: {(): float(not state.why_not)},
        f.PAGE_OUT_PAGES: {(what,): float(n) for what, n in state.pages.items()},
        f.PAGE_OUT_LEFT_OUT: {(): float(state.left_out)},
        f.PAGE_OUT_AGE: {(): state.age_s},
        f.PAGE_OUT_LOST: {(): state.lost},
        f.PAGE_OUT_FAULT: {(): state.fault_s},
    }


def of_errors(told: ErrorTotals, nodes: Iterable[int]) -> Figures:
    """Memory errors of these nodes and of unknown ones; 0 where there are none, to be compared."""
    places = {(node, kind): 0.0 for node in (None, *nodes) for kind in Kind}
    places |= {place: float(count) for place, count in told.counts.items()}
    return {
        f.MEMORY_ERRORS: {
            ("unknown" if node is None else str(node), str(kind)): count
            for (node, kind), count in places.items()
        },
        f.MEMORY_ERROR_EVENTS: {
            ("lost",): float(told.lost),
            ("malformed",): float(told.malformed),
            ("not_logged",): float(told.not_logged),
        },
    }


def set_cost(values: Values, names: Sequence[str], sight: CostPolicyState) -> None:
    """Publish what the last decision was made on."""
    model = sight.model
    named = list(zip(names, range(len(model.load)), strict=False))
    values.replace(f.TIER_LOAD, {(n, model.source[i]): float(model.load[i]) for n, i in named})
    values.replace(f.TIER_LATENCY, {(n,): sight.loaded_ns[i] / 1e9 for n, i in named})
    values.set(f.COST_PREDICTED, sight.predicted)
    values.set(f.COST_OBSERVED, sight.observed)
    values.set(f.COST_MINUTE, sight.last_minute_s)
    values.set(f.COST_STANDING, sight.standing)
    if math.isfinite(sight.correlation):
        values.set(f.COST_CORRELATION, sight.correlation)


def cost_of(tiers: TierMap, sight: CostPolicyState) -> dict[str, Any]:
    """The same for JSON, with the origin of each number."""
    model = sight.model
    return {
        "tiers": [
            {
                "name": tier.name,
                "latency_ns": round(model.latency[tier.rank].value, 1),
                "latency_from": model.latency[tier.rank].origin,
                "bandwidth_bytes_per_second": model.bandwidth[tier.rank].value,
                "bandwidth_from": model.bandwidth[tier.rank].origin,
                "load_bytes_per_second": round(float(model.load[tier.rank])),
                "load_from": model.source[tier.rank],
                "loaded_latency_ns": round(sight.loaded_ns[tier.rank], 1),
            }
            for tier in tiers.tiers
            if tier.rank < len(model.load)
        ],
        "notes": list(model.notes),
        "predicted_gain": sight.predicted,
        "observed_gain": sight.observed,
        "spent_seconds": sight.spent_s,
        "last_minute_gain_seconds": sight.last_minute_s,
        "rank_correlation": sight.correlation if math.isfinite(sight.correlation) else None,
        "standing_still": sight.standing,
        "suspected": dict(sight.suspected),
        "slices_kept": sight.kept,
        "slices_failed": sight.failed,
        "least_promise": sight.least,
    }


MAX_AGE_S: Final = 60.0
OWN: Final = "conflict.damon"
"""While DAMON is tierd's source, the kdamond that runs is its own."""


class Conflicts:
    """The latest answers."""

    def __init__(self, source: Callable[[], str]) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._asked = -MAX_AGE_S
        self._found: list[Finding] = []

    def now(self) -> list[Finding]:
        """The conflicts there are; from any thread."""
        if time.monotonic() - self._asked >= MAX_AGE_S and self._lock.acquire(blocking=False):
            try:
                self._found = conflicting()
                self._asked = time.monotonic()
            finally:
                self._lock.release()
        own = self._source() == "damon"
        return [found for found in self._found if not (own and found.id == OWN)]

    def figures(self) -> Mapping[str, Mapping[Labels, float]]:
        """For the collector: 0 or 1 for each conflict that is looked for."""
        there = {found.id for found in self.now()}
        known = [one.id for one in all_probes() if one.group is Group.CONFLICTS]
        return {f.CONFLICT: {(_short(name),): float(name in there) for name in known}}

    def reported(self) -> list[dict[str, str]]:
        """For the status."""
        return [
            {"conflict": _short(one.id), "reason": one.reason, "hint": one.hint}
            for one in self.now()
        ]


def _short(name: str) -> str:
    return name.removeprefix("conflict.")
