# SPDX-License-Identifier: Apache-2.0
"""What the policy asks for, why, and what became of it: `MigrationPlan`, `MigrationResult`."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tierd.core.access import F32Array
from tierd.core.pagekey import PAGE_SIZE, BoolArray, I16Array, U64Array


class Reason(enum.IntEnum):
    """Why a decision about a page came out as it did; `WORDS` says what each means.

    `daemon/native/tierd_promoter.h` repeats those that the fast path has, up to `NOT_WORTH`.
    """

    HOTTER_THAN_THE_COLDEST = 0  # promoted, also where there was room
    MAKES_ROOM = 1  # demoted
    NOT_MOVABLE = 2  # from here on: it stays
    MOVED_LATELY = 3
    NOT_HOTTER = 4
    NO_ROOM = 5
    OVER_QUOTA = 6
    PART_OF_HUGE = 7
    OVERFLOW = 8
    NOT_WORTH = 9
    TOP_TIER = 10
    FAST_PATH = 11
    GROUP_LIMIT = 12


WORDS: Final = {
    Reason.HOTTER_THAN_THE_COLDEST: "hotter by enough than the coldest page of the fast tier",
    Reason.MAKES_ROOM: "among the coldest of its tier, which was short of room",
    Reason.NOT_MOVABLE: "outside the ranges of its process that may be moved",
    Reason.MOVED_LATELY: "moved less than the least residency ago",
    Reason.NOT_HOTTER: "not hotter by enough than the coldest page of the fast tier",
    Reason.NO_ROOM: "no room on the fast tier, and no page known that could make some",
    Reason.OVER_QUOTA: "the bytes that may move in a second were spent",
    Reason.PART_OF_HUGE: "part of a 2 MiB folio, which the next tick moves whole",
    Reason.OVERFLOW: "more hot pages were reported in one interval than are looked at",
    Reason.NOT_WORTH: "asked for too seldom to pay for its moves (policy.break_even_time)",
    Reason.TOP_TIER: "nothing is promoted from its tier, and it is not among the coldest",
    Reason.FAST_PATH: "left to the fast path, which moves what cards report between ticks",
    Reason.GROUP_LIMIT: "a limit of its group",
}


U8Array = npt.NDArray[np.uint8]


class Direction(enum.IntEnum):
    """Which way a page goes."""

    DEMOTE = 0
    PROMOTE = 1


class Fate(enum.IntEnum):
    """What became of one planned move."""

    NOT_TRIED = 0
    """Stopped, out of budget, or dry run; the page is where it was."""
    MOVED = 1
    ALREADY_THERE = 2
    BUSY = 3
    """Still busy after all retries (a reference is held, or write-back runs)."""
    GONE = 4
    """Not present any more: unmapped, swapped, or the process ended."""
    REFUSED = 5
    """The kernel does not allow it (shared page, cpuset, permission)."""
    NO_ROOM = 6
    """The destination node had no free page."""
    FAILED = 7
    """Any other error; `MigrationResult.errors` has its number."""
    JOINED = 8
    """Planned as a 4 KiB page and part of a 2 MiB folio by now; the page is where it was."""


class SplitFate(enum.IntEnum):
    """What became of one 2 MiB folio that was to be split into its 4 KiB pages."""

    NOT_TRIED = 0
    """Stopped, or dry run; the folio is as it was."""
    DONE = 1
    """Looked at afterwards: it is not one folio any more."""
    ALREADY = 2
    """It was in pieces before."""
    GONE = 3
    """Nothing is there any more, or the process ended."""
    REFUSED = 4
    """The kernel left it whole (other processes map it, or somebody holds on to it), does not
    allow it, or cannot tell folios' sizes (PAGEMAP_SCAN, Linux 6.7)."""
    FAILED = 5
    """Any other error."""


_FATES, _WAYS = len(Fate), len(Direction)
PROMOTE: Final = int(Direction.PROMOTE)
DEMOTE: Final = int(Direction.DEMOTE)
MOVED: Final = int(Fate.MOVED)
"""As plain numbers: to look a member of an enumeration up costs more than to compare an array."""


def filled(count: int, value: int, dtype: type[np.integer[Any]]) -> npt.NDArray[Any]:
    """So many times a value; `numpy.full`, at a third of what that costs for a few."""
    array = np.empty(count, dtype)
    array.fill(value)
    return array


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """Moves to make, in this order (demotions first, so that they make room).

    Attributes:
        page: uint64[n] page keys of the first 4 KiB of each folio.
        order: uint8[n], log2 of the folio's 4 KiB pages (0, or 9 for 2 MiB).
        source: int16[n] node the page is thought to be on.
        dest: int16[n] node it shall go to.
        direction: uint8[n] of `Direction`.
        heat: float32[n] heat that the decision was made on, for `explain`.
        notes: counts by reason of what was looked at and not planned.
        split: uint64[m] page keys of the first 4 KiB of 2 MiB folios that shall be split after
            the moves, of which none is one of them; a split moves nothing.
    """

    page: U64Array
    order: U8Array
    source: I16Array
    dest: I16Array
    direction: U8Array
    heat: F32Array
    notes: dict[str, int] = field(default_factory=dict)
    split: U64Array = field(default_factory=lambda: np.empty(0, np.uint64))

    def __len__(self) -> int:
        return len(self.page)

    @property
    def bytes_planned(self) -> int:
        """Bytes that the plan would move."""
        return int((np.uint64(PAGE_SIZE) << self.order.astype(np.uint64)).sum())

    def take(self, chosen: BoolArray) -> MigrationPlan:
        """The moves that are chosen, bool[n]; with all notes and splits."""
        names = ("page", "order", "source", "dest", "direction", "heat")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    @staticmethod
    def empty(notes: dict[str, int] | None = None) -> MigrationPlan:
        """A plan that moves nothing."""
        return MigrationPlan(
            page=np.empty(0, np.uint64),
            order=np.empty(0, np.uint8),
            source=np.empty(0, np.int16),
            dest=np.empty(0, np.int16),
            direction=np.empty(0, np.uint8),
            heat=np.empty(0, np.float32),
            notes=notes or {},
        )


@dataclass(frozen=True, slots=True)
class MigrationResult:
    """The fate of every move of a plan.

    Attributes:
        fate: uint8[n] of `Fate`.
        node: int16[n] node the page is on now, -1 where unknown.
        errors: errno → number of pages, for REFUSED, NO_ROOM, BUSY, GONE and FAILED.
        moved_bytes: bytes that changed node.
        duration_ns: wall time of the moves.
        cpu_ns: CPU time of the thread that made them.
        retries: pages that were tried again because they were busy.
        split_fate: uint8[m] of `SplitFate`, for each of the plan's splits. Their time is in
            none of the figures above.
    """

    plan: MigrationPlan
    fate: U8Array
    node: I16Array
    errors: dict[int, int]
    moved_bytes: int
    duration_ns: int
    cpu_ns: int
    retries: int
    split_fate: U8Array = field(default_factory=lambda: np.empty(0, np.uint8))

    def count(self, fate: Fate, direction: Direction | None = None) -> int:
        """Number of 4 KiB pages with this fate (in one direction, if given)."""
        chosen = self.fate == fate
        if direction is not None:
            chosen &= self.plan.direction == direction
        return int((np.int64(1) << self.plan.order[chosen].astype(np.int64)).sum())

    def counts(self) -> list[list[int]]:
        """Numbers of 4 KiB pages, by fate and then by direction."""
        order = self.plan.order
        kind = self.fate * np.uint8(_WAYS) + self.plan.direction
        if np.count_nonzero(order):
            size = np.int64(1) << order.astype(np.int64)
            counts = np.bincount(kind, size, _FATES * _WAYS).astype(np.int64)
        else:
            counts = np.bincount(kind, minlength=_FATES * _WAYS)
        found: list[list[int]] = counts.reshape(_FATES, _WAYS).tolist()
        return found

    @staticmethod
    def not_tried(plan: MigrationPlan) -> MigrationResult:
        """The report of a plan that was not carried out (dry run)."""
        return MigrationResult(
            plan=plan,
            fate=np.full(len(plan), Fate.NOT_TRIED, np.uint8),
            node=plan.source.copy(),
            errors={},
            moved_bytes=0,
            duration_ns=0,
            cpu_ns=0,
            retries=0,
            split_fate=np.full(len(plan.split), SplitFate.NOT_TRIED, np.uint8),
        )
