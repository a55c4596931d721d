# SPDX-License-Identifier: Apache-2.0
"""The frames of a recording, field by field; docs/research/recording.md has the same for people."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from tierd.core.access import AccessBatch, WatchedRange
from tierd.core.bounds import MAX_TARGETS
from tierd.core.migration import Direction, Fate, MigrationPlan, MigrationResult, SplitFate
from tierd.core.pagekey import HUGE_PAGES
from tierd.core.tiermap import (
    Measured,
    MemoryKind,
    MemoryNode,
    NodeUsage,
    Provenance,
    Quantity,
    Tier,
    TierMap,
)
from tierd.hotness.pattern import Patterns
from tierd.observe.recording import RecordingError
from tierd.observe.recording.codec import (
    JSON,
    PAGES,
    TEXT,
    array,
    column,
    converted,
    many,
    member,
    named,
    number,
    optional,
    record,
    row,
    table,
)
from tierd.observe.recording.records import (
    Call,
    HeatOp,
    Meta,
    RecordedCalls,
    RecordedTarget,
    RecordedTick,
)
from tierd.policy.inputs import LoadSource, Traffic
from tierd.policy.limits import Budget, Groups

MAX_CAPACITY: Final = (1 << 31) - 1
"""Pages that a heat table can hold at most."""
MAX_BYTES: Final = 1 << 60
"""No amount of memory in a recording is larger."""
MAX_ORDER: Final = 18
"""No folio is larger than 1 GiB."""

FLAG, U16, U32, U64, F64 = (number(form) for form in "?HIQd")
NODE, BYTES = number("H", 0, 1023), number("Q", 0, MAX_BYTES)
_HALF_LIFE: Final = number("d", 1e-3, 1e9)
_COUNTS: Final = table(TEXT, number("q"))


# Where and when it was made, who was watched, and how it ended.

META: Final = record(
    Meta, version=TEXT, started=TEXT, clock_ns=U64, dry_run=FLAG, host=table(TEXT, TEXT)
)
CONFIG: Final = TEXT
GAP: Final = record(dict, ticks=U64)
END: Final = record(dict, reason=TEXT, ticks=U64, dropped_ticks=U64, dropped_calls=U64)
TARGETS: Final = many(record(RecordedTarget, number=U16, pid=U32, comm=TEXT, cgroup=TEXT))
EXCHANGED: Final = converted(many(NODE), sorted, frozenset)

# Tiers.

_QUANTITY: Final = record(Quantity, value=F64, provenance=member(Provenance))
_SPEED: Final = {"latency_ns": _QUANTITY, "bandwidth_bytes_per_s": _QUANTITY}
_NODES: Final = many(
    record(
        MemoryNode,
        node=NODE,
        size_bytes=U64,
        cpus=converted(many(U32), sorted, frozenset),
        kind=member(MemoryKind),
        **_SPEED,
        distances=table(U32, U32),
        kernel_tier=optional(number("i")),
        devices=many(TEXT),
        initiators=many(U32),
        write_latency_ns=optional(_QUANTITY),
        write_bandwidth_bytes_per_s=optional(_QUANTITY),
    )
)
_TIERS: Final = many(
    record(
        Tier,
        rank=U32,
        name=TEXT,
        kind=member(MemoryKind),
        nodes=many(NODE),
        capacity_bytes=U64,
        **_SPEED,
    )
)


def _wrong_tiers(tiers: TierMap) -> str:
    ranks = [tier.rank for tier in tiers.tiers]
    return "" if ranks == list(range(len(ranks))) else f"tiers of ranks {ranks}"


TIERS: Final = record(
    TierMap,
    _wrong_tiers,
    tiers=_TIERS,
    nodes=converted(
        _NODES, lambda nodes: nodes.values(), lambda nodes: {each.node: each for each in nodes}
    ),
    differences=many(TEXT),
    notes=many(TEXT),
)

# What components beside the policy decided, call by call.


def _calls_of(rows: Any) -> tuple[Call, ...]:
    calls = tuple(Call(*row) for row in rows)
    for call in calls:
        if (type(call.kind), type(call.given), type(call.decided)) != (str, list, list):
            raise TypeError("no call")
    return calls


CALLS: Final = record(
    RecordedCalls,
    dropped=U64,
    calls=converted(
        JSON, lambda calls: [[each.kind, each.given, each.decided] for each in calls], _calls_of
    ),
)

# Plans and what became of them.

_ORDER: Final = column(np.uint8, 0, MAX_ORDER)
DIRECTION: Final = column(np.uint8, 0, max(Direction))
FATE: Final = column(np.uint8, 0, max(Fate))
_PLAN: Final = record(
    MigrationPlan,
    split=PAGES,
    notes=_COUNTS,
    page=PAGES,
    order=_ORDER,
    source=column(np.int16),
    dest=column(np.int16),
    direction=DIRECTION,
    heat=column(np.float32),
)
_RESULT_FIELDS: Final = {
    "fate": FATE,
    "node": column(np.int16),
    "errors": table(number("i"), U64),
    "moved_bytes": U64,
    "duration_ns": U64,
    "cpu_ns": U64,
    "retries": U64,
    "split_fate": array(np.uint8, 0, max(SplitFate)),
}


def _wrong_result(result: MigrationResult) -> str:
    plan: MigrationPlan | None = result.plan
    if plan is not None and len(plan.split) != len(result.split_fate):
        return "fates of other splits than were planned"
    return ""


_RESULT: Final = record(MigrationResult, _wrong_result, plan=_PLAN, **_RESULT_FIELDS)

# What heat was given.


_BATCH: Final = record(
    AccessBatch,
    source=TEXT,
    time_ns=U64,
    lost=U64,
    ordered=FLAG,
    page=PAGES,
    count=column(np.float32),
    is_write=optional(
        converted(column(np.uint8), lambda writes: writes, lambda writes: writes != 0)
    ),
    node=optional(column(np.int16)),
)


def _ranges_of(bounds: Any) -> tuple[WatchedRange, ...]:
    if np.any(bounds[1:] < bounds[:-1]) or (len(bounds) and int(bounds[-1]) >> 48):
        raise ValueError("ranges that overlap, or end beyond all pages")
    return tuple(
        WatchedRange(int(a), int(b)) for a, b in zip(bounds[::2], bounds[1::2], strict=True)
    )


_RANGES: Final = converted(
    PAGES,
    lambda ranges: np.array(
        [bound for each in ranges for bound in (each.start, each.end)], np.uint64
    ),
    _ranges_of,
)


def _spans_of(bounds: Any) -> Any:
    if len(bounds) % 2 or np.any(bounds[1:] < bounds[:-1]):
        raise ValueError("spans that overlap")
    return bounds.reshape(-1, 2)


_LIMITED: Final = array(np.uint64, 0, MAX_TARGETS - 1)
_SPANS: Final = converted(PAGES, np.ravel, _spans_of)
_OPS: Final = many(
    named(
        HeatOp,
        {
            "new": row(number("Q", 1, MAX_CAPACITY), _HALF_LIFE, number("d", 1e-3, 1e6)),
            "advance": row(U64),
            "ingest": row(_BATCH),
            "place": row(PAGES, column(np.int16), column(np.uint8), many(number("h"))),
            "keep_ranges": row(number("H", 0, MAX_TARGETS - 1), _RANGES),
            "moved": row(_RESULT),
            "set_half_life": row(_HALF_LIFE),
            "fade": row(number("d", -30, 1e6)),
            "hold": row(_SPANS, FLAG),
            "limit": row(_LIMITED, array(np.uint64)),
        },
    )
)

# What a decision was made on.


def _wrong_groups(groups: Groups) -> str:
    arrays = (groups.cap, groups.budget, *groups.resident.values())
    if any(len(each) != len(groups) for each in arrays):
        return "arrays of other groups"
    if len(groups.of_target) and int(groups.of_target.max()) >= len(groups):
        return "a target is in a group that is not there"
    return ""


_FRACTIONS: Final = array(np.float64, 0, 1)
_GROUPS: Final = record(
    Groups,
    _wrong_groups,
    of_target=array(np.int16, -1),
    floor=_FRACTIONS,
    cap=_FRACTIONS,
    budget=array(np.int64, 0),
    resident=table(NODE, array(np.int64, 0, MAX_BYTES)),
)


def _wrong_patterns(patterns: Patterns) -> str:
    region, pages = patterns.region, patterns.pages
    if np.any(region[1:] <= region[:-1]):
        return "regions are not in order"
    if np.any((pages < 1) | (pages > HUGE_PAGES) | np.isinf(pages)):
        return "a region's accesses on less than one of its pages, or on more"
    return ""


_SHARES: Final = column(np.float64)
TRAFFIC: Final = record(
    Traffic,
    time_ns=U64,
    half_life_s=_HALF_LIFE,
    seen_s=number("d", 0),
    lines_per_count=number("d", 0, 1e12),
    load=table(NODE, number("d", 0, 1e18)),
    source=table(NODE, member(LoadSource)),
    measured=table(
        NODE, record(Measured, latency_ns=optional(F64), bandwidth_bytes_per_s=optional(F64))
    ),
    patterns=record(
        Patterns,
        _wrong_patterns,
        region=PAGES,
        counted=_SHARES,
        parallel=_SHARES,
        doubt=_SHARES,
        written=_SHARES,
        pages=_SHARES,
    ),
)
_USAGE: Final = record(NodeUsage, total_bytes=BYTES, free_bytes=BYTES, reserve_bytes=BYTES)

_TICK: Final = record(
    dict,
    number=U64,
    time_ns=U64,
    end_ns=U64,
    source=TEXT,
    located=U32,
    walked=U32,
    targets=U32,
    usage=table(NODE, _USAGE),
    budget=optional(record(Budget, move_bytes=BYTES)),
    ms=_COUNTS,
    ops=_OPS,
    plan=_PLAN,
    # Without a plan it is that of the tick.
    report=optional(record(MigrationResult, _wrong_result, plan=optional(_PLAN), **_RESULT_FIELDS)),
    moved=FLAG,
    late=_OPS,
    groups=optional(_GROUPS),
    traffic=optional(TRAFFIC),
)


def encode_tick(tick: RecordedTick) -> bytes:
    """The bytes of a TICK frame; what changes rarely is in frames of its own."""
    stored: Any = tick
    if tick.report is not None and tick.report.plan is tick.plan:
        stored = replace(tick, report=replace(tick.report, plan=None))  # type: ignore[arg-type]
    return _TICK.encode(stored)


def decode_tick(
    data: bytes, config: str, tiers: TierMap, exchanged: frozenset[int] = frozenset()
) -> RecordedTick:
    """The tick of a TICK frame; the rest is of the frames before it.

    Raises:
        RecordingError: the bytes are not those of a tick.
    """
    fields = _TICK.decode(data)
    tick = RecordedTick(**fields, config=config, tiers=tiers, exchanged=exchanged)
    report = tick.report
    if report is None:
        if tick.moved:
            raise RecordingError("a tick's moves were taken in, and there is no report of them")
        return tick
    plan: MigrationPlan | None = report.plan
    if plan is None:
        report = replace(report, plan=tick.plan)
        if wrong := _wrong_result(report):
            raise RecordingError(wrong)
    return replace(tick, report=report)
