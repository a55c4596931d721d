# SPDX-License-Identifier: Apache-2.0
"""Where in a target's address space its accesses are: a few areas, and rows of a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tierd.core.pagekey import U64Array

BLOCK_PAGES = 512
"""Accesses are first counted by 2 MiB."""
MOST_AREAS = 6
F64Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Area:
    """Virtual pages [start, end) of one target; rows [first_row, last_row) show it."""

    start: int
    end: int
    first_row: int
    last_row: int

    @property
    def pages_a_row(self) -> float:
        """4 KiB pages that one row shows."""
        return (self.end - self.start) / (self.last_row - self.first_row)


def find_areas(block: U64Array, accesses: F64Array, rows: int) -> tuple[tuple[Area, ...], float]:
    """Areas of a target, ascending, and the share of accesses that they hold.

    Neighbouring blocks, and blocks with a hole between them that is small beside what is
    touched, are one area; the areas with the most accesses are kept.

    Args:
        block: uint64[n] block numbers (page number / BLOCK_PAGES), ascending.
        accesses: float64[n] accesses to each.
        rows: rows to divide among the areas by their size, one each at least.
    """
    if not len(block):
        return (), 0.0
    hole = np.diff(block.astype(np.int64)) - 1
    first = np.concatenate([[0], np.flatnonzero(hole > max(8, len(block) // 20)) + 1])
    start = block[first].astype(np.int64)
    end = block[np.concatenate([first[1:] - 1, [len(block) - 1]])].astype(np.int64) + 1
    held = np.add.reduceat(accesses, first)
    kept = np.sort(np.argsort(-held, kind="stable")[: min(MOST_AREAS, rows)])
    start, end, share = start[kept], end[kept], float(held[kept].sum() / max(held.sum(), 1e-9))
    return _divide(start, end, rows), share


def _divide(
    start: npt.NDArray[np.int64], end: npt.NDArray[np.int64], rows: int
) -> tuple[Area, ...]:
    size = (end - start).astype(np.float64)
    given = np.maximum(1, np.floor(rows * size / size.sum())).astype(np.int64)
    while given.sum() > rows:
        given[np.argmax(given)] -= 1
    given[np.argmax(size)] += rows - given.sum()
    last = np.cumsum(given)
    return tuple(
        Area(int(a) * BLOCK_PAGES, int(b) * BLOCK_PAGES, int(stop - count), int(stop))
        for a, b, count, stop in zip(start, end, given, last, strict=True)
    )


def rows_of(vpn: U64Array, areas: Sequence[Area]) -> npt.NDArray[np.int64]:
    """The row, int64[n], of each virtual page number; -1 for pages in no area."""
    row = np.full(len(vpn), -1, np.int64)
    for area in areas:
        inside = (vpn >= area.start) & (vpn < area.end)
        offset = (vpn[inside] - np.uint64(area.start)).astype(np.float64)
        row[inside] = area.first_row + (offset / area.pages_a_row).astype(np.int64)
    return row
