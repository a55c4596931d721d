# SPDX-License-Identifier: Apache-2.0
"""`FastPathLog`: recorded inputs and choices of the native promoter, for replays."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tierd.core.migration import MigrationResult
from tierd.migration.fastpath_update import Orders, PromoterSettings, dtype_of

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


COLUMNS: Final = {
    "call": dtype_of("tierd_tap_call"),
    "clock": np.dtype([("ns", "<u8")]),
    "free": dtype_of("tierd_tap_free"),
    "record": dtype_of("tierd_hot_record"),
    "job": dtype_of("tierd_tap_job"),
    "move": dtype_of("tierd_tap_move"),
}
"""The columns of a log by name, in the order of enum tierd_tap_part."""
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


def copied(given: Any, ffi: Any) -> dict[str, Table]:
    """The columns of an array of struct tierd_tap_column, in memory of their own."""
    found = {}
    for (name, kind), column in zip(COLUMNS.items(), given, strict=True):
        data = bytes(ffi.buffer(column.item, column.n * kind.itemsize)) if column.n else b""
        found[name] = np.frombuffer(data, kind)
    return found
