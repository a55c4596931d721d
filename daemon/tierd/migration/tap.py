# SPDX-License-Identifier: Apache-2.0
"""`FastPathLog`: recorded inputs and choices of the native promoter, for replays."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from tierd.core.migration import MigrationResult
from tierd.migration.fastpath_update import Orders, PromoterSettings

Table = npt.NDArray[np.void]
"""An array of one of the types below."""


class TapKind(enum.IntEnum):
    """enum tierd_tap_kind: the kind of a call."""

    NEW = 1
    SET = 2
    STEER = 3
    NOTE = 4
    STEP = 5
    QUOTA = 6


CALL: Final = np.dtype(
    [
        ("value", "<u8"),
        ("held_sum", "<u8"),
        ("held", "<u4"),
        ("clocks", "<u4"),
        ("frees", "<u4"),
        ("records", "<u4"),
        ("jobs", "<u4"),
        ("kind", "u1"),
        ("stood", "u1"),
        ("pad", "<u2"),
    ]
)
"""struct tierd_tap_call."""
CLOCK: Final = np.dtype([("ns", "<u8")])
FREE: Final = np.dtype([("bytes", "<i8"), ("node", "<i4"), ("pad", "<u4")])
"""struct tierd_tap_free."""
HOT_RECORD: Final = np.dtype(
    [
        ("page", "<u8"),
        ("pfn", "<u8"),
        ("time_ns", "<u8"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("order", "u1"),
        ("card", "u1"),
        ("node", "<i2"),
        ("count", "<u2"),
    ]
)
"""struct tierd_hot_record."""
JOB: Final = np.dtype([("moves", "<u4"), ("direction", "<u4")])
"""struct tierd_tap_job."""
TAP_MOVE: Final = np.dtype(
    [
        ("page", "<u8"),
        ("heat", "<f4"),
        ("bar", "<f4"),
        ("source", "<i2"),
        ("dest", "<i2"),
        ("node", "<i2"),
        ("order", "u1"),
        ("fate", "u1"),
    ]
)
"""struct tierd_tap_move."""

COLUMNS: Final = {
    "call": CALL,
    "clock": CLOCK,
    "free": FREE,
    "record": HOT_RECORD,
    "job": JOB,
    "move": TAP_MOVE,
}
"""Columns of struct tierd_tap_columns by name; the count of each has that name and an s."""
TYPES: Final = {
    "call": "tierd_tap_call",
    "free": "tierd_tap_free",
    "record": "tierd_hot_record",
    "job": "tierd_tap_job",
    "move": "tierd_tap_move",
}
"""The C names of those that are structs."""
CHOSEN: Final = ("page", "heat", "bar", "source", "dest", "order")
"""Fields of a move that were chosen; the others are its result."""


@dataclass(frozen=True, slots=True)
class Steered:
    """Orders, and the nodes whose free memory could be read."""

    orders: Orders
    readable: frozenset[int]


@dataclass(frozen=True, slots=True)
class Noted:
    """Moves of a tick that were passed to the promoter."""

    report: MigrationResult
    time_ns: int


SplitRecord = PromoterSettings | Steered | Noted
"""The arguments of NEW and SET, STEER, and NOTE."""


@dataclass(frozen=True, slots=True)
class FastPathLog:
    """The promoter's calls of an interval, in the order in which they took effect.

    Attributes:
        columns: `COLUMNS` by name; a call gives the number of items that it used of each.
        given: arguments of the calls of kinds NEW, SET, STEER and NOTE, in order.
        dropped: calls lost since memory ran out, counted from the start.
    """

    columns: dict[str, Table]
    given: tuple[SplitRecord, ...]
    dropped: int = 0

    @property
    def nbytes(self) -> int:
        """Approximate memory use."""
        told = sum(
            each.orders.spans.nbytes + each.orders.victims.nbytes
            for each in self.given
            if isinstance(each, Steered)
        )
        return sum(column.nbytes for column in self.columns.values()) + told + 1024


class Tap(Protocol):
    """Returns the recorded inputs and choices of a promoter, until it is ended."""

    def tapped(self) -> FastPathLog | None:
        """The log since the last call."""
        ...

    def untap(self) -> None:
        """Stop recording."""
        ...


def copied(given: Any, ffi: Any) -> dict[str, Table]:
    """The columns of a struct tierd_tap_columns, in memory of their own."""
    found = {}
    for name, kind in COLUMNS.items():
        count = int(getattr(given, f"{name}s"))
        data = bytes(ffi.buffer(getattr(given, name), count * kind.itemsize)) if count else b""
        found[name] = np.frombuffer(data, kind)
    return found
