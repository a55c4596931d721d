# SPDX-License-Identifier: Apache-2.0
"""The frame of what the fast path was given and what it chose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tierd.core.migration import MigrationPlan, MigrationResult
from tierd.migration.fastpath_update import SPAN, VICTIM, Orders, PromoterSettings, Way
from tierd.migration.promoter import NODES, WAYS
from tierd.migration.tap import COLUMNS, FastPathLog, Noted, Steered, TapKind
from tierd.observe.recording.codec import (
    PAGES,
    array,
    choice,
    column,
    converted,
    many,
    number,
    optional,
    record,
    table,
)
from tierd.observe.recording.schema import BYTES, DIRECTION, FATE, FLAG, MAX_BYTES, U64

MAX_ORDER: Final = 9
"""No folio in a plan is larger."""
MAX_STEP_RECORDS: Final = 32768
"""The promoter takes no more from its ring in a step."""
CARDS: Final = 64
_GIVEN: Final = {
    TapKind.NEW: PromoterSettings,
    TapKind.SET: PromoterSettings,
    TapKind.STEER: Steered,
    TapKind.NOTE: Noted,
}
Spans = npt.NDArray[np.void]

_SECONDS, _AMOUNT, _ABOVE_0 = number("d", 0, 1e9), number("d", 0, 1e30), number("d", 1e-300, 1e30)
_SETTINGS: Final = record(
    PromoterSettings,
    interval_ns=number("Q", 10**6, 10**18),
    quota_bytes_per_s=number("Q", 1, MAX_BYTES),
    residency_s=_SECONDS,
    bounce_s=_SECONDS,
    patience_s=_SECONDS,
    margin=_AMOUNT,
    confidence=_AMOUNT,
    heat_s=_ABOVE_0,
    rate_cap=_ABOVE_0,
    visits=_ABOVE_0,
    copy_requests=_AMOUNT,
    least_rate=_AMOUNT,
    return_rate=_AMOUNT,
    expected=FLAG,
)

_NODE, _ORDER = number("H", 0, NODES - 1), column(np.uint8, 0, MAX_ORDER)
_SPANS: Final = converted(
    PAGES,
    lambda spans: np.ascontiguousarray(spans, SPAN).view(np.uint64),
    lambda bounds: bounds.view(SPAN),
)


def _victims_of(columns: dict[str, Any]) -> npt.NDArray[np.void]:
    victims = np.zeros(len(columns["page"]), VICTIM)
    for name, values in columns.items():
        victims[name] = values
    return victims


_VICTIMS: Final = converted(
    record(dict, page=PAGES, heat=column(np.float32), node=column(np.int16), order=_ORDER),
    lambda victims: {name: victims[name] for name in VICTIM.names or ()},
    _victims_of,
)
_EPOCH: Final = converted(
    record(dict, start_ns=U64, before_ns=U64, scale=number("d", 0, 1e30)),
    lambda epoch: dict(zip(("start_ns", "before_ns", "scale"), epoch, strict=True)),
    lambda epoch: tuple(epoch.values()),
)
_WAY: Final = converted(
    record(
        Way,
        lambda way: (
            "more destinations than there can be" if max(len(way.up), len(way.down)) > WAYS else ""
        ),
        up=many(number("h")),
        down=many(number("h")),
        low_bytes=BYTES,
        held_bytes=BYTES,
    ),
    lambda way: Way(way.up[:WAYS], way.down[:WAYS], max(0, way.low_bytes), max(0, way.held_bytes)),
    lambda way: way,
)
_STEERED: Final = record(
    Steered,
    orders=record(
        lambda **fields: Orders(pids={}, **fields),
        # Without spans they are those of the orders before.
        spans=optional(_SPANS),
        victims=_VICTIMS,
        epochs=table(number("B", 0, CARDS - 1), _EPOCH),
        ways=table(_NODE, _WAY),
    ),
    readable=converted(many(_NODE), sorted, frozenset),
)


def _noted_of(columns: dict[str, Any]) -> Noted:
    time_ns, page, order, direction, fate = columns.values()
    nodes, heat = np.zeros(len(page), np.int16), np.zeros(len(page), np.float32)
    plan = MigrationPlan(page, order, nodes, nodes, direction, heat)
    return Noted(MigrationResult(plan, fate, nodes, {}, 0, 0, 0, 0), time_ns)


_NOTED: Final = converted(
    record(dict, time_ns=U64, page=PAGES, order=_ORDER, direction=DIRECTION, fate=FATE),
    lambda noted: {
        "time_ns": noted.time_ns,
        "page": noted.report.plan.page,
        "order": noted.report.plan.order,
        "direction": noted.report.plan.direction,
        "fate": noted.report.fate,
    },
    _noted_of,
)


def _wrong_log(log: FastPathLog) -> str:
    """Whether what calls say they used is there, and they were given what their kinds need."""
    columns = log.columns
    call, free = columns["call"], columns["free"]["bytes"]
    kinds = call["kind"].tolist()
    used = {name: call[name] for name in ("clocks", "frees", "records", "jobs")}
    used["moves"] = columns["job"]["moves"]
    for name, counts in used.items():
        if int(counts.sum(dtype=np.uint64)) != len(columns[name[:-1]]):
            return f"calls with other {name} than they say"
    if len(call) and int(call["records"].max()) > MAX_STEP_RECORDS:
        return "more records in a step than there can be"
    if np.any((free < 0) | (free > MAX_BYTES)):
        return "a node has less than nothing free, or too much"
    if any(not TapKind.NEW <= kind <= TapKind.QUOTA for kind in kinds):
        return "a call of unknown kind"
    if TapKind.NEW in kinds[1:]:
        return "a promoter was made anew in the middle"
    wanted = [_GIVEN[TapKind(kind)] for kind in kinds if kind in _GIVEN]
    return "" if wanted == list(map(type, log.given)) else "calls were given what they do not need"


_LOG: Final = record(
    FastPathLog,
    _wrong_log,
    dropped=U64,
    columns=record(dict, **{name: array(kind) for name, kind in COLUMNS.items()}),
    given=many(choice({PromoterSettings: _SETTINGS, Steered: _STEERED, Noted: _NOTED})),
)


def encode_fast_path(log: FastPathLog, before: Spans | None) -> bytes:
    """The bytes of a FASTPATH frame; `before`: the spans of the last orders in the recording."""
    given: list[Any] = []
    for each in log.given:
        given.append(each)
        if isinstance(each, Steered):
            if each.orders.spans is before:
                orders: Any = replace(each.orders, spans=None)  # type: ignore[arg-type]
                given[-1] = replace(each, orders=orders)
            before = each.orders.spans
    return _LOG.encode(replace(log, given=tuple(given)))


def decode_fast_path(data: bytes, before: Spans | None) -> FastPathLog:
    """The inverse of `encode_fast_path`. Raises RecordingError: the bytes are no such frame."""
    log: FastPathLog = _LOG.decode(data)
    given = list(log.given)
    for index, each in enumerate(given):
        if isinstance(each, Steered):
            spans: Spans | None = each.orders.spans
            if spans is None:
                spans = np.empty(0, SPAN) if before is None else before
                given[index] = replace(each, orders=replace(each.orders, spans=spans))
            before = spans
    return replace(log, given=tuple(given))


def spans_after(log: FastPathLog, before: Spans | None) -> Spans | None:
    """The spans of the last orders after these calls."""
    given = [each.orders.spans for each in log.given if isinstance(each, Steered)]
    return given[-1] if given else before
