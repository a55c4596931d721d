# SPDX-License-Identifier: Apache-2.0
"""A replay's world: heat rebuilt from a recording, and pages that follow the replayed plans.

While the replayed plans are the recorded ones, heat changes exactly as it did.
From the first plan on that differs:

- accesses are the recorded ones: the processes would have done the same, and the source
  would have seen the same, wherever the pages were;
- a planned move succeeds at once, except that a move which the recording has as well, of
  the same page to the same node, has the fate that it had there;
- memory that the recording's moves took or freed is free or taken again, as far as the
  pages are elsewhere here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tierd.core import bounds
from tierd.core.migration import Fate, MigrationPlan, MigrationResult, U8Array
from tierd.core.pagekey import PAGE_SIZE, I16Array, U64Array
from tierd.core.tiermap import NodeUsage
from tierd.core.units import format_size
from tierd.hotness.table import HeatTable
from tierd.observe.recording import RecordingError
from tierd.observe.recording.records import (
    HeatOp,
    RecordedTick,
    plan_difference,
)
from tierd.policy.limits import Groups
from tierd.replay.divergence import Divergence

DEFAULT_MEMORY = 4 << 30


class World:
    """Heat, and where pages are.

    Args:
        memory_bytes: a recording that asks for a larger heat table is refused.
        capacity_pages, half_life_s: of the heat table, in place of the recorded ones.
        all_succeed: moves that were not tried (a dry run) count as done.
    """

    def __init__(
        self,
        *,
        memory_bytes: int = DEFAULT_MEMORY,
        capacity_pages: int | None = None,
        half_life_s: float | None = None,
        all_succeed: bool = False,
    ) -> None:
        self._memory_bytes = memory_bytes
        self._capacity_pages = capacity_pages
        self._half_life_s = half_life_s
        self._all_succeed = all_succeed
        self._heat: HeatTable | None = None
        self.divergence = Divergence()

    @property
    def heat(self) -> HeatTable:
        """The heat table. Raises RecordingError: the recording has not made one yet."""
        if self._heat is None:
            raise RecordingError("the recording uses heat before it makes it")
        return self._heat

    def apply(self, op: HeatOp) -> None:
        """Change heat as the recording's heat was changed.

        Raises:
            RecordingError: that cannot be.
        """
        match op:
            case HeatOp("new", (capacity, half_life_s, refresh_s)):
                self._new(self._capacity_pages or capacity, half_life_s, refresh_s)
                return
            case HeatOp("set_half_life") if self._half_life_s is not None:
                return
            case HeatOp("place", (page, recorded, order, insert_on)):
                node = self.divergence.place(page, recorded, order)
                self.heat.place(page, node, order, insert_on=insert_on)
                return
            case HeatOp("keep_ranges", (target, ranges)):
                self.divergence.keep_ranges(target, ranges)
            case HeatOp("moved", (report,)):
                # Moves of others than the policy: they happen here as well.
                self.divergence.forget(report.plan.page[report.fate == Fate.MOVED])
        getattr(self.heat, op.method)(*op.arguments)

    def _new(self, capacity: int, half_life_s: float, refresh_s: float) -> None:
        wanted = capacity * bounds.HEAT_BYTES_PER_PAGE
        if wanted > self._memory_bytes:
            raise RecordingError(
                f"the recording's heat table may take {format_size(wanted)}",
                hint=f"--memory allows {format_size(self._memory_bytes)}; give it more",
            )
        self._heat = HeatTable(
            capacity_pages=capacity,
            half_life_s=self._half_life_s or half_life_s,
            refresh_s=refresh_s,
        )
        self.divergence = Divergence()

    def usage(self, tick: RecordedTick) -> Mapping[int, NodeUsage]:
        """How full the nodes are, for the decision of this tick."""
        return self.divergence.usage(tick.usage)

    def groups(self, tick: RecordedTick) -> Groups | None:
        """What groups have where, for the decision of this tick."""
        return None if tick.groups is None else self.divergence.groups(tick.groups)

    def nodes(self, page: U64Array) -> tuple[I16Array, I16Array]:
        """Where pages are, int16[n]: in the recording, and here; -1 where unknown."""
        here = self.heat.where(page)
        return self.divergence.recorded_nodes(page, here), here

    def carry_out(self, tick: RecordedTick, plan: MigrationPlan) -> MigrationResult | None:
        """The tick's moves, in the recording and here; the report of those here."""
        retry = self._all_succeed and len(plan) > 0
        if not len(self.divergence) and not retry and not plan_difference(plan, tick.plan):
            if tick.report is not None and tick.moved:
                self.heat.moved(tick.report)
            return tick.report
        if tick.report is not None:
            self._recorded_moves(tick.report)
        if not len(plan):
            return None
        report = _simulate(plan, tick.report, all_succeed=self._all_succeed)
        self.heat.moved(report)
        done = report.fate == Fate.MOVED
        self.divergence.move(
            plan.page[done], plan.order[done], plan.source[done], plan.dest[done], recorded=False
        )
        return report

    def _recorded_moves(self, report: MigrationResult) -> None:
        plan = report.plan
        done = (report.fate == Fate.MOVED) & (report.node >= 0)
        self.divergence.move(
            plan.page[done], plan.order[done], plan.source[done], report.node[done], recorded=True
        )
        gone = report.fate == Fate.GONE
        if gone.any():
            self.divergence.forget(plan.page[gone])
            left = {"fate": report.fate[gone], "node": report.node[gone]}
            self.heat.moved(replace(report, plan=plan.take(gone), **left))


def _simulate(
    plan: MigrationPlan, recorded: MigrationResult | None, *, all_succeed: bool
) -> MigrationResult:
    """What would have become of `plan`."""
    fate: U8Array = np.full(len(plan), Fate.MOVED, np.uint8)
    if recorded is not None and len(recorded.plan):
        theirs = recorded.plan
        by_key = np.argsort(theirs.page, kind="stable")
        at = np.searchsorted(theirs.page, plan.page, sorter=by_key)
        at = by_key[np.minimum(at, len(by_key) - 1)]
        same = (theirs.page[at] == plan.page) & (theirs.dest[at] == plan.dest)
        if all_succeed:
            same &= recorded.fate[at] != Fate.NOT_TRIED
        fate[same] = recorded.fate[at[same]]
    moved = fate == Fate.MOVED
    size = np.int64(PAGE_SIZE) << plan.order.astype(np.int64)
    return MigrationResult(
        plan=plan,
        fate=fate,
        node=np.where(moved, plan.dest, plan.source).astype(np.int16),
        errors={},
        moved_bytes=int(size[moved].sum()),
        duration_ns=0,
        cpu_ns=0,
        retries=0,
    )
