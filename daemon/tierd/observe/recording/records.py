# SPDX-License-Identifier: Apache-2.0
"""What a recording holds of a tick: all that changed heat, the decision, and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tierd.core.access import AccessBatch
from tierd.core.migration import MigrationPlan, MigrationResult
from tierd.core.tiermap import NodeUsage, TierMap
from tierd.hotness.table import HeatTable
from tierd.migration.tap import FastPathLog
from tierd.policy.inputs import Traffic
from tierd.policy.limits import Budget, Groups


class HeatOp(NamedTuple):
    """A call that changed heat: a method of `HeatTable`, and its arguments in order.

    "new" is no method: an empty table, of these arguments, took the place of the one before.
    """

    method: str
    arguments: tuple[Any, ...]


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
        started: UTC, ISO 8601.
        clock_ns: CLOCK_MONOTONIC at the same moment.
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
        return [op.arguments[0] for op in (*self.ops, *self.late) if op.method == "ingest"]


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
        tap(HeatOp("new", (capacity_pages, half_life_s, refresh_s)))
        for name, kept in KEPT.items():
            setattr(self, name, self._tapped(getattr(self, name), kept))

    def _tapped(
        self, method: Callable[..., None], kept: Callable[..., tuple[Any, ...]]
    ) -> Callable[..., None]:
        def call(*places: Any, **named: Any) -> None:
            method(*places, **named)
            self._tap(HeatOp(method.__name__, kept(*places, **named)))

        return call


def _owned_batch(batch: AccessBatch) -> tuple[AccessBatch]:
    arrays = {name: getattr(batch, name) for name in ("page", "count", "is_write", "node")}
    kept: dict[str, Any] = {n: _owned(each) for n, each in arrays.items() if each is not None}
    return (replace(batch, **kept),)


def _owned(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values if values.base is None else np.array(values)


def _as_given(*arguments: Any) -> tuple[Any, ...]:
    return arguments


KEPT: Final[Mapping[str, Callable[..., tuple[Any, ...]]]] = {
    "advance": _as_given,
    "set_half_life": _as_given,
    "fade": _as_given,
    "hold": _as_given,
    "limit": _as_given,
    "ingest": _owned_batch,
    "place": lambda page, node, order, *, insert_on: (
        _owned(page),
        _owned(node),
        _owned(order),
        tuple(insert_on),
    ),
    "moved": _as_given,
    "keep_ranges": lambda target, ranges: (
        target,
        tuple(sorted(ranges, key=lambda each: each.start)),
    ),
}
"""The methods of a heat table that change heat: what is kept of their arguments.

`HeatTable.forget_target` keeps no ranges.
"""
