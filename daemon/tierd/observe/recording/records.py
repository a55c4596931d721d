# SPDX-License-Identifier: Apache-2.0
"""What a recording holds of a tick: all that changed heat, the decision, and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tierd.core.access import AccessBatch, WatchedRange
from tierd.core.migration import I16Array, MigrationPlan, MigrationResult, U8Array
from tierd.core.nodes import NodeUsage
from tierd.core.pagekey import U64Array
from tierd.core.tiermap import TierMap
from tierd.hotness.table import HeatTable
from tierd.migration.tap import FastPathLog
from tierd.policy.limits import Budget, Groups
from tierd.policy.traffic import Traffic


@dataclass(frozen=True, slots=True)
class NewHeat:
    """An empty heat table took the place of the one before."""

    capacity_pages: int
    half_life_s: float
    refresh_s: float


@dataclass(frozen=True, slots=True)
class Advance:
    """`HeatTable.advance`."""

    time_ns: int


@dataclass(frozen=True, slots=True)
class SetHalfLife:
    """`HeatTable.set_half_life`."""

    half_life_s: float


@dataclass(frozen=True, slots=True)
class Fade:
    """`HeatTable.fade`."""

    half_lives: float


@dataclass(frozen=True, slots=True)
class Ingest:
    """`HeatTable.ingest`."""

    batch: AccessBatch


@dataclass(frozen=True, slots=True)
class Place:
    """`HeatTable.place`."""

    page: U64Array
    node: I16Array
    order: U8Array
    insert_on: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Keep:
    """`HeatTable.keep_ranges`; without ranges the target ended."""

    target: int
    ranges: tuple[WatchedRange, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """`HeatTable.moved`."""

    report: MigrationResult


HeatOp = NewHeat | Advance | SetHalfLife | Fade | Ingest | Place | Keep | Moved


DECIDED: Final = "tick.decided"
"""The kind of call that divides those before a tick's decision from those after it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a deciding component: its kind, what it was given, what it decided.

    Values are plain: numbers, texts, truth values, None, and lists of them.
    """

    kind: str
    given: Sequence[Any]
    decided: Sequence[Any]


@dataclass(frozen=True, slots=True)
class RecordedCalls:
    """The calls of a tick, in order, and how many more there had been since the start."""

    calls: tuple[Call, ...] = ()
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class RecordedTarget:
    """A watched process; `comm` and `cgroup` are for people only."""

    number: int
    pid: int
    comm: str
    cgroup: str


@dataclass(frozen=True, slots=True)
class Meta:
    """Where and by what the recording was made.

    Attributes:
        version: tierd's version.
        started: UTC, ISO 8601.
        clock_ns: CLOCK_MONOTONIC at the same moment.
        dry_run: no page was moved.
        host: what results may depend on: machine, kernel, versions of Python and NumPy.
    """

    version: str
    started: str
    clock_ns: int
    dry_run: bool
    host: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordedTick:
    """One tick; see `tierd.observe.tick_record.TickRecord` for what is not explained here.

    Attributes:
        ops: changes of heat before the decision, in order.
        late: those after the decision, while pages moved.
        config: the configuration in force, as TOML.
        moved: heat has taken `report` in.
        calls: what components beside the policy decided since the tick before; None: not recorded.
        fast_path: what the fast path did since then; None: nothing, or it is not recorded.
    """

    number: int
    time_ns: int
    end_ns: int
    source: str
    located: int
    walked: int
    targets: int
    ops: tuple[HeatOp, ...]
    config: str
    tiers: TierMap
    usage: Mapping[int, NodeUsage]
    budget: Budget | None
    plan: MigrationPlan
    report: MigrationResult | None
    moved: bool
    ms: Mapping[str, int]
    groups: Groups | None = None
    late: tuple[HeatOp, ...] = ()
    traffic: Traffic | None = None
    exchanged: frozenset[int] = frozenset()
    calls: RecordedCalls | None = None
    fast_path: FastPathLog | None = None

    @property
    def batches(self) -> list[AccessBatch]:
        """What was ingested."""
        return [op.batch for op in (*self.ops, *self.late) if isinstance(op, Ingest)]


def plan_difference(one: MigrationPlan, other: MigrationPlan) -> str:
    """The first thing in which two plans differ, "" where they are the same bit for bit."""
    if not np.array_equal(one.split, other.split):
        return f"{len(one.split)} splits and {len(other.split)}, or of other folios"
    if len(one) != len(other):
        return f"{len(one)} moves and {len(other)}"
    for name in ("page", "order", "source", "dest", "direction", "heat"):
        first: Any = getattr(one, name)
        second: Any = getattr(other, name)
        if first.dtype != second.dtype or first.tobytes() != second.tobytes():
            return f"the {name} of a move"
    return "" if one.notes == other.notes else "what was held back"


class RecordingHeat(HeatTable):
    """A `HeatTable` whose changes are given to `tap`, in the caller's thread.

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
