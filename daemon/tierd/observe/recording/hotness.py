# SPDX-License-Identifier: Apache-2.0
"""A heat table that tells a recorder everything that changes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tierd.core.access import AccessBatch, WatchedRange
from tierd.core.migration import I16Array, MigrationResult, U8Array
from tierd.core.pagekey import U64Array
from tierd.hotness.table import HeatTable
from tierd.observe.recording.records import (
    Advance,
    Fade,
    HeatOp,
    Ingest,
    Keep,
    Moved,
    NewHeat,
    Place,
    SetHalfLife,
)


class RecordingHeat(HeatTable):
    """A `HeatTable` whose changes are told to `tap`, in the caller's thread.

    Args:
        tap: called after each change; it keeps what it is given, so arrays that are
            views of other memory are copied first.
        capacity_pages, half_life_s, refresh_s: as of `HeatTable`.
    """

    def __init__(
        self,
        tap: Callable[[HeatOp], None],
        *,
        capacity_pages: int,
        half_life_s: float,
        refresh_s: float = 10.0,
    ) -> None:
        super().__init__(
            capacity_pages=capacity_pages, half_life_s=half_life_s, refresh_s=refresh_s
        )
        self._tap = tap
        tap(NewHeat(capacity_pages, half_life_s, refresh_s))

    def ingest(self, batch: AccessBatch) -> None:
        """As `HeatTable.ingest`."""
        super().ingest(batch)
        owned = AccessBatch(
            page=_owned(batch.page),
            count=_owned(batch.count),
            time_ns=batch.time_ns,
            source=batch.source,
            is_write=None if batch.is_write is None else _owned(batch.is_write),
            lost=batch.lost,
            node=None if batch.node is None else _owned(batch.node),
        )
        self._tap(Ingest(owned))

    def advance(self, time_ns: int) -> None:
        """As `HeatTable.advance`."""
        super().advance(time_ns)
        self._tap(Advance(time_ns))

    def set_half_life(self, half_life_s: float) -> None:
        """As `HeatTable.set_half_life`."""
        super().set_half_life(half_life_s)
        self._tap(SetHalfLife(half_life_s))

    def fade(self, half_lives: float) -> None:
        """As `HeatTable.fade`."""
        super().fade(half_lives)
        self._tap(Fade(half_lives))

    def place(
        self, page: U64Array, node: I16Array, order: U8Array, *, insert_on: Collection[int]
    ) -> None:
        """As `HeatTable.place`."""
        super().place(page, node, order, insert_on=insert_on)
        self._tap(Place(_owned(page), _owned(node), _owned(order), tuple(insert_on)))

    def moved(self, report: MigrationResult) -> None:
        """As `HeatTable.moved`."""
        super().moved(report)
        self._tap(Moved(report))

    def keep_ranges(self, target: int, ranges: Sequence[WatchedRange]) -> None:
        """As `HeatTable.keep_ranges`; `forget_target` comes here as well."""
        super().keep_ranges(target, ranges)
        self._tap(Keep(target, tuple(sorted(ranges, key=lambda each: each.start))))


def _owned(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values if values.base is None else np.array(values)
