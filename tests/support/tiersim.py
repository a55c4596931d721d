# SPDX-License-Identifier: Apache-2.0
"""Programs on tiers whose latency grows with their load, in NumPy: `Machine`.

Programs run threads that each do one operation after another: compute, then accesses to
arrays, each of which waits for its tier. Tiers slow down with their load by the queue of
`tierd.policy.tiermodel`'s text without its cap, so load, latency and progress are found
together by iteration. `tierloop` puts a policy beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from tierd.core.access import LINE_BYTES
from tierd.core.pagekey import PAGE_SIZE
from tierd.core.tiermap import MemoryKind, MemoryNode, Provenance, Quantity, Tier, TierMap

DEPTH = 24
"""Lines that a stream has under way."""


@dataclass(frozen=True)
class SimTier:
    """What a tier is; `reported` may lie. Node numbers are positions."""

    kind: MemoryKind
    pages: int
    latency_ns: float
    bandwidth: float
    told_latency_ns: float | None = None
    reported_bandwidth: float | None = None


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
        wait_ns: np.ndarray = DEPTH * LINE_BYTES * 1e9 / self.wide * u / (2 * (1 - u)) + self.idle
        return wait_ns

    def solve(self, shares: Mapping[str, np.ndarray]) -> np.ndarray:
        """Operations a second of each program, for each array's share of accesses by tier.

        Load and latency depend on each other: damped iteration, ever slower.
        """
        where = np.array([shares[a.name] for a in self.arrays])
        wait = self._waits @ where  # latencies an operation waits for, by program and tier
        moved = self._moved @ where  # bytes that an operation moves
        load, step = self.load.copy(), 0.5
        before, rates = np.zeros(len(load)), np.zeros(len(self.programs))
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
        """The tiers as the host tells them, 16 CPUs."""
        return tier_map(self.tiers, 16)


def tier_map(every: Sequence[SimTier], cpu_count: int) -> TierMap:
    """Tiers as a host tells them, ranked by latency."""
    nodes, tiers = {}, []
    for number, tier in enumerate(every):
        told = tier.latency_ns if tier.told_latency_ns is None else tier.told_latency_ns
        wide = tier.bandwidth if tier.reported_bandwidth is None else tier.reported_bandwidth
        figures = Quantity(told, Provenance.HMAT), Quantity(wide, Provenance.HMAT)
        cpus = frozenset(range(cpu_count)) if number == 0 else frozenset[int]()
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
