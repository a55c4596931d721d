# SPDX-License-Identifier: Apache-2.0
"""What the native promoter was told, and what it chose, as a recording has it."""

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
    """enum tierd_tap_kind: what was called."""

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
"""C's names of those that are structs."""
CHOSEN: Final = ("page", "heat", "bar", "source", "dest", "order")
"""Fields of a move that were chosen; the others are what became of it."""


@dataclass(frozen=True, slots=True)
class Steered:
    """Orders, and the nodes whose free memory could be read."""

    orders: Orders
    readable: frozenset[int]


@dataclass(frozen=True, slots=True)
class Noted:
    """Moves of a tick that the promoter was told of."""

    report: MigrationResult
    time_ns: int


SplitRecord = PromoterSettings | Steered | Noted
"""What NEW and SET, STEER, and NOTE were called with."""


@dataclass(frozen=True, slots=True)
class FastPathLog:
    """The promoter's calls of some time, in the order in which they took effect.

    Attributes:
        columns: `COLUMNS` by name; each call uses so many items of the others as it says.
        given: what calls of the kinds NEW, SET, STEER and NOTE were told, in their order.
        dropped: calls that found no room in memory, and all after them, since the start.
    """

    columns: dict[str, Table]
    given: tuple[SplitRecord, ...]
    dropped: int = 0

    @property
    def nbytes(self) -> int:
        """Memory that it takes, about."""
        told = sum(
            each.orders.spans.nbytes + each.orders.victims.nbytes
            for each in self.given
            if isinstance(each, Steered)
        )
        return sum(column.nbytes for column in self.columns.values()) + told + 1024


class Tap(Protocol):
    """Gives what a promoter was told and chose, until it is ended."""

    def tapped(self) -> FastPathLog | None:
        """What was noted since the last call."""
        ...

    def untap(self) -> None:
        """Note nothing any more."""
        ...


def copied(given: Any, ffi: Any) -> dict[str, Table]:
    """The columns of a struct tierd_tap_columns, in memory of their own."""
    found = {}
    for name, kind in COLUMNS.items():
        count = int(getattr(given, f"{name}s"))
        data = bytes(ffi.buffer(getattr(given, name), count * kind.itemsize)) if count else b""
        found[name] = np.frombuffer(data, kind)
    return found
