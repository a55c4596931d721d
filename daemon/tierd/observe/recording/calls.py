# SPDX-License-Identifier: Apache-2.0
"""What deciding components beside the policy were told and what they decided, call by call.

Values are plain: numbers, texts, truth values, None, and lists of them. JSON gives each float64
back bit for bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from tierd.observe.recording.errors import RecordingError
from tierd.observe.recording.records import Call, RecordedCalls
from tierd.observe.recording.tables import decode_json

LAYOUT: Final = 1
"""Of the frame; another one is passed over."""
DECIDED: Final = "tick.decided"
"""The kind of call that divides those before a tick's decision from those after it."""
MAX_DEPTH: Final = 3
"""Lists in lists in a call's values."""

MISSHAPEN: Final = (
    ArithmeticError,
    AttributeError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
)
"""What taking apart and making again a call of another shape can raise."""
Journal = Callable[[str, Sequence[object], Sequence[object]], None]
"""Called with the kind of call, what it was told, and what it decided."""


def plain(value: object) -> Any:
    """A value as a recording gives it back: NumPy's numbers are numbers, tuples are lists."""
    return json.loads(json.dumps(value, default=_item))


def encode_calls(calls: RecordedCalls) -> bytes:
    """A CALLS frame."""
    rows = [[each.kind, each.given, each.decided] for each in calls.calls]
    table = {"layout": LAYOUT, "dropped": calls.dropped, "calls": rows}
    return json.dumps(table, separators=(",", ":"), default=_item).encode()


def decode_calls(data: bytes) -> RecordedCalls | None:
    """The inverse of `encode_calls`; None for another layout.

    Raises:
        RecordingError: the bytes are no calls.
    """
    return decode_json(data, _make)


def _make(table: Any) -> RecordedCalls | None:
    if table["layout"] != LAYOUT:
        return None
    dropped = table["dropped"]
    if type(dropped) is not int or dropped < 0:
        raise ValueError
    calls = []
    for kind, told, decided in table["calls"]:
        if type(kind) is not str or type(told) is not list or type(decided) is not list:
            raise TypeError
        _check(told, MAX_DEPTH)
        _check(decided, MAX_DEPTH)
        calls.append(Call(kind, told, decided))
    return RecordedCalls(tuple(calls), dropped)


def _check(values: list[Any], depth: int) -> None:
    for value in values:
        if isinstance(value, list) and depth:
            _check(value, depth - 1)
        elif value is not None and type(value) not in (int, float, str, bool):
            raise TypeError
        elif type(value) is int and not -(1 << 63) <= value < 1 << 64:
            raise ValueError


def _item(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    return value.item()


def number(value: Any, least: float, most: float) -> Any:
    """A number of a call, checked.

    Raises:
        RecordingError: it is none, or lies outside.
    """
    if type(value) not in (int, float) or not least <= value <= most:
        raise RecordingError(f"a call was told {value!r:.80} for a number")
    return value


def nonsense(call: Call, error: Exception) -> RecordingError:
    """Of a call that no recorder writes."""
    return RecordingError(f"a call of kind {call.kind:.40} makes no sense: {type(error).__name__}")
