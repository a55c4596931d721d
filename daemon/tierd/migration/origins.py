# SPDX-License-Identifier: Apache-2.0
"""`Origins`: on which node each page was before tierd moved it, for `tierd undo`."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tierd.core import bounds
from tierd.core.bounds import MAX_TARGETS
from tierd.core.migration import MOVED, MigrationResult
from tierd.core.pagekey import HUGE_PAGES, VPN_BITS, BoolArray

ROW: Final = np.dtype([("page", "u8"), ("origin", "i2"), ("node", "i2"), ("order", "u1")])
"""A folio: the page key of its first 4 KiB, the node it was on, the node tierd put it on, log2 of
its 4 KiB pages."""
RowArray = npt.NDArray[np.void]


class Origins:
    """Folios that are not on the node where tierd found them.

    Reports are kept as they come, and put into order when there are as many new moves as folios
    known, so that a move costs the same however many folios there are.

    Args:
        space: the most folios that are known (13 bytes each); what is beyond is counted.

    Attributes:
        dropped: folios that found no space and cannot be put back.

    A folio that found no space and moves again is known from then on, with the node that it was on
    at that time.
    """

    def __init__(self, space: int) -> None:
        self._space = space
        self._rows: RowArray = np.empty(0, ROW)
        self._new: list[MigrationResult | int] = []
        """Reports, and numbers of targets that ended, in the order of their coming."""
        self._moves = 0
        self.dropped = 0

    def moved(self, report: MigrationResult) -> None:
        """Take in what became of a plan."""
        if not len(report.plan):
            return
        self._new.append(report)
        self._moves += len(report.plan)
        if self._moves > max(bounds.UNDO_MOVES, len(self._rows)) or (
            len(self._new) > bounds.UNDO_MOVES
        ):
            self._join()

    def forget(self, target: int) -> None:
        """A target ended: its number may be another's from now on."""
        self._new.append(target)

    def folios(self) -> RowArray:
        """`ROW`[n], ascending by page."""
        self._join()
        return self._rows

    def take(self) -> RowArray:
        """The same, of which none is known afterwards."""
        rows = self.folios()
        self._rows = rows[:0]
        return rows

    def restore(self, rows: RowArray) -> None:
        """Know folios that were taken, as before the moves since."""
        self._rows = np.concatenate([rows, self._rows])

    def _join(self) -> None:
        """Bring what is new into the order of pages: the first origin and the last node count."""
        parts, ended = [self._rows], np.full(MAX_TARGETS, -1)
        for each in self._new:
            if isinstance(each, int):
                ended[each] = sum(map(len, parts))
            else:
                parts.append(_rows_of(each))
        rows = np.concatenate(parts)
        # What came before the end of a target was the target's.
        rows = rows[np.arange(len(rows)) >= ended[rows["page"] >> np.uint64(VPN_BITS)]]
        rows = _apart(rows)
        # A folio of 2 MiB is not its first page; no address has the highest bit.
        key = rows["page"] | (rows["order"] > 0).astype(np.uint64) << np.uint64(VPN_BITS - 1)
        at = np.argsort(key, kind="stable")
        begins = np.flatnonzero(np.diff(key[at], prepend=~key[at][:1]))
        ends = np.append(begins[1:], len(at))[: len(begins)] - 1
        kept = rows[at[begins]]
        kept["node"] = rows["node"][at[ends]]
        kept = kept[kept["origin"] != kept["node"]]
        self.dropped += max(0, len(kept) - self._space)
        self._rows, self._new, self._moves = kept[: self._space], [], 0


def in_pages(rows: RowArray, chosen: BoolArray) -> RowArray:
    """The same with the 4 KiB pages of chosen folios of 2 MiB in the place of these."""
    count = np.where(chosen, HUGE_PAGES, 1)
    pages = np.repeat(rows, count)
    pages["page"] += (np.arange(len(pages)) - np.repeat(np.cumsum(count) - count, count)).astype(
        np.uint64
    )
    pages["order"][np.repeat(chosen, count)] = 0
    return pages


def _apart(rows: RowArray) -> RowArray:
    """Page by page those folios of which pages moved alone as well, before or after."""
    whole, head = rows["order"] > 0, rows["page"] & ~np.uint64(HUGE_PAGES - 1)
    mixed = whole & np.isin(head, head[~whole])
    return in_pages(rows, mixed) if mixed.any() else rows


def _rows_of(report: MigrationResult) -> RowArray:
    """The folios of a report that moved and whose node was known."""
    plan = report.plan
    moved = (report.fate == MOVED) & (plan.source >= 0)
    rows = np.empty(np.count_nonzero(moved), ROW)
    rows["page"], rows["order"] = plan.page[moved], plan.order[moved]
    rows["origin"], rows["node"] = plan.source[moved], report.node[moved]
    return rows
