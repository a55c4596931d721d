# SPDX-License-Identifier: Apache-2.0
"""A closed loop of programs, tiers and the cost policy, in NumPy.

Programs run threads that each do one operation after another: compute, then accesses to
arrays, each of which waits for its tier. Tiers slow down with their load by the queue of
`tierd.policy.tiermodel`'s text without its cap, so load, latency and progress are found
together by iteration. Samples are drawn from what was accessed, in order; heat table, pattern
tracker and policy are the service's own; moves succeed at once and load both tiers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from tierd.access import AccessBatch, Domain
from tierd.heat.pattern import PatternTracker
from tierd.heat.table import HeatTable
from tierd.moves import Fate, MovePlan, MoveReport
from tierd.pagekey import PAGE_SIZE
from tierd.policy.inputs import Budget, Inputs, NodeUsage, Policy
from tierd.policy.tiermodel import DEPTH
from tierd.policy.traffic import LINE_BYTES, LoadSource, Measured, Traffic
from tierd.tiermap import MemoryKind, MemoryNode, Provenance, Quantity, Tier, TierMap

LINES = PAGE_SIZE // LINE_BYTES
STANDS_FOR = 64
"""Arrays stand for ones so many times as large, which no cache holds, so that a stream takes so
many times as long to come round, and a move costs so many times as much."""
COPY_CPU_S = 2e-6 * STANDS_FOR


@dataclass(frozen=True)
class SimTier:
    """What a tier is; `told` may lie. Node numbers are positions."""

    kind: MemoryKind
    pages: int
    latency_ns: float
    bandwidth: float
    told_latency_ns: float | None = None
    told_bandwidth: float | None = None


@dataclass
class Array:
    """Pages that a program accesses `lines` times an operation.

    Attributes:
        parallel: share of the accesses that are streamed, in order of the pages.
        skew: pages of random accesses: 0 all alike, else Zipf's exponent.
    """

    name: str
    pages: int
    lines: float
    parallel: float
    written: float = 0.0
    skew: float = 0.0
    first: int = 0
    front: float = 0.0
    weight: np.ndarray = field(default_factory=lambda: np.empty(0))


@dataclass
class Program:
    """Threads, each of which does operations on arrays."""

    arrays: list[Array]
    threads: int = 16
    compute_ns: float = 10.0
    done: float = 0.0


class Machine:
    """Tiers and programs; `solve` gives what happens for a placement."""

    def __init__(self, tiers: Sequence[SimTier], programs: Sequence[Program], seed: int = 1):
        self.tiers, self.programs = list(tiers), list(programs)
        self.rng = np.random.default_rng(seed)
        at = 0
        for array in self.arrays:
            # Arrays begin at multiples of 32 MiB, as large mappings of programs do not: apart.
            array.first, at = at, at + -(-array.pages // 8192) * 8192 + 8192
            ranks = np.arange(1, array.pages + 1) ** -array.skew
            array.weight = self.rng.permutation(ranks / ranks.sum())
        self.idle = np.array([tier.latency_ns for tier in tiers])
        self.wide = np.array([tier.bandwidth for tier in tiers])
        self.load = np.zeros(len(tiers))
        self.copying = np.zeros(len(tiers))
        self.refresh()

    def refresh(self) -> None:
        """Programs or arrays were changed."""
        programs = self.programs
        self._threads = np.array([program.threads for program in programs])
        self._compute_ns = np.array([program.compute_ns for program in programs])
        owner = np.array(
            [[any(a is b for b in p.arrays) for a in self.arrays] for p in programs], float
        )
        parallel = np.array([a.parallel + a.written * (1 - a.parallel) for a in self.arrays])
        lines = np.array([a.lines for a in self.arrays])
        self._waits = owner * lines * ((1 - parallel) + parallel / DEPTH)
        written = np.array([a.written for a in self.arrays])
        self._moved = owner * lines * LINE_BYTES * (1 + written)

    @property
    def arrays(self) -> list[Array]:
        return [array for program in self.programs for array in program.arrays]

    def latency(self, load: np.ndarray) -> np.ndarray:
        u = np.minimum(load / self.wide, 0.9995)
        return self.idle + DEPTH * LINE_BYTES * 1e9 / self.wide * u / (2 * (1 - u))

    def solve(self, shares: Mapping[str, np.ndarray]) -> np.ndarray:
        """Operations a second of each program, for each array's share of accesses by tier.

        Load and latency depend on each other: damped iteration, ever slower.
        """
        where = np.array([shares[a.name] for a in self.arrays])
        wait = self._waits @ where  # latencies an operation waits for, by program and tier
        moved = self._moved @ where  # bytes that an operation moves
        load, step = self.load.copy(), 0.5
        before = np.zeros(len(load))
        for _ in range(300):
            rates = self._threads / (self._compute_ns + wait @ self.latency(load)) * 1e9
            change = rates @ moved + self.copying - load
            # Where it swings, half as far.
            step = max(0.004, step * (0.6 if change @ before < 0 else 1.05))
            step = min(step, 0.5)
            load, before = load + step * change, change
            if np.all(np.abs(change) < 1e-4 * self.wide):
                break
        self.load = np.clip(load, 0, 0.9995 * self.wide)
        return rates

    def best_static(self, grain: int = 8) -> tuple[float, dict[str, np.ndarray]]:
        """The best total over a grid of splits of each array, then finer around it."""
        arrays = self.arrays
        capacity = np.array([tier.pages for tier in self.tiers], float)

        def value(splits: Sequence[np.ndarray]) -> float:
            used = sum(a.pages * s for a, s in zip(arrays, splits, strict=True))
            if np.any(used > capacity + 1e-9):
                return -1.0
            return self.total({a.name: s for a, s in zip(arrays, splits, strict=True)})

        best, found = -1.0, [np.zeros(len(self.tiers))] * len(arrays)
        corners = [s / 2 for s in _splits(len(self.tiers), 2)]
        for splits in product(corners, repeat=len(arrays)):
            if (v := value(splits)) > best:
                best, found = v, list(splits)
        step = 0.25
        while step >= 0.25 / grain:
            moved = False
            for i, (s, t) in product(range(len(arrays)), product(range(len(self.tiers)), repeat=2)):
                if s == t or found[i][s] < step - 1e-9:
                    continue
                trial = [each.copy() for each in found]
                trial[i][s] -= step
                trial[i][t] += step
                if (v := value(trial)) > best * (1 + 1e-6):
                    best, found, moved = v, trial, True
                    continue
                for j in range(len(arrays)):  # ... in exchange for another's pages
                    back = step * arrays[i].pages / arrays[j].pages
                    if j == i or found[j][t] < back - 1e-9:
                        continue
                    other = [each.copy() for each in trial]
                    other[j][t] -= back
                    other[j][s] += back
                    if (v := value(other)) > best * (1 + 1e-6):
                        best, found, moved = v, other, True
                        break
            step = step if moved else step / 2
        return best, {a.name: s for a, s in zip(arrays, found, strict=True)}

    def total(self, shares: Mapping[str, np.ndarray]) -> float:
        """What is compared: operations a second, each program's relative to its first."""
        return float(self.solve(shares).sum())

    def map(self) -> TierMap:
        """The tiers as the host tells them, ranked by latency, 16 CPUs."""
        nodes, tiers = {}, []
        for number, tier in enumerate(self.tiers):
            told = tier.latency_ns if tier.told_latency_ns is None else tier.told_latency_ns
            wide = tier.bandwidth if tier.told_bandwidth is None else tier.told_bandwidth
            figures = Quantity(told, Provenance.HMAT), Quantity(wide, Provenance.HMAT)
            cpus = frozenset(range(16)) if number == 0 else frozenset[int]()
            size = tier.pages * PAGE_SIZE
            nodes[number] = MemoryNode(number, size, cpus, tier.kind, *figures)
            tiers.append(Tier(0, f"{tier.kind}-{number}", tier.kind, (number,), size, *figures))
        tiers.sort(key=lambda tier: (tier.latency_ns.value, tier.nodes))
        ranked = tuple(
            Tier(
                rank,
                t.name,
                t.kind,
                t.nodes,
                t.capacity_bytes,
                t.latency_ns,
                t.bandwidth_bytes_per_s,
            )
            for rank, t in enumerate(tiers)
        )
        return TierMap(ranked, nodes)


def _splits(tiers: int, parts: int) -> list[np.ndarray]:
    every = product(range(parts + 1), repeat=tiers)
    return [np.array(split, float) for split in every if sum(split) == parts]


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
        samples: drawn in a tick, all programs together, about.
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
        self.order, self.told, self.measured = order, told, measured or {}
        pages = max(a.first + a.pages for a in machine.arrays)
        self.node = np.full(pages, -1, np.int16)
        self.moves_of = np.zeros(pages, np.int32)
        self.heat = HeatTable(capacity_pages=2 * pages, half_life_s=self.HALF_LIFE_S)
        self.patterns = PatternTracker(self.HALF_LIFE_S)
        self.now_ns = 10**9
        self.history: list[Tick] = []
        self.last: MoveReport | None = None
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
        rates = self.machine.solve(self.shares())
        load = self.machine.load.copy()
        self.now_ns += int(self.tick_s * 1e9)
        batch, period = self._sample(rates)
        self.heat.ingest(batch)
        self.patterns.add(batch)
        nodes = range(len(self.machine.tiers))
        silent = self.told is LoadSource.NONE
        used = np.bincount(self.node[self.node >= 0], minlength=len(nodes))
        free = tuple(int(t.pages - u) for t, u in zip(self.machine.tiers, used, strict=True))
        usage = {
            n: NodeUsage(self.machine.tiers[n].pages * PAGE_SIZE, free[n] * PAGE_SIZE, 0)
            for n in nodes
        }
        plan = self.policy.decide(
            Inputs(
                self.heat,
                self.tiers,
                usage,
                Budget(int(self.rate * self.tick_s)),
                self.last,
                traffic=Traffic(
                    self.now_ns,
                    self.HALF_LIFE_S,
                    seen_s=self.tick_s * (len(self.history) + 1),
                    load={} if silent else {n: float(load[n]) for n in nodes},
                    source={} if silent else dict.fromkeys(nodes, self.told),
                    lines_per_count=period,
                    patterns=self.patterns.snapshot(),
                    measured=self.measured,
                ),
            )
        )
        before = self.shares()
        self.last = self._move(plan)
        gained = self._gained(before) if len(plan) else 0.0
        self.history.append(
            Tick(float(rates.sum()), len(plan), load, free, gained, self.last.cpu_ns / 1e9)
        )
        for program, rate in zip(self.machine.programs, rates, strict=True):
            program.done += rate * self.tick_s

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
        period = max(1.0, sum(lines) / self.samples)
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
            Domain.VIRTUAL,
            page[order].astype(np.uint64),
            np.ones(len(page), np.float32),
            self.now_ns,
            "sim",
            np.concatenate(writes)[order],
            ordered=self.order,
        )
        return batch, period

    def _move(self, plan: MovePlan) -> MoveReport:
        page, size = plan.page.astype(np.int64), len(self.machine.tiers)
        source = self.node[page]
        assert np.array_equal(source, plan.source)
        self.node[page] = plan.dest
        np.add.at(self.moves_of, page, 1)
        copied = np.bincount(source, minlength=size) + np.bincount(plan.dest, minlength=size)
        self.machine.copying = copied * PAGE_SIZE / self.tick_s
        report = MoveReport(
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
