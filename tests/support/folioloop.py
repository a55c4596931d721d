# SPDX-License-Identifier: Apache-2.0
"""A closed loop in made-up memory with 2 MiB folios: heat, evidence and the cost policy are real.

A program accesses some pages of an array of folios at random, at a given rate; samples of that go
into the heat table and the pattern tracker. Moves and splits succeed at once. Accesses do
not get faster by it: this is for what ends where, not for how long it takes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tiersim import SimTier, tier_map

from tierd.core.access import LINE_BYTES, AccessBatch
from tierd.core.migration import Fate, MigrationPlan, MigrationResult, SplitFate
from tierd.core.pagekey import PAGE_SIZE
from tierd.core.tiermap import NodeUsage
from tierd.hotness.pattern import PatternTracker
from tierd.hotness.table import HeatTable
from tierd.policy.cost import CostPolicy
from tierd.policy.inputs import Inputs, LoadSource, Traffic
from tierd.policy.limits import Budget

FOLIO = 512
TICK_S = 1.0
HALF_LIFE_S = 5.0
SECOND = 10**9


class FolioLoop:
    """See the module's text.

    Args:
        tiers: of one node each.
        node: where each folio is at first.
        busy: 4 KiB pages of the array (from 0) that are accessed, all alike.
        samples: a tick.
        lines: that a sample stands for.

    Attributes:
        node: int64[pages] where each page is.
        whole: bool[folios].
        plans: so far.
    """

    def __init__(
        self,
        tiers: Sequence[SimTier],
        policy: CostPolicy,
        *,
        node: Sequence[int],
        busy: np.ndarray,
        samples: int = 4000,
        lines: float = 1000.0,
        seed: int = 1,
    ) -> None:
        self._tiers, self._map, self._policy = tiers, tier_map(tiers, 16), policy
        self.node = np.repeat(np.asarray(node), FOLIO)
        self.whole = np.ones(len(node), np.bool_)
        self.plans: list[MigrationPlan] = []
        self._busy, self._samples, self._lines = busy, samples, lines
        self._rng = np.random.default_rng(seed)
        self.heat = HeatTable(capacity_pages=1 << 18, half_life_s=HALF_LIFE_S)
        self._patterns = PatternTracker(HALF_LIFE_S)
        self._time_ns = 100 * SECOND
        self._begun_ns = self._time_ns
        self._last: MigrationResult | None = None
        self._base = np.uint64(1 << 20)

    def _key(self, page: np.ndarray) -> np.ndarray:
        return page.astype(np.uint64) + self._base

    def _place(self) -> None:
        """The residency walk: all of it."""
        page = np.arange(len(self.node))
        head = page % FOLIO == 0
        listed = head | ~np.repeat(self.whole, FOLIO)
        order = np.where(np.repeat(self.whole, FOLIO), 9, 0)[listed].astype(np.uint8)
        self.heat.place(
            self._key(page[listed]), self.node[listed].astype(np.int16), order, insert_on=(0, 1)
        )

    def run(self, ticks: int) -> None:
        """So many decisions."""
        for _ in range(ticks):
            self._tick()

    def _tick(self) -> None:
        self._time_ns += int(TICK_S * SECOND)
        self.heat.advance(self._time_ns)
        self._place()
        page = self._rng.choice(self._busy, self._samples)
        batch = AccessBatch(
            self._key(page),
            np.ones(len(page), np.float32),
            self._time_ns,
            "made-up",
            ordered=True,
        )
        self.heat.ingest(batch)
        self._patterns.add(batch)
        served = np.bincount(self.node[page], minlength=len(self._tiers))
        traffic = Traffic(
            self._time_ns,
            HALF_LIFE_S,
            seen_s=(self._time_ns - self._begun_ns) / SECOND,
            load=dict(enumerate((served * self._lines * LINE_BYTES / TICK_S).tolist())),
            source=dict.fromkeys(range(len(self._tiers)), LoadSource.SAMPLES),
            lines_per_count=self._lines,
            patterns=self._patterns.snapshot(),
        )
        used = np.bincount(self.node, minlength=len(self._tiers))
        usage = {
            node: NodeUsage(tier.pages * PAGE_SIZE, (tier.pages - int(used[node])) * PAGE_SIZE, 0)
            for node, tier in enumerate(self._tiers)
        }
        plan = self._policy.decide(
            Inputs(self.heat, self._map, usage, Budget(1 << 30), last=self._last, traffic=traffic)
        )
        self._last = self._carry_out(plan)
        self.plans.append(plan)

    def _carry_out(self, plan: MigrationPlan) -> MigrationResult | None:
        if not (len(plan) or len(plan.split)):
            return None
        first = (plan.page - self._base).astype(np.int64)
        for page, order, dest in zip(first, plan.order, plan.dest, strict=True):
            self.node[page : page + (1 << int(order))] = dest
        used = np.bincount(self.node, minlength=len(self._tiers))
        assert all(count <= tier.pages for count, tier in zip(used, self._tiers, strict=True))
        report = MigrationResult(
            plan=plan,
            fate=np.full(len(plan), Fate.MOVED, np.uint8),
            node=plan.dest,
            errors={},
            moved_bytes=plan.bytes_planned,
            duration_ns=len(plan) * 3000,
            cpu_ns=len(plan) * 3000,
            retries=0,
            split_fate=np.full(len(plan.split), SplitFate.DONE, np.uint8),
        )
        self.whole[(plan.split - self._base).astype(np.int64) // FOLIO] = False
        if len(plan.split):
            small = np.zeros(len(plan.split), np.uint8)
            self.heat.place(plan.split, self.heat.where(plan.split), small, insert_on=(0, 1))
        self.heat.moved(report)
        return report
