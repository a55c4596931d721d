# SPDX-License-Identifier: Apache-2.0
"""`Origins`: on which node each page was before tierd moved it, for `tierd undo`."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tierd.core import bounds
from tierd.core.bounds import MAX_TARGETS
from tierd.core.migration import MOVED, MigrationResult
from tierd.core.pagekey import HUGE_PAGES, SPREAD, VPN_BITS, BoolArray, U64Array

ROW: Final = np.dtype([("page", "u8"), ("origin", "i2"), ("node", "i2"), ("order", "u1")])
"""A folio: the page key of its first 4 KiB, the node it was on, the node tierd put it on, log2 of
its 4 KiB pages."""
RowArray = npt.NDArray[np.void]


class Origins:
    """Folios that are not on the node where tierd found them.

    Reports are kept as they come, and spread over parts when there are enough. A part is put into
    order when many of its folios are new, and no more of them at a time than make a short step of a
    tick, however many folios there are.

    Args:
        space: the most folios that are known (13 bytes each); what is beyond is counted.

    Attributes:
        dropped: folios that found no space and cannot be put back.

    A folio that found no space and moves again is known from then on, with the node that it was on
    at that time.
    """

    def __init__(self, space: int) -> None:
        count = max(1, space // bounds.ORIGIN_PART)
        self._parts = [_Part(-(-space // count)) for _ in range(count)]
        self._turn = 0
        self._new: list[MigrationResult | int] = []
        """Reports, and numbers of targets that ended, in the order of their coming."""
        self._ended: set[int] = set()
        """Targets that ended since the last report; numbers are used again, and one will do."""
        self._moves = 0

    @property
    def dropped(self) -> int:
        """See the class."""
        return sum(part.dropped for part in self._parts)

    @property
    def memory_bytes(self) -> int:
        """Of the folios that are known, and of moves that are not in order yet."""
        return sum(part.rows.nbytes + part.new_rows * ROW.itemsize for part in self._parts)

    def moved(self, report: MigrationResult) -> None:
        """Take in what became of a plan."""
        if not len(report.plan):
            return
        self._new.append(report)
        self._ended = set()
        self._moves += len(report.plan)
        if self._moves > bounds.UNDO_MOVES or len(self._new) > bounds.UNDO_MOVES:
            self._spread()
            self._settle()

    def forget(self, target: int) -> None:
        """A target ended: its number may be another's from now on."""
        if target not in self._ended:
            self._ended.add(target)
            self._new.append(target)

    def folios(self) -> RowArray:
        """`ROW`[n], ascending by page."""
        self._spread()
        for part in self._parts:
            part.join()
        rows = np.concatenate([part.rows for part in self._parts])
        return rows[np.argsort(_key(rows), kind="stable")] if len(self._parts) > 1 else rows

    def take(self) -> RowArray:
        """The same, of which none is known afterwards."""
        rows = self.folios()
        for part in self._parts:
            part.rows = np.empty(0, ROW)
        return rows

    def restore(self, rows: RowArray) -> None:
        """Know folios that were taken, as before the moves since."""
        for part, own in zip(self._parts, self._apart(rows), strict=True):
            part.rows = np.concatenate([own, part.rows])

    def _apart(self, rows: RowArray) -> list[RowArray]:
        """The rows of each part: pages of the same 2 MiB are in the same."""
        count = len(self._parts)
        if count == 1:
            return [rows]
        block = rows["page"] // np.uint64(HUGE_PAGES)
        of = (block * SPREAD >> np.uint64(32)) % np.uint64(count)
        ends = np.cumsum(np.bincount(of.astype(np.intp), minlength=count))
        return np.split(rows[np.argsort(of, kind="stable")], ends[:-1])

    def _spread(self) -> None:
        """Give what is new to the parts, in order."""
        rows: list[RowArray] = []
        for each in [*self._new, None]:
            if isinstance(each, MigrationResult):
                rows.append(_rows_of(each))
                continue
            if rows:
                for part, own in zip(self._parts, self._apart(np.concatenate(rows)), strict=True):
                    part.add(own)
                rows = []
            if each is not None:
                for part in self._parts:
                    part.new.append(each)
        self._new, self._ended, self._moves = [], set(), 0

    def _settle(self) -> None:
        """Put parts into order that need it, in turns."""
        left = bounds.ORIGIN_STEP
        for _ in self._parts:
            part = self._parts[self._turn]
            if part.due:
                if left <= 0:
                    break
                left -= len(part.rows) + part.new_rows
                part.join()
            self._turn = (self._turn + 1) % len(self._parts)


class _Part:
    """Folios of some of all 2 MiB blocks: those in order, and what came since."""

    def __init__(self, space: int) -> None:
        self._space = space
        self.rows: RowArray = np.empty(0, ROW)
        self.new: list[RowArray | int] = []
        self.new_rows = 0
        self.dropped = 0

    def add(self, rows: RowArray) -> None:
        """These moved."""
        if len(rows):
            self.new.append(rows.copy())  # not a view, which would keep those of all parts
            self.new_rows += len(rows)

    @property
    def due(self) -> bool:
        """Whether enough is new to be put into order."""
        enough = bounds.ORIGIN_NEW_FRACTION * max(len(self.rows), bounds.ORIGIN_PART // 8)
        return self.new_rows > enough or len(self.new) > bounds.ORIGIN_PART // 64

    def join(self) -> None:
        """Bring what is new into the order of pages: the first origin and the last node count."""
        parts, ended = [self.rows], np.full(MAX_TARGETS, -1)
        for each in self.new:
            if isinstance(each, int):
                ended[each] = sum(map(len, parts))
            else:
                parts.append(each)
        rows = np.concatenate(parts)
        # What came before the end of a target was the target's.
        rows = rows[np.arange(len(rows)) >= ended[rows["page"] >> np.uint64(VPN_BITS)]]
        rows = _apart(rows)
        key = _key(rows)
        at = np.argsort(key, kind="stable")
        begins = np.flatnonzero(np.diff(key[at], prepend=~key[at][:1]))
        ends = np.append(begins[1:], len(at))[: len(begins)] - 1
        kept = rows[at[begins]]
        kept["node"] = rows["node"][at[ends]]
        kept = kept[kept["origin"] != kept["node"]]
        self.dropped += max(0, len(kept) - self._space)
        self.rows, self.new, self.new_rows = kept[: self._space], [], 0


def _key(rows: RowArray) -> U64Array:
    """A folio of 2 MiB is not its first page; no address has the highest bit."""
    huge = (rows["order"] > 0).astype(np.uint64) << np.uint64(VPN_BITS - 1)
    key: U64Array = rows["page"] | huge
    return key


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
