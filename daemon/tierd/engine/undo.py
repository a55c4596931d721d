# SPDX-License-Identifier: Apache-2.0
"""`Undo`: puts pages back on the nodes where tierd found them, a part in each tick."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any, Final

import numpy as np

from tierd.core import bounds
from tierd.core.logfmt import logfmt
from tierd.core.migration import Fate, MigrationPlan, MigrationResult
from tierd.core.pagekey import PAGE_SIZE, BoolArray, target_of
from tierd.core.tiermap import TierMap
from tierd.engine.tracking import Tracking
from tierd.migration.origins import ROW, Origins, RowArray, in_pages

log = logging.getLogger(__name__)

AGAIN: Final = (Fate.NOT_TRIED, Fate.BUSY, Fate.NO_ROOM)
"""Results after which a page is tried again, when all others have been tried."""
REASONS: Final = {
    Fate.ALREADY_THERE: "moved_by_others",
    Fate.GONE: "gone",
    Fate.JOINED: "part_of_huge",
    Fate.REFUSED: "refused",
    Fate.FAILED: "failed",
}
"""Why a page was left alone, by what became of its move."""


class Undo:
    """Puts back what is known of in `origins` and is still where tierd put it.

    Pages that go down come first, because they make room. A page that somebody else has moved
    since, that is gone, or that is part of a larger folio by now stays where it is.

    Args:
        origins: where pages were. Pages that are still to be put back when the undo is
            cancelled are known there again.

    Attributes:
        wanted: set it, from any thread, to have the next tick begin.
        put_back: 4 KiB pages that have come back since the undo began.
        left_alone: 4 KiB pages that were not put back, by reason.
    """

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._rank: dict[int, int] = {}
        self._rows = self._asked = np.empty(0, ROW)
        self._again: list[RowArray] = []
        self._refused: list[RowArray] = []
        self._round = 0
        self.wanted = self.active = False
        self.put_back = 0
        self.left_alone: Counter[str] = Counter()

    @property
    def pages(self) -> int:
        """4 KiB pages that are still to be put back."""
        return sum(map(_pages, (self._rows, *self._again)))

    def begin(self, tiers: TierMap) -> int:
        """Begin, where it has not begun; the number of 4 KiB pages to put back."""
        self.wanted = False
        if not self.active:
            self._rank = {node: tier.rank for tier in tiers.tiers for node in tier.nodes}
            rows = self._origins.take()
            self._rows = rows[np.argsort(self._goes_up(rows), kind="stable")]
            self._again, self._refused, self._round = [], [], 0
            self.put_back, self.left_alone = 0, Counter()
            self.active = True
        return self.pages

    def as_json(self) -> dict[str, Any]:
        """How far it is; JSON types only."""
        return {
            "active": self.active or self.wanted,
            "pages_left": self.pages,
            "put_back": self.put_back,
            "left_alone": dict(self.left_alone),
        }

    def cancel(self) -> None:
        """Put back no more."""
        self.wanted = False
        if self.active:
            self._end("cancelled")

    def plan(self, tracking: Tracking, most_bytes: int) -> MigrationPlan:
        """The next moves, of at most `most_bytes`, but of one folio at least."""
        if not len(self._rows) and self._again and self._round < bounds.UNDO_ROUNDS:
            self._rows, self._again = np.concatenate(self._again), []
            self._round += 1
        if not len(self._rows):
            self._end("done" if not self._again else "some pages could not be moved")
            return MigrationPlan.empty()
        sizes = np.cumsum(np.int64(PAGE_SIZE) << self._rows["order"].astype(np.int64))
        count = max(1, int(np.searchsorted(sizes, most_bytes, side="right")))
        rows, self._rows = self._rows[:count], self._rows[count:]
        self._asked = rows = self._still_there(tracking, rows)
        direction = self._goes_up(rows).astype(np.uint8)  # 1 is Direction.PROMOTE
        return MigrationPlan(
            page=rows["page"].copy(),
            order=rows["order"].copy(),
            source=rows["node"].copy(),
            dest=rows["origin"].copy(),
            direction=direction,
            heat=np.zeros(len(rows), np.float32),
            notes={"undo": self.pages + _pages(rows)},
        )

    def carried_out(self, report: MigrationResult) -> None:
        """Take in what became of the last plan."""
        fates = report.fate
        self.put_back += _pages(self._asked[fates == Fate.MOVED])
        again = np.isin(fates, AGAIN)
        if again.any():
            self._again.append(self._asked[again])
        for fate, reason in REASONS.items():
            self._leave(reason, self._asked[fates == fate])
        # The kernel may allow another time what it does not allow now.
        self._refused.append(self._asked[np.isin(fates, (Fate.REFUSED, Fate.FAILED))])

    def forget(self, target: int) -> None:
        """A target ended: its number may be another's from now on."""
        if self.active:
            self._rows = _of_others(self._rows, target)
            self._again = [_of_others(rows, target) for rows in self._again]
            self._refused = [_of_others(rows, target) for rows in self._refused]

    def _goes_up(self, rows: RowArray) -> BoolArray:
        """Which folios go to a faster tier, bool[n]; nodes without a tier are the slowest."""
        most = int(max(np.max(rows["origin"], initial=0), np.max(rows["node"], initial=0)))
        rank = np.array([self._rank.get(node, len(self._rank)) for node in range(most + 1)])
        up: BoolArray = rank[rows["origin"]] < rank[rows["node"]]
        return up

    def _still_there(self, tracking: Tracking, rows: RowArray) -> RowArray:
        """Those that are where tierd put them; pages of a folio that was split come next."""
        node, order = tracking.where(rows["page"])
        split = (rows["order"] > order) & (node >= 0)
        if split.any():
            self._rows = np.concatenate([in_pages(rows[split], split[split]), self._rows])
        joined = rows["order"] < order
        there = (node == rows["node"]) & (rows["order"] == order)
        self._leave("part_of_huge", rows[joined])
        if (node == bounds.UNANSWERED).any():
            self._again.append(rows[node == bounds.UNANSWERED])
        self._leave("gone", rows[~joined & (node < 0) & (node != bounds.UNANSWERED)])
        self._leave("moved_by_others", rows[~joined & ~split & ~there & (node >= 0)])
        found: RowArray = rows[there]
        return found

    def _leave(self, reason: str, rows: RowArray) -> None:
        if len(rows):
            self.left_alone[reason] += _pages(rows)

    def _end(self, how: str) -> None:
        left = np.concatenate([self._rows, *self._again])
        self._origins.restore(np.concatenate([left, *self._refused]))
        self._leave("not_moved", left)
        self._rows, self._again, self.active = self._rows[:0], [], False
        log.warning(
            logfmt(event="undone", how=how, pages=self.put_back, left_alone=dict(self.left_alone))
        )


def _of_others(rows: RowArray, target: int) -> RowArray:
    others: RowArray = rows[target_of(rows["page"]) != target]
    return others


def _pages(rows: RowArray) -> int:
    """4 KiB pages of folios."""
    return int((np.int64(1) << rows["order"].astype(np.int64)).sum())
