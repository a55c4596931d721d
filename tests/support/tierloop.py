# SPDX-License-Identifier: Apache-2.0
"""A closed loop of a made-up machine and a policy: `Loop`.

Samples are drawn from what was accessed, in order; heat table, pattern tracker and policy are
the service's own; moves succeed at once and load both tiers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from tiersim import Array, Machine, Program, SimTier

from tierd.core.access import LINE_BYTES, AccessBatch
from tierd.core.migration import Fate, MigrationPlan, MigrationResult
from tierd.core.pagekey import PAGE_SIZE
from tierd.core.tiermap import Measured, NodeUsage
from tierd.hotness.pattern import PatternTracker
from tierd.hotness.table import HeatTable
from tierd.policy.inputs import Inputs, LoadSource, Policy, Traffic
from tierd.policy.limits import Budget

LINES = PAGE_SIZE // LINE_BYTES
STANDS_FOR = 64
"""Arrays stand for ones so many times as large, which no cache holds, so that a stream takes so
many times as long to come round, and a move costs so many times as much."""
COPY_CPU_S = 2e-6 * STANDS_FOR


@dataclass(frozen=True)
class Tick:
    """What a tick did."""

    total: float
    moved: int
    load: np.ndarray
    free: tuple[int, ...]
    gained: float
    """Seconds that its moves saved a second, by the machine's own truth."""
    spent_s: float


class Loop:
    """Machine, heat, patterns and a policy, tick by tick.

    Args:
        machine: what runs.
        policy: decides.
        tick_s: length of a tick.
        samples: drawn in the first tick, all programs together, about.
        rate: bytes that may move in a second.
        order: whether samples keep their order.
        told: where loads are from; NONE leaves them to heat.
        measured: what probes found, by node.
    """

    HALF_LIFE_S = 2.0

    def __init__(
        self,
        machine: Machine,
        policy: Policy,
        *,
        tick_s: float = 0.5,
        samples: int = 10_000,
        rate: int = 200_000_000,
        order: bool = True,
        told: LoadSource = LoadSource.CARD,
        measured: Mapping[int, Measured] | None = None,
    ) -> None:
        self.machine, self.policy = machine, policy
        self.tick_s, self.samples, self.rate = tick_s, samples, rate
        self.order, self.reported, self.measured = order, told, measured or {}
        pages = max(a.first + a.pages for a in machine.arrays)
        self.node = np.full(pages, -1, np.int16)
        self.moves_of = np.zeros(pages, np.int32)
        self.heat = HeatTable(capacity_pages=2 * pages, half_life_s=self.HALF_LIFE_S)
        self.patterns = PatternTracker(self.HALF_LIFE_S)
        self.now_ns = 10**9
        self.history: list[Tick] = []
        self._period = 0.0
        self.last: MigrationResult | None = None
        self.tiers = machine.map()

    def place(self, where: Mapping[str, Sequence[int]]) -> None:
        """Fill arrays, in the order given, into the nodes given for each, as far as they last."""
        room = [tier.pages for tier in self.machine.tiers]
        arrays = {a.name: a for a in self.machine.arrays}
        for name, nodes in where.items():
            array, at = arrays[name], 0
            for node in nodes:
                count = min(array.pages - at, int(room[node] * 0.95))
                self.node[array.first + at : array.first + at + count] = node
                room[node] -= count
                at += count
            assert at == array.pages, f"no room for {name}"
        known = np.flatnonzero(self.node >= 0)
        self.heat.advance(self.now_ns)
        self.heat.place(
            known.astype(np.uint64),
            self.node[known],
            np.zeros(len(known), np.uint8),
            insert_on=range(len(room)),
        )

    def shares(self) -> dict[str, np.ndarray]:
        """Each array's accesses by node."""
        found = {}
        for a in self.machine.arrays:
            node = self.node[a.first : a.first + a.pages]
            even = np.bincount(node, minlength=len(self.machine.tiers)) / a.pages
            skewed = np.bincount(node, a.weight, len(self.machine.tiers))
            found[a.name] = a.parallel * even + (1 - a.parallel) * skewed
        return found

    def share_on(self, name: str, node: int) -> float:
        """Share of an array's pages on a node."""
        array = next(a for a in self.machine.arrays if a.name == name)
        return float((self.node[array.first : array.first + array.pages] == node).mean())

    def total(self) -> float:
        """Operations a second, all programs, as things are now without copying."""
        self.machine.copying[:] = 0
        return self.machine.total(self.shares())

    def run(self, seconds: float) -> None:
        """So many seconds of ticks."""
        for _ in range(round(seconds / self.tick_s)):
            self.tick()

    def tick(self) -> None:
        """One."""
        nodes = range(len(self.machine.tiers))
        rates, load, traffic = self._advance()
        used = np.bincount(self.node[self.node >= 0], minlength=len(nodes))
        free = tuple(int(t.pages - u) for t, u in zip(self.machine.tiers, used, strict=True))
        usage = {
            n: NodeUsage(self.machine.tiers[n].pages * PAGE_SIZE, free[n] * PAGE_SIZE, 0)
            for n in nodes
        }
        budget = Budget(int(self.rate * self.tick_s))
        inputs = Inputs(self.heat, self.tiers, usage, budget, self.last, traffic=traffic)
        plan = self.policy.decide(inputs)
        before = self.shares()
        self.last = self._move(plan)
        gained = self._gained(before) if len(plan) else 0.0
        self.history.append(
            Tick(float(rates.sum()), len(plan), load, free, gained, self.last.cpu_ns / 1e9)
        )

    def _advance(self) -> tuple[np.ndarray, np.ndarray, Traffic]:
        """Let programs run for a tick; operations a second, load by node, what is known."""
        rates = self.machine.solve(self.shares())
        load = self.machine.load.copy()
        self.now_ns += int(self.tick_s * 1e9)
        batch, period = self._sample(rates)
        self.heat.ingest(batch)
        self.patterns.add(batch)
        for program, rate in zip(self.machine.programs, rates, strict=True):
            program.done += rate * self.tick_s
        silent = self.reported is LoadSource.NONE
        nodes = range(len(self.machine.tiers))
        traffic = Traffic(
            self.now_ns,
            self.HALF_LIFE_S,
            seen_s=self.tick_s * (len(self.history) + 1),
            load={} if silent else {n: float(load[n]) for n in nodes},
            source={} if silent else dict.fromkeys(nodes, self.reported),
            lines_per_count=period,
            patterns=self.patterns.snapshot(),
            measured=self.measured,
        )
        return rates, load, traffic

    def _gained(self, before: Mapping[str, np.ndarray]) -> float:
        """What an operation takes less by the latest moves, times operations a second."""
        threads = np.array([program.threads for program in self.machine.programs])
        copying, self.machine.copying = self.machine.copying, np.zeros(len(self.machine.tiers))
        old, new = self.machine.solve(before), self.machine.solve(self.shares())
        self.machine.copying = copying
        return float(((threads / old - threads / new) * old).sum())

    def _sample(self, rates: np.ndarray) -> tuple[AccessBatch, float]:
        """Samples of the tick in the order of time, and how many lines each stands for."""
        lines = [
            rate * a.lines * self.tick_s
            for program, rate in zip(self.machine.programs, rates, strict=True)
            for a in program.arrays
        ]
        # A period stays as it was set, as that of a PMU's event does.
        self._period = period = self._period or max(1.0, sum(lines) / self.samples)
        pages, times, writes = [], [], []
        rng = self.machine.rng
        for a, count in zip(self.machine.arrays, lines, strict=True):
            n = rng.poisson(count / period)
            time = np.sort(rng.random(n))
            streamed = rng.random(n) < a.parallel
            # A stream passes over its array once in pages * LINES of its lines.
            swept = count * a.parallel / LINES / STANDS_FOR
            position = (a.front + time * swept) % a.pages
            a.front = (a.front + swept) % a.pages
            weighted = rng.choice(a.pages, n, p=a.weight)
            pages.append(a.first + np.where(streamed, position.astype(np.int64), weighted))
            times.append(time)
            writes.append(rng.random(n) < a.written)
        page, order = np.concatenate(pages), np.argsort(np.concatenate(times), kind="stable")
        if not self.order:
            order = np.arange(len(page))
        batch = AccessBatch(
            page[order].astype(np.uint64),
            np.ones(len(page), np.float32),
            self.now_ns,
            "sim",
            np.concatenate(writes)[order],
            ordered=self.order,
        )
        return batch, period

    def _move(self, plan: MigrationPlan) -> MigrationResult:
        page, size = plan.page.astype(np.int64), len(self.machine.tiers)
        source = self.node[page]
        assert np.array_equal(source, plan.source)
        self.node[page] = plan.dest
        np.add.at(self.moves_of, page, 1)
        copied = np.bincount(source, minlength=size) + np.bincount(plan.dest, minlength=size)
        self.machine.copying = copied * PAGE_SIZE / self.tick_s
        report = MigrationResult(
            plan,
            np.full(len(plan), Fate.MOVED, np.uint8),
            plan.dest.copy(),
            {},
            len(plan) * PAGE_SIZE,
            duration_ns=int(len(plan) * COPY_CPU_S * 1e9),
            cpu_ns=int(len(plan) * COPY_CPU_S * 1e9),
            retries=0,
        )
        self.heat.moved(report)
        return report


def restless(
    tiers: Sequence[SimTier], policy: Policy, seed: int, seconds: float, every_s: float
) -> Loop:
    """Five arrays of two programs whose use changes at random: DRAM, HBM (less of it), CXL."""
    arrays = [
        Array("a", 2000, 2, 1.0, 0.3),
        Array("b", 3000, 1, 0.0, skew=0.8),
        Array("c", 2500, 1, 1.0),
        Array("d", 4000, 1, 0.0, 0.2),
        Array("e", 3000, 0.5, 0.5, skew=0.5),
    ]
    programs = [Program(arrays[:3], threads=8), Program(arrays[3:], threads=8)]
    dram, hbm, cxl = tiers
    machine = Machine([dram, replace(hbm, pages=4000), cxl], programs, seed)
    loop = Loop(machine, policy)
    loop.place({name: [0, 1, 2] for name in "edcba"})
    rng = np.random.default_rng(seed)
    for _ in range(int(seconds / every_s)):
        loop.run(every_s)
        for array in arrays:
            array.lines = float(rng.choice([0.0, 0.2, 1.0, 3.0]))
        machine.refresh()
    return loop
