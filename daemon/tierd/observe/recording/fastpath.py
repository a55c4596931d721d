# SPDX-License-Identifier: Apache-2.0
"""What the native path was told and chose, to the bytes of a FASTPATH frame and back."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tierd.core.migration import MigrationPlan, MigrationResult
from tierd.migration.fastpath_update import SPAN, VICTIM, Orders, PromoterSettings, Way
from tierd.migration.promoter import NODES, WAYS
from tierd.migration.tap import COLUMNS, FastPathLog, Noted, SplitRecord, Steered, Table, TapKind
from tierd.observe.recording.columns import Decoder, Encoder
from tierd.observe.recording.errors import RecordingError
from tierd.observe.recording.ticks import MAX_BYTES

LAYOUT: Final = 1
"""Of the frame; another one is passed over."""
MAX_ORDER: Final = 9
"""No folio in a plan is larger."""
MAX_STEP_RECORDS: Final = 32768
"""The promoter takes no more from its ring in a step."""
CARDS: Final = 64
_SETTINGS, _STEERED, _NOTED, _SAME_SPANS = 1, 2, 3, 4
_FLOATS: Final = ("residency_s", "bounce_s", "patience_s", "margin", "confidence", "heat_s",
                  "rate_cap", "visits", "copy_requests", "least_rate", "return_rate")  # fmt: skip
_TOLD: Final = {
    TapKind.NEW: PromoterSettings,
    TapKind.SET: PromoterSettings,
    TapKind.STEER: Steered,
    TapKind.NOTE: Noted,
}
Spans = npt.NDArray[np.void]


def encode_fast_path(log: FastPathLog, before: Spans | None) -> bytes:
    """The raw bytes of a FASTPATH frame; `before`: spans of the last orders in the recording."""
    out = Encoder()
    out.number("HQ", LAYOUT, log.dropped)
    for name in COLUMNS:
        out.table(log.columns[name])
    out.number("I", len(log.given))
    for told in log.given:
        match told:
            case PromoterSettings():
                out.number("BQQ", _SETTINGS, told.interval_ns, told.quota_bytes_per_s)
                out.number("11dB", *(getattr(told, name) for name in _FLOATS), told.expected)
            case Steered():
                _encode_steered(out, told, before)
                before = told.orders.spans
            case Noted():
                plan = told.report.plan
                out.number("BQ", _NOTED, told.time_ns)
                out.pages(plan.page)
                for values in (plan.order, plan.direction, told.report.fate):
                    out.array(values, np.uint8)
    return out.bytes()


def spans_after(log: FastPathLog, before: Spans | None) -> Spans | None:
    """The spans of the last orders after these calls."""
    given = [told.orders.spans for told in log.given if isinstance(told, Steered)]
    return given[-1] if given else before


def decode_fast_path(data: bytes, before: Spans | None) -> FastPathLog | None:
    """The inverse of `encode_fast_path`; None for another layout.

    Raises:
        RecordingError: the bytes are no such frame.
    """
    take = Decoder(data)
    if take.one("H") != LAYOUT:
        return None
    dropped = take.one("Q")
    columns = {name: take.table(kind) for name, kind in COLUMNS.items()}
    given: list[SplitRecord] = []
    for _ in range(take.one("I")):
        given.append(_decode_given(take, before))
        if isinstance(given[-1], Steered):
            before = given[-1].orders.spans
    take.done()
    _check(columns, given)
    return FastPathLog(columns, tuple(given), dropped)


def _check(columns: dict[str, Table], told: list[SplitRecord]) -> None:
    """What calls say they used is there, and they were told what their kinds need."""
    call = columns["call"]
    for name in ("clocks", "frees", "records", "jobs"):
        if int(call[name].sum(dtype=np.uint64)) != len(columns[name[:-1]]):
            raise RecordingError(f"the fast path's calls have other {name} than they say")
    if int(columns["job"]["moves"].sum(dtype=np.uint64)) != len(columns["move"]):
        raise RecordingError("the fast path's jobs have other moves than they say")
    if len(call) and int(call["records"].max()) > MAX_STEP_RECORDS:
        raise RecordingError("the fast path took more records in a step than it can")
    free = columns["free"]["bytes"]
    if len(free) and not 0 <= int(free.min()) <= int(free.max()) <= MAX_BYTES:
        raise RecordingError("a node of the fast path has less than nothing free, or too much")
    kinds = call["kind"].tolist()
    if any(not TapKind.NEW <= kind <= TapKind.QUOTA for kind in kinds):
        raise RecordingError("a call of the fast path is of unknown kind")
    if TapKind.NEW in kinds[1:]:
        raise RecordingError("the fast path was made anew in the middle")
    wanted = [_TOLD[TapKind(kind)] for kind in kinds if kind in _TOLD]
    if wanted != [type(each) for each in told]:
        raise RecordingError("calls of the fast path were told something else than they need")


def _encode_steered(out: Encoder, told: Steered, before: Spans | None) -> None:
    orders = told.orders
    same = before is not None and orders.spans is before
    out.number("BB", _STEERED, _SAME_SPANS if same else 0)
    if not same:
        spans = np.ascontiguousarray(orders.spans, SPAN)
        out.pages(np.stack([spans["start"], spans["end"]], axis=1).reshape(-1))
    out.pages(orders.victims["page"])
    out.array(orders.victims["heat"], np.float32)
    out.array(orders.victims["node"], np.int16)
    out.array(orders.victims["order"], np.uint8)
    out.number("B", len(orders.epochs))
    for card, (start, earlier, scale) in orders.epochs.items():
        out.number("BQQd", card, start, earlier, scale)
    out.number("H", len(orders.ways))
    for node, way in orders.ways.items():
        up, down = way.up[:WAYS], way.down[:WAYS]
        out.number("HBBB", node, node in told.readable, len(up), len(down))
        out.number(f"{len(up) + len(down)}h", *up, *down)
        out.number("QQ", max(0, way.low_bytes), max(0, way.held_bytes))


def _decode_given(take: Decoder, before: Spans | None) -> SplitRecord:
    kind = take.one("B")
    if kind == _SETTINGS:
        return _decode_settings(take)
    if kind == _STEERED:
        return _decode_steered(take, before)
    if kind != _NOTED:
        raise RecordingError(f"the fast path was told something of unknown kind {kind}")
    time_ns = take.one("Q")
    page = take.pages()
    order, direction, fate = (take.array(len(page), np.uint8) for _ in range(3))
    _bound_orders(order)
    nodes = np.zeros(len(page), np.int16)
    heat = np.zeros(len(page), np.float32)
    plan = MigrationPlan(page, order, nodes, nodes, direction, heat)
    return Noted(MigrationResult(plan, fate, nodes, {}, 0, 0, 0, 0), time_ns)


def _decode_settings(take: Decoder) -> PromoterSettings:
    interval_ns, quota = take.number("QQ")
    *floats, expected = take.number("11dB")
    times, others = floats[:3], floats[3:]
    if not all(0 <= each <= 1e9 for each in times) or not all(0 <= each <= 1e30 for each in others):
        raise RecordingError("a setting of the fast path is out of its range")
    if not 10**6 <= interval_ns <= 10**18 or not 0 < quota <= MAX_BYTES:
        raise RecordingError("the fast path's interval or quota is out of its range")
    named = dict(zip(_FLOATS, floats, strict=True))
    if min(named["heat_s"], named["rate_cap"], named["visits"]) <= 0:
        raise RecordingError("a setting of the fast path is not above 0")
    return PromoterSettings(interval_ns, quota, **named, expected=bool(expected))


def _decode_steered(take: Decoder, before: Spans | None) -> Steered:
    if take.one("B") & _SAME_SPANS:
        spans = np.empty(0, SPAN) if before is None else before
    else:
        bounds = take.pages()
        if len(bounds) % 2:
            raise RecordingError("a span of the fast path has no end")
        spans = np.empty(len(bounds) // 2, SPAN)
        spans["start"], spans["end"] = bounds[::2], bounds[1::2]
    page = take.pages()
    victims = np.zeros(len(page), VICTIM)
    victims["page"] = page
    victims["heat"] = take.array(len(page), np.float32)
    victims["node"] = take.array(len(page), np.int16)
    victims["order"] = take.array(len(page), np.uint8)
    _bound_orders(victims["order"])
    epochs = {}
    for _ in range(take.one("B")):
        card, start, earlier, scale = take.number("BQQd")
        if card >= CARDS or not 0 <= scale <= 1e30:
            raise RecordingError(f"card {card} with a scale of {scale}")
        epochs[card] = (start, earlier, scale)
    ways, readable = {}, set()
    for _ in range(take.one("H")):
        node, known, up, down = take.number("HBBB")
        if node >= NODES or max(up, down) > WAYS:
            raise RecordingError(f"node {node} with {up} ways up and {down} down")
        nodes = take.number(f"{up + down}h")
        low, held = take.number("QQ")
        if max(low, held) > MAX_BYTES:
            raise RecordingError(f"node {node} keeps {max(low, held)} bytes")
        ways[node] = Way(nodes[:up], nodes[up:], low, held)
        if known:
            readable.add(node)
    return Steered(Orders(spans, {}, victims, epochs, ways), frozenset(readable))


def _bound_orders(order: npt.NDArray[np.uint8]) -> None:
    if len(order) and int(order.max()) > MAX_ORDER:
        raise RecordingError(f"a folio of order {int(order.max())} in the fast path")
