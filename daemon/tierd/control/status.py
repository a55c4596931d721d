# SPDX-License-Identifier: Apache-2.0
"""What `tierd status` and `tierd top` show."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from tierd import __version__
from tierd.core.pagekey import PAGE_SIZE, target_of
from tierd.engine.loop import Service
from tierd.engine.tier_health import TierHealth
from tierd.observe.metrics import families as f
from tierd.observe.metrics.background import cost_of
from tierd.observe.metrics.state import MetricsState
from tierd.observe.metrics.values import Labels
from tierd.policy.page_out import PageOutState
from tierd.topology.error_report import described
from tierd.workloads.target import Target

LOOKED_AT: Final = 4096
"""Hottest folios of each node that are looked at to say which targets are hot."""
HOTTEST: Final = 20
"""Targets listed."""
GROUPS: Final = 50
"""Control groups listed."""

Table = Mapping[str, Mapping[Labels, float]]


def status(service: Service, state: MetricsState, *, hottest: bool) -> dict[str, Any]:
    """Everything at a glance; with `hottest`, the targets with the hottest pages too.

    Called in the loop's thread (`LoopExecutor.post`).
    """
    values = state.values.snapshot.values
    config = service.config
    now = time.time()
    last = _one(values, f.LAST_TICK)
    told = {
        "version": __version__,
        "pid": os.getpid(),
        "start_time": _one(values, f.START_TIME),
        "time": now,
        "dry_run": bool(_one(values, f.DRY_RUN)),
        "loop": {
            "ticks": int(_one(values, f.TICKS)),
            "interval_seconds": config.loop.interval_ns / 1e9,
            "last_tick_seconds_ago": round(now - last, 3) if last else None,
        },
        "tiers": _tiers(service, values),
        "source": {
            "active": next((k[0] for k, v in values[f.SOURCE_ACTIVE].items() if v), None),
            "order": list(service.components.sources.names),
            "unavailable": dict(service.components.sources.reasons),
            "samples": _by_label(values, f.SAMPLES),
            "lost": _by_label(values, f.LOST),
            "scan": _scan_intervals(values),
        },
        "migrated_pages": _migrated(values),
        "totals": service.totals.as_json(),
        "migration": {
            "bytes_per_second": config.migration.rate_limit_bytes_per_s,
            "share": service.work.decision.budget.in_force,
        },
        "targets": {
            "watched": len(service.components.tracking.pids),
            "left_out": service.components.tracking.registry.left_out,
            "not_answering": list(service.components.tracking.not_answering),
            "unjudged": len(service.components.tracking.registry.unjudged),
            "idle_matchers": service.components.tracking.registry.idle_matchers,
            "skipped_pages": dict(service.components.tracking.skipped),
            "groups": _groups(values),
        },
        "heat": _heat(values),
        "slow_nodes": _slow_nodes(service),
        "page_out": _page_out(service),
        "probe_cpu_ns": _probe_cpu(service),
        "memory_errors": _memory_errors(service),
        "undo": service.work.undo.as_json(),
        "config": {
            "files": list(config.files),
            "last_reload_ok": bool(_one(values, f.RELOAD_OK)),
        },
    }
    sight = service.components.policy.state
    if sight is not None:
        told["cost"] = cost_of(service.tiers, sight)
    if hottest:
        told["hottest"] = _hottest(service)
    return told


def _heat(values: Table) -> dict[str, int]:
    return {
        "tracked": int(_one(values, f.HEAT_PAGES)),
        "capacity": int(_one(values, f.HEAT_CAPACITY)),
        "memory_bytes": int(_one(values, f.HEAT_BYTES)),
    }


def _migrated(values: Table) -> list[dict[str, Any]]:
    return [
        {"direction": direction, "source": source, "dest": dest, "pages": int(pages)}
        for (direction, source, dest), pages in sorted(values[f.MOVED_PAGES].items())
    ]


def _one(values: Table, name: str) -> float:
    return values[name].get((), 0.0)


def _by_label(values: Table, name: str) -> dict[str, int]:
    return {labels[0]: int(value) for labels, value in sorted(values[name].items())}


def _scan_intervals(values: Table) -> dict[str, float] | None:
    """The scan and sampling intervals of a source that scans; None for others."""
    for source, sampling_interval_s in values[f.SAMPLING_INTERVAL].items():
        return {
            "sampling_interval_seconds": sampling_interval_s,
            "interval_seconds": values[f.SCAN_INTERVAL][source],
        }
    return None


def _tiers(service: Service, values: Table) -> list[dict[str, Any]]:
    def total(name: str, nodes: Sequence[int]) -> int | None:
        wanted = {str(node) for node in nodes}
        found = [value for (_, node), value in values[name].items() if node in wanted]
        return int(sum(found)) if found else None

    return [
        {
            "name": tier.name,
            "kind": str(tier.kind),
            "nodes": list(tier.nodes),
            "capacity_bytes": total(f.CAPACITY, tier.nodes) or tier.capacity_bytes,
            "free_bytes": total(f.FREE, tier.nodes),
            "reserve_bytes": total(f.RESERVE, tier.nodes),
            "latency_ns": tier.latency_ns.value,
            "bandwidth_bytes_per_second": tier.bandwidth_bytes_per_s.value,
        }
        for tier in service.tiers.tiers
    ]


def _slow_nodes(service: Service) -> list[dict[str, Any]]:
    return [
        {
            "node": node,
            "symptoms": sorted(health.symptoms),
            "latency_ns": round(health.latest.mean_ns, 1),
            "usual_latency_ns": round(health.usual_latency_ns, 1),
            "stream_bytes_per_second": round(health.latest.bandwidth_bytes_per_s),
            "usual_stream_bytes_per_second": round(health.usual_bandwidth),
        }
        for watch in service.background
        if isinstance(watch, TierHealth)
        for node, health in sorted(watch.health.items())
        if health.symptoms
    ]


def _page_out(service: Service) -> dict[str, Any] | None:
    """Page-outs to compressed memory or swap; None where they are not configured."""
    for each in service.background:
        if isinstance(state := getattr(each, "state", None), PageOutState):
            return {
                "why_not": state.why_not or None,
                "pages": dict(state.pages),
                "bytes": {what: n * PAGE_SIZE for what, n in state.pages.items()},
                "age_seconds": round(state.age_s, 1),
                "lost_share": state.lost,
                "fault_seconds": state.fault_s,
            }
    return None


def _probe_cpu(service: Service) -> dict[str, Any]:
    return {
        str(node): times.as_json()
        for watch in service.background
        if isinstance(watch, TierHealth)
        for node, times in sorted(watch.probe_cpu_ns.items())
    }


def _memory_errors(service: Service) -> dict[str, Any]:
    """By node and kind, with the last report of each; no more where they are not read."""
    for watch in service.background:
        if isinstance(watch, TierHealth) and watch.errors is not None:
            told = watch.errors.totals
            return {
                "errors": [
                    {**described(told.latest[place]), "count": count}
                    for place, count in told.counts.items()
                ],
                "events": sorted(watch.errors.events),
                "lost": told.lost,
                "malformed": told.malformed,
                "not_logged": told.not_logged,
            }
    return {"errors": []}


def _groups(values: Table) -> list[dict[str, Any]]:
    processes = values[f.GROUP_TARGETS]
    ordered = sorted(values[f.GROUP_RESIDENT].items(), key=lambda item: -item[1])
    return [
        {"cgroup": labels[0], "processes": int(processes.get(labels, 0)), "resident_bytes": int(n)}
        for labels, n in ordered[:GROUPS]
    ]


def _hottest(service: Service) -> list[dict[str, Any]]:
    """Targets by the heat of their pages among each node's hottest."""
    targets: Mapping[int, Target] = service.components.tracking.targets
    heat: dict[int, float] = {}
    for tier in service.tiers.tiers:
        for node in tier.nodes:
            found = service.components.heat.hottest(node, LOOKED_AT)
            if not len(found):
                continue
            weight = found.heat.astype(np.float64) * (1 << found.order.astype(np.int64))
            numbers, place = np.unique(target_of(found.page), return_inverse=True)
            for number, total in zip(numbers, np.bincount(place, weights=weight), strict=True):
                heat[int(number)] = heat.get(int(number), 0.0) + float(total)
    ordered = sorted(targets.values(), key=lambda t: (-heat.get(t.number, 0.0), -t.rss_bytes))
    return [
        {
            "pid": target.pid,
            "comm": target.comm,
            "cgroup": target.cgroup,
            "resident_bytes": target.rss_bytes,
            "heat": round(heat.get(target.number, 0.0), 2),
        }
        for target in ordered[:HOTTEST]
    ]
