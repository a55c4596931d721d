# SPDX-License-Identifier: Apache-2.0
"""Conversions between the promoter's outcomes, reports of moves and flows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tierd.core.migration import MOVED, PROMOTE, Direction, MigrationPlan, MigrationResult, Reason
from tierd.core.pagekey import PAGE_SIZE, VPN_BITS, U64Array, small_pages
from tierd.migration.fastpath_update import OUTCOME, OutcomeArray

_PLANNED: Final = ("page", "order", "source", "dest", "direction", "heat")
"""The fields of a plan that an outcome has, too."""


def report_of(
    outcomes: OutcomeArray,
    *,
    moved_bytes: int,
    duration_ns: int,
    cpu_ns: int,
    retries: int,
    errors: Mapping[int, int],
) -> MigrationResult:
    """The moves among outcomes as the report of an executed plan.

    Args:
        outcomes: `OUTCOME`[n]; rejected pages are left out.
        moved_bytes, duration_ns, cpu_ns, retries, errors: see `MigrationResult`.
    """
    # NOT_TRIED is 0.
    tried = np.flatnonzero(outcomes["fate"])
    planned: dict[str, Any] = {name: outcomes[name][tried] for name in _PLANNED}
    return MigrationResult(
        plan=MigrationPlan(**planned),
        fate=outcomes["fate"][tried],
        node=outcomes["node"][tried],
        errors=dict(errors),
        moved_bytes=moved_bytes,
        duration_ns=duration_ns,
        cpu_ns=cpu_ns,
        retries=retries,
    )


def outcomes_of(report: MigrationResult, time_ns: int, at: npt.NDArray[np.intp]) -> OutcomeArray:
    """Some moves of a report as outcomes, `OUTCOME`[m], without a promotion threshold.

    Args:
        at: which of them, intp[m].
    """
    found = np.zeros(len(at), OUTCOME)
    found["time_ns"], found["bar"] = time_ns, np.nan
    for name in _PLANNED:
        found[name] = getattr(report.plan, name)[at]
    found["node"], found["fate"] = report.node[at], report.fate[at]
    promoted = found["direction"] == PROMOTE
    found["reason"] = np.where(promoted, Reason.HOTTER_THAN_THE_COLDEST, Reason.MAKES_ROOM)
    return found


def pages_moved(outcomes: OutcomeArray, direction: Direction) -> U64Array:
    """Keys, uint64[n], of the 4 KiB pages among outcomes that moved in a direction."""
    moved = np.flatnonzero((outcomes["fate"] == MOVED) & (outcomes["direction"] == direction))
    return small_pages(outcomes["page"][moved], outcomes["order"][moved])


class Flow(NamedTuple):
    """Bytes of one target that moved from one node to another."""

    target: int
    source: int
    dest: int
    bytes: int
    direction: Direction


def flows(report: MigrationResult) -> list[tuple[int, int, int, int]]:
    """Moves as (target, source node, destination node, bytes); see `directed_flows`."""
    return [flow[:4] for flow in directed_flows(report)]


def directed_flows(report: MigrationResult) -> list[Flow]:
    """The flows of a report, by target, source, destination and direction."""
    plan, moved = report.plan, report.fate == MOVED
    if moved.all():
        moved = slice(None)  # (without a copy of each column)
    way = plan.page[moved] >> np.uint64(VPN_BITS) << np.uint64(33)
    for node, shift in ((plan.source, 17), (plan.dest, 1)):
        # Nodes are -1 or more.
        way |= (node[moved] + 1).astype(np.uint64) << np.uint64(shift)
    way |= plan.direction[moved]
    # Neighbours in a plan mostly go the same way: their sums are sorted, not they.
    first = np.flatnonzero(np.diff(way, prepend=~way[:1]))
    sizes = np.add.reduceat(PAGE_SIZE << plan.order[moved].astype(np.int64), first)
    found, of = np.unique(way[first], return_inverse=True)
    sums = np.bincount(of, sizes)
    return [
        Flow(
            target=way >> 33,
            source=(way >> 17 & 0xFFFF) - 1,
            dest=(way >> 1 & 0xFFFF) - 1,
            bytes=int(size),
            direction=Direction(way & 1),
        )
        for way, size in zip(found.tolist(), sums, strict=True)
    ]
