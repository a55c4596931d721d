# SPDX-License-Identifier: Apache-2.0
"""A tick to the bytes of its frame and back."""

from __future__ import annotations

from typing import Final

import numpy as np

from tierd.core.access import AccessBatch, WatchedRange
from tierd.core.migration import Direction, Fate, MigrationPlan, MigrationResult
from tierd.core.nodes import NodeUsage
from tierd.core.pagekey import MAX_TARGETS
from tierd.core.tiermap import TierMap
from tierd.observe.recording.columns import Decoder, Encoder
from tierd.observe.recording.errors import RecordingError
from tierd.observe.recording.records import (
    Advance,
    Fade,
    HeatOp,
    Ingest,
    Keep,
    Moved,
    NewHeat,
    Place,
    RecordedTick,
    SetHalfLife,
)
from tierd.observe.recording.splits import SplitRecord, decode_splits, encode_splits
from tierd.observe.recording.traffic import decode_traffic, encode_traffic
from tierd.policy.group_limits import Groups
from tierd.policy.inputs import Budget

_NEW, _ADVANCE, _INGEST, _PLACE, _KEEP, _MOVED, _HALF_LIFE, _FADE = range(1, 9)
_DECIDED, _MOVED_REPORTED, _REPORT, _OWN_PLAN, _GROUPS, _LATE, _TRAFFIC = 1, 2, 4, 8, 16, 32, 64
_SPLITS = 128
_WRITES, _ORDERED, _NODES = 1, 2, 4
MAX_CAPACITY: Final = (1 << 31) - 1
"""Pages that a heat table can hold at most."""
MAX_NODES: Final = 1024
MAX_BYTES: Final = 1 << 60
"""No amount of memory in a recording is larger."""


def encode_tick(tick: RecordedTick) -> bytes:
    """The raw bytes of a TICK frame; `config` and `tiers` are in frames of their own."""
    out = Encoder()
    flags = _DECIDED if tick.budget is not None else 0
    flags |= _MOVED_REPORTED if tick.moved else 0
    flags |= _GROUPS if tick.groups is not None else 0
    flags |= _LATE if tick.late else 0
    flags |= _TRAFFIC if tick.traffic is not None else 0
    folios = SplitRecord(tick.plan, tick.report, tick.traffic)
    flags |= _SPLITS if folios.needed else 0
    if tick.report is not None:
        flags |= _REPORT | (0 if tick.report.plan is tick.plan else _OWN_PLAN)
    out.number("QQQIIIB", tick.number, tick.time_ns, tick.end_ns, tick.located, tick.walked,
               tick.targets, flags)  # fmt: skip
    out.text(tick.source)
    out.number("q", tick.budget.move_bytes if tick.budget is not None else 0)
    out.number("H", len(tick.usage))
    for node, usage in tick.usage.items():
        out.number("HQQQ", node, usage.total_bytes, usage.free_bytes, usage.reserve_bytes)
    out.counts(dict(tick.ms))
    out.number("I", len(tick.ops))
    for op in tick.ops:
        _encode_op(out, op)
    _encode_plan(out, tick.plan)
    if tick.report is not None:
        _encode_report(out, tick.report, own_plan=bool(flags & _OWN_PLAN))
    if tick.groups is not None:
        _encode_groups(out, tick.groups)
    if tick.late:
        out.number("I", len(tick.late))
        for op in tick.late:
            _encode_op(out, op)
    if tick.traffic is not None:
        encode_traffic(out, tick.traffic)
    if flags & _SPLITS:
        encode_splits(out, folios)
    return out.bytes()


def decode_tick(
    data: bytes, config: str, tiers: TierMap, exchanged: frozenset[int] = frozenset()
) -> RecordedTick:
    """The tick of a TICK frame; the rest is of the frames before it.

    Raises:
        RecordingError: the bytes are not those of a tick.
    """
    take = Decoder(data)
    number, time_ns, end_ns, located, walked, targets, flags = take.number("QQQIIIB")
    source = take.text()
    (budget,) = take.number("q")
    if not 0 <= budget <= MAX_BYTES:
        raise RecordingError(f"a budget of {budget} bytes")
    usage = {}
    for _ in range(take.one("H")):
        node, *figures = take.number("HQQQ")
        if node >= MAX_NODES or max(figures) > MAX_BYTES:
            raise RecordingError(f"node {node} with {max(figures)} bytes")
        usage[node] = NodeUsage(*figures)
    ms = take.counts()
    ops = tuple(_decode_op(take) for _ in range(take.one("I")))
    plan = _decode_plan(take)
    report = None
    if flags & _REPORT:
        report = _decode_report(take, None if flags & _OWN_PLAN else plan)
    groups = _decode_groups(take) if flags & _GROUPS else None
    late: tuple[HeatOp, ...] = ()
    if flags & _LATE:
        late = tuple(_decode_op(take) for _ in range(take.one("I")))
    traffic = decode_traffic(take) if flags & _TRAFFIC else None
    if flags & _SPLITS:
        folios = decode_splits(take, SplitRecord(plan, report, traffic))
        plan, report, traffic = folios.plan, folios.report, folios.traffic
    take.done()
    if flags & _MOVED_REPORTED and report is None:
        raise RecordingError("a tick's moves were taken in, and there is no report of them")
    return RecordedTick(
        number=number,
        time_ns=time_ns,
        end_ns=end_ns,
        source=source,
        located=located,
        walked=walked,
        targets=targets,
        ops=ops,
        config=config,
        tiers=tiers,
        usage=usage,
        budget=Budget(budget) if flags & _DECIDED else None,
        plan=plan,
        report=report,
        moved=bool(flags & _MOVED_REPORTED),
        ms=ms,
        groups=groups,
        late=late,
        traffic=traffic,
        exchanged=exchanged,
    )


def _encode_op(out: Encoder, op: HeatOp) -> None:
    match op:
        case NewHeat():
            out.number("BQdd", _NEW, op.capacity_pages, op.half_life_s, op.refresh_s)
        case Advance():
            out.number("BQ", _ADVANCE, op.time_ns)
        case SetHalfLife():
            out.number("Bd", _HALF_LIFE, op.half_life_s)
        case Fade():
            out.number("Bd", _FADE, op.half_lives)
        case Ingest():
            out.number("B", _INGEST)
            _encode_batch(out, op.batch)
        case Place():
            out.number("B", _PLACE)
            out.pages(op.page)
            out.array(op.node, np.int16)
            out.array(op.order, np.uint8)
            out.number("H", len(op.insert_on))
            out.number(f"{len(op.insert_on)}h", *op.insert_on)
        case Keep():
            out.number("BH", _KEEP, op.target)
            bounds = [bound for part in op.ranges for bound in (part.start, part.end)]
            out.pages(np.array(bounds, np.uint64))
        case Moved():
            out.number("B", _MOVED)
            _encode_report(out, op.report, own_plan=True)


def _decode_op(take: Decoder) -> HeatOp:
    kind = take.one("B")
    if kind == _NEW:
        capacity, half_life_s, refresh_s = take.number("Qdd")
        if not (0 < capacity <= MAX_CAPACITY and 1e-3 <= half_life_s <= 1e9):
            raise RecordingError(f"a heat table of {capacity} pages, half-life {half_life_s} s")
        if not 1e-3 <= refresh_s <= 1e6:
            raise RecordingError(f"a heat table that is refreshed every {refresh_s} s")
        return NewHeat(capacity, half_life_s, refresh_s)
    if kind == _ADVANCE:
        return Advance(take.one("Q"))
    if kind == _HALF_LIFE:
        (half_life_s,) = take.number("d")
        if not 1e-3 <= half_life_s <= 1e9:
            raise RecordingError(f"a half-life of {half_life_s} s")
        return SetHalfLife(half_life_s)
    if kind == _FADE:
        (half_lives,) = take.number("d")
        if not -30 <= half_lives <= 1e6:
            raise RecordingError(f"heat that fades by {half_lives} half-lives")
        return Fade(half_lives)
    if kind == _INGEST:
        return Ingest(_decode_batch(take))
    if kind == _PLACE:
        page = take.pages()
        node = take.array(len(page), np.int16)
        order = take.array(len(page), np.uint8)
        return Place(page, node, order, take.number(f"{take.one('H')}h"))
    if kind == _KEEP:
        return _decode_keep(take)
    if kind == _MOVED:
        return Moved(_decode_report(take, None))
    raise RecordingError(f"heat was told something of unknown kind {kind}")


def _decode_keep(take: Decoder) -> Keep:
    target = take.one("H")
    bounds = take.pages()
    if len(bounds) % 2 or (len(bounds) and int(bounds.max()) >> 48) or target >= MAX_TARGETS:
        raise RecordingError(f"the ranges of target {target} are not pairs of page numbers")
    if np.any(bounds[1:] < bounds[:-1]):
        raise RecordingError(f"the ranges of target {target} overlap")
    return Keep(
        target,
        tuple(WatchedRange(int(a), int(b)) for a, b in zip(bounds[::2], bounds[1::2], strict=True)),
    )


def _encode_batch(out: Encoder, batch: AccessBatch) -> None:
    out.text(batch.source)
    flags = _WRITES if batch.is_write is not None else 0
    flags |= _ORDERED if batch.ordered else 0
    flags |= _NODES if batch.node is not None else 0
    out.number("QQB", batch.time_ns, batch.lost, flags)
    out.pages(batch.page)
    out.array(batch.count, np.float32)
    if batch.is_write is not None:
        out.array(batch.is_write, np.uint8)
    if batch.node is not None:
        out.array(batch.node, np.int16)


def _decode_batch(take: Decoder) -> AccessBatch:
    source = take.text()
    time_ns, lost, flags = take.number("QQB")
    page = take.pages()
    count = take.array(len(page), np.float32)
    is_write = take.array(len(page), np.uint8) != 0 if flags & _WRITES else None
    ordered = bool(flags & _ORDERED)
    node = take.array(len(page), np.int16) if flags & _NODES else None
    return AccessBatch(page, count, time_ns, source, is_write, lost, ordered, node)


def _encode_plan(out: Encoder, plan: MigrationPlan) -> None:
    out.pages(plan.page)
    out.array(plan.order, np.uint8)
    out.array(plan.source, np.int16)
    out.array(plan.dest, np.int16)
    out.array(plan.direction, np.uint8)
    out.array(plan.heat, np.float32)
    out.counts(plan.notes)


def _decode_plan(take: Decoder) -> MigrationPlan:
    page = take.pages()
    n = len(page)
    plan = MigrationPlan(
        page=page,
        order=take.array(n, np.uint8),
        source=take.array(n, np.int16),
        dest=take.array(n, np.int16),
        direction=take.array(n, np.uint8),
        heat=take.array(n, np.float32),
        notes=take.counts(),
    )
    if n and (int(plan.order.max()) > 18 or int(plan.direction.max()) > max(Direction)):
        raise RecordingError("a move of a folio beyond 1 GiB, or in no known direction")
    return plan


def _encode_report(out: Encoder, report: MigrationResult, *, own_plan: bool) -> None:
    if own_plan:
        _encode_plan(out, report.plan)
    out.array(report.fate, np.uint8)
    out.array(report.node, np.int16)
    out.counts({str(number): count for number, count in report.errors.items()})
    out.number("QQQQ", report.moved_bytes, report.duration_ns, report.cpu_ns, report.retries)


def _decode_report(take: Decoder, plan: MigrationPlan | None) -> MigrationResult:
    plan = _decode_plan(take) if plan is None else plan
    fate = take.array(len(plan), np.uint8)
    node = take.array(len(plan), np.int16)
    if len(fate) and int(fate.max()) > max(Fate):
        raise RecordingError("a move with an unknown fate")
    try:
        errors = {int(number): count for number, count in take.counts().items()}
    except ValueError:
        raise RecordingError("an error of a move is no number") from None
    moved_bytes, duration_ns, cpu_ns, retries = take.number("QQQQ")
    return MigrationResult(plan, fate, node, errors, moved_bytes, duration_ns, cpu_ns, retries)


def _encode_groups(out: Encoder, groups: Groups) -> None:
    out.number("IIH", len(groups.of_target), len(groups), len(groups.resident))
    out.array(groups.of_target, np.int16)
    out.array(groups.floor, np.float64)
    out.array(groups.cap, np.float64)
    out.array(groups.budget, np.int64)
    for node, resident in groups.resident.items():
        out.number("H", node)
        out.array(resident, np.int64)


def _decode_groups(take: Decoder) -> Groups:
    targets, groups, nodes = take.number("IIH")
    made = Groups(
        of_target=take.array(targets, np.int16),
        floor=take.array(groups, np.float64),
        cap=take.array(groups, np.float64),
        budget=take.array(groups, np.int64),
        resident={take.one("H"): take.array(groups, np.int64) for _ in range(nodes)},
    )
    if targets and not -1 <= int(made.of_target.min()) <= int(made.of_target.max()) < groups:
        raise RecordingError("a target is in a group that is not there")
    shares = np.concatenate([made.floor, made.cap])
    amounts = np.concatenate([made.budget, *made.resident.values()])
    if not np.all((shares >= 0) & (shares <= 1)) or np.any(amounts < 0):
        raise RecordingError("a group's shares or bytes are out of range")
    if any(np.any(each > MAX_BYTES) for each in made.resident.values()):
        raise RecordingError(f"a group with more than {MAX_BYTES} bytes")
    return made
