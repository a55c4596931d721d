# SPDX-License-Identifier: Apache-2.0
"""The placement to move towards: where all groups of pages together wait least.

Time waited is a product of latencies and of what waits, and both depend on the placement, so
there are placements that no exchange of two groups makes better, and one of three would: a chase
that leaves HBM for DRAM gains only when the streams that make DRAM slow have left it, and the
last of these find room in HBM only when the chase is gone. So the end is looked for first.

From several beginnings (as things are, all tiers idle, all equally used) every group goes where
it would wait least by the prices of the moment, as far as there is room: those that would lose
most elsewhere choose first. Then prices are those of the way there at which the whole waits
least, and so on until nothing gains (Frank and Wolfe's method). A move's cost is part of what is
waited, so that what gains less than it costs stays.

A move on the way is worth what it saves at the mean of the prices along the straight way to the
end. With that all moves' worth adds up to what the end saves (Aumann and Shapley's prices), and
none is judged by a state that the others will have changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tierd.core import bounds
from tierd.core.pagekey import F64Array, I64Array
from tierd.core.tuning import COST
from tierd.policy.demand import Kinds
from tierd.policy.tiermodel import TierModel


@dataclass(frozen=True, slots=True)
class Target:
    """An end, and the prices on the way.

    Attributes:
        flow: int64[groups, tiers] folios that go from where they are to each other tier.
        saved: seconds saved a second at the end.
        latency: float64[tiers] ns; crowd: float64[tiers] ns that others wait more for a byte
            a second: means of the way there.
    """

    flow: I64Array
    saved: float
    latency: F64Array
    crowd: F64Array


class Search:
    """One search.

    Args:
        load, weight: float64[tiers] as things are.
        room: int64[tiers] bytes that may come in.
        cost: float64[groups, tiers] seconds waited a second that a folio's move has to save.
    """

    def __init__(
        self,
        model: TierModel,
        kinds: Kinds,
        load: F64Array,
        weight: F64Array,
        *,
        space: I64Array,
        cost: F64Array,
    ) -> None:
        self._model, self._kinds = model, kinds
        self._tiers = len(load)
        self._at = np.arange(len(kinds))
        self._here = np.zeros((len(kinds), self._tiers))
        self._here[self._at, kinds.tier] = kinds.folios
        self._bytes = (kinds.lines * kinds.moved)[:, None]
        self._waits = kinds.weight[:, None]
        self._cost = cost.copy()
        self._cost[self._at, kinds.tier] = 0.0
        self._size = kinds.size.astype(np.float64)
        held = self._size @ self._here
        # A tier that has too little room keeps what it has: `relieve` sees to that.
        self._most = held + np.maximum(space, 0)
        self._load = np.maximum(load - (self._bytes * self._here).sum(axis=0), 0)
        self._weight = np.maximum(weight - (self._waits * self._here).sum(axis=0), 0)

    def best(self) -> Target:
        """The best end that was found."""
        now, best = self._waited(self._here), self._here
        least = now
        for begin in self._beginnings():
            found, waited = self._descend(begin)
            if waited < least * (1 - COST.placement_min_gain):
                best, least = found, waited
        return self._target(best)

    def _sums(self, placed: F64Array) -> tuple[F64Array, F64Array]:
        load = self._load + (self._bytes * placed).sum(axis=0)
        return load, self._weight + (self._waits * placed).sum(axis=0)

    def _waited(self, placed: F64Array) -> float:
        """Seconds a second, with what moving there costs."""
        load, weight = self._sums(placed)
        waited = float(self._model.loaded_ns(load, weight) @ weight) * 1e-9
        return waited + float((self._cost * placed).sum())

    def _prices(self, placed: F64Array) -> tuple[F64Array, F64Array]:
        load, weight = self._sums(placed)
        return self._model.prices(load, weight)

    def _each(self, latency: F64Array, crowd: F64Array) -> F64Array:
        """What a folio waits and makes others wait on each tier, float64[groups, tiers]."""
        waits = self._waits * latency[None, :] + self._bytes * crowd[None, :]
        return np.asarray(waits * 1e-9 + self._cost)

    def _beginnings(self) -> Iterator[F64Array]:
        yield self._here
        none = np.zeros(self._tiers)
        yield self._transport(self._each(self._model.idle_ns, none))
        load, weight = self._sums(self._here)
        wide = self._model.bytes_per_s
        even = load.sum() * wide / wide.sum()
        latency, crowd = self._model.prices(even, weight.sum() * wide / wide.sum())
        yield self._transport(self._each(latency, crowd))
        yield self._transport(self._each(self._model.idle_ns, crowd))

    def _descend(self, placed: F64Array) -> tuple[F64Array, float]:
        waited = self._waited(placed)
        for _ in range(bounds.PLACEMENT_ITERATIONS):
            change = self._transport(self._each(*self._prices(placed))) - placed
            found = self._along(placed, change)
            best = int(np.argmin(found))
            if found[best] >= waited * (1 - COST.placement_min_gain):
                break
            placed, waited = placed + COST.step_sizes[best] * change, float(found[best])
        return placed, waited

    def _along(self, placed: F64Array, change: F64Array) -> F64Array:
        """`_waited` of all parts of a way: sums are linear in them."""
        load, weight = self._sums(placed)
        sizes = np.array(COST.step_sizes)
        ways = sizes[:, None]
        loads = load + ways * (self._bytes * change).sum(axis=0)
        weights = weight + ways * (self._waits * change).sum(axis=0)
        waited = (self._model.loaded_ns(loads, weights) * weights).sum(axis=1) * 1e-9
        cost = float((self._cost * placed).sum()) + sizes * float((self._cost * change).sum())
        return np.asarray(waited + cost)

    def _transport(self, each: F64Array) -> F64Array:
        """All folios where they cost least, as far as there is room; float64[groups, tiers].

        Who would lose most for a byte by going elsewhere chooses first (Vogel's rule).
        """
        placed = np.zeros_like(each)
        left = self._here.sum(axis=1)
        space = self._most.copy()
        price = each / self._size[:, None]
        for _ in range(self._tiers):
            waiting = np.flatnonzero(left > 0)
            if not len(waiting):
                break
            options = price[waiting]
            first = options.argmin(axis=1)
            at = np.arange(len(waiting))
            lowest = options[at, first]
            options = options.copy()
            options[at, first] = np.inf
            regret = options.min(axis=1) - lowest
            for tier in range(self._tiers):
                own = waiting[(first == tier)]
                if not len(own):
                    continue
                own = own[np.argsort(-regret[first == tier], kind="stable")]
                ends = np.cumsum(left[own] * self._size[own])
                begins = ends - left[own] * self._size[own]
                fits = np.clip(space[tier] - begins, 0, left[own] * self._size[own])
                folios = fits / self._size[own]
                placed[own, tier] += folios
                left[own] -= folios
                left[own[left[own] < 1e-9]] = 0
                space[tier] -= fits.sum()
                if ends[-1] > fits.sum() + 1:
                    price[:, tier] = np.inf
        stay = np.flatnonzero(left > 0)  # no room anywhere: rounding, or all is full
        placed[stay, self._kinds.tier[stay]] += left[stay]
        return placed

    def _target(self, best: F64Array) -> Target:
        steps = (np.arange(COST.gradient_points) + 0.5) / COST.gradient_points
        points = [self._prices(self._here + way * (best - self._here)) for way in steps]
        latency = np.mean([each[0] for each in points], axis=0)
        crowd = np.mean([each[1] for each in points], axis=0)
        flow = np.floor(best + 1e-6).astype(np.int64)
        flow[self._at, self._kinds.tier] = 0
        (load, weight), (then, after) = self._sums(self._here), self._sums(best)
        saved = self._model.loaded_ns(load, weight) @ weight
        saved -= self._model.loaded_ns(then, after) @ after
        return Target(flow, float(saved) * 1e-9, latency, crowd)
