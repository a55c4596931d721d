# SPDX-License-Identifier: Apache-2.0
"""Conversions between the promoter's outcomes, reports of moves and flows, each one pass in C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tierd._native import ffi, lib
from tierd.core import bounds
from tierd.core.access import F32Array
from tierd.core.migration import Direction, I16Array, MigrationPlan, MigrationResult, U8Array
from tierd.core.pagekey import U64Array
from tierd.migration.fastpath_update import OUTCOME, OutcomeArray

_KINDS: Final = (
    ("page", "uint64_t[]", np.uint64),
    ("heat", "float[]", np.float32),
    ("source", "int16_t[]", np.int16),
    ("dest", "int16_t[]", np.int16),
    ("node", "int16_t[]", np.int16),
    ("order", "uint8_t[]", np.uint8),
    ("fate", "uint8_t[]", np.uint8),
    ("direction", "uint8_t[]", np.uint8),
)
"""The fields of struct tierd_moves, in their order."""


def join(parts: Sequence[OutcomeArray]) -> OutcomeArray:
    """`OUTCOME`[n] of all parts, in order; a single part is returned as it is."""
    parts = [part for part in parts if len(part)] or list(parts[:1])
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return np.empty(0, OUTCOME)
    return np.concatenate([part.view(np.uint64) for part in parts]).view(OUTCOME)


def columns_of(report: MigrationResult, native: Any = ffi) -> tuple[Any, list[Any]]:
    """A report as struct tierd_moves, and objects that must live as long as that.

    Args:
        report: of n > 0 moves.
        native: the FFI of the struct (for tests).
    """
    plan = report.plan
    return _columns(
        native,
        plan.page,
        plan.heat,
        plan.source,
        plan.dest,
        report.node,
        plan.order,
        report.fate,
        plan.direction,
    )


def _columns(native: Any, *columns: npt.NDArray[Any]) -> tuple[Any, list[Any]]:
    moves = native.new("struct tierd_moves *")
    kept = []
    for (name, kind, dtype), column in zip(_KINDS, columns, strict=True):
        kept.append(native.from_buffer(kind, np.ascontiguousarray(column, dtype)))
        setattr(moves, name, kept[-1])
    return moves, kept


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
    n = int(np.count_nonzero(outcomes["fate"]))
    page: U64Array = np.empty(n, np.uint64)
    heat: F32Array = np.empty(n, np.float32)
    source: I16Array
    dest: I16Array
    node: I16Array
    order: U8Array
    fate: U8Array
    direction: U8Array
    source, dest, node = (np.empty(n, np.int16) for _ in range(3))
    order, fate, direction = (np.empty(n, np.uint8) for _ in range(3))
    if n:
        moves, kept = _columns(ffi, page, heat, source, dest, node, order, fate, direction)
        lib.tierd_outcome_moves(_outcomes(outcomes), len(outcomes), moves)
        del kept
    return MigrationResult(
        plan=MigrationPlan(
            page=page, order=order, source=source, dest=dest, direction=direction, heat=heat
        ),
        fate=fate,
        node=node,
        errors=dict(errors),
        moved_bytes=moved_bytes,
        duration_ns=duration_ns,
        cpu_ns=cpu_ns,
        retries=retries,
    )


def write(report: MigrationResult, time_ns: int, into: Sequence[OutcomeArray]) -> None:
    """A report's moves as outcomes of this time, without a promotion threshold.

    Args:
        report: of n moves.
        time_ns: CLOCK_MONOTONIC.
        into: `OUTCOME` arrays of m ≤ n items in all, which get the last m, in order.
    """
    first = len(report.plan) - sum(map(len, into))
    moves, kept = columns_of(report)
    for part in into:
        if len(part):
            lib.tierd_move_outcomes(moves, first, len(part), time_ns, _outcomes(part))
            first += len(part)
    del kept


def pages_moved(outcomes: OutcomeArray, direction: Direction) -> U64Array:
    """Keys, uint64[n], of the 4 KiB pages among outcomes that moved in a direction."""
    space = len(outcomes)
    while space:
        page = np.empty(space, np.uint64)
        into = ffi.from_buffer("uint64_t[]", page)
        found = lib.tierd_outcome_pages(_outcomes(outcomes), len(outcomes), direction, into, space)
        if found <= space:
            return page[:found]
        space = found
    return np.empty(0, np.uint64)


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
    """The flows of a report; where there are many, one may come in several parts."""
    n, told = len(report.plan), list[Flow]()
    if n:
        moves, kept = columns_of(report)
        first, found = 0, ffi.new("size_t *")
        while first < n:
            flow = ffi.new("struct tierd_flow[]", bounds.FLOWS)
            first = lib.tierd_flows(moves, first, n, flow, bounds.FLOWS, found)
            told += [
                Flow(each.target, each.source, each.dest, each.bytes, Direction(each.direction))
                for each in flow[0 : found[0]]
            ]
        del kept
    return told


def _outcomes(outcomes: OutcomeArray) -> Any:
    return ffi.from_buffer("struct tierd_outcome[]", outcomes)
