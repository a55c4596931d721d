# SPDX-License-Identifier: Apache-2.0
"""The placement optimiser: where all classes of pages together wait least.

The time waited is a product of latencies and of what waits, and both depend on the placement. So
there are placements that no exchange of two classes improves, while one of three would: a chase
gains by leaving HBM for DRAM only when the streams that slow DRAM down have left it, and the last
of these find room in HBM only when the chase is gone. Therefore the whole placement is looked for
first, from several starts: as things are, for idle tiers, and for tiers that are used equally.

From each start, every class goes where it waits least at the present prices, as far as there is
room, and the optimiser takes the part of that change at which the whole waits least. It repeats
this until nothing improves (the method of Frank and Wolfe). What a move costs is part of what is
waited, so that a class that would gain less than it costs stays.

A move is worth what it saves at the prices half-way from the present placement to the best one.
These worths nearly add up to what the best placement saves, and no move is judged by a state that
the others will have changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tierd.core.tuning import COST
from tierd.policy.demand import F64Array, PageClasses
from tierd.policy.pageset import I64Array
from tierd.policy.tiermodel import TierModel


@dataclass(frozen=True, slots=True)
class Placement:
    """The best placement, and the prices half-way to it.

    Attributes:
        flow: int64[classes, tiers] folios that are to go to each other tier; counted down.
        saved: seconds of waiting that it saves a second.
        latency, congestion: float64[tiers] prices half-way, as of `TierModel.prices`.
    """

    flow: I64Array
    saved: float
    latency: F64Array
    congestion: F64Array


class Search:
    """One search. A placement is float64[classes, tiers] folios.

    Args:
        model: the tiers.
        classes: what may move.
        load, stalls: float64[tiers] as things are.
        space: int64[tiers] bytes that may come in.
        cost: float64[classes, tiers] seconds a second that a folio's move has to save.
    """

    def __init__(
        self,
        model: TierModel,
        classes: PageClasses,
        load: F64Array,
        stalls: F64Array,
        *,
        space: I64Array,
        cost: F64Array,
    ) -> None:
        self._model, self._tier, self._tiers = model, classes.tier, len(load)
        self._at = np.arange(len(classes))
        self._here = np.zeros((len(classes), self._tiers))
        self._here[self._at, classes.tier] = classes.folios
        self._bytes = (classes.lines * classes.line_bytes)[:, None]
        self._stalls = (classes.lines * classes.stall)[:, None]
        self._cost = cost.copy()
        self._cost[self._at, classes.tier] = 0.0
        self._size = classes.size.astype(np.float64)
        # A tier that is short of room keeps what it has here: the scheduler demotes from it.
        self._max_bytes = self._size @ self._here + np.maximum(space, 0)
        self._other_load = np.maximum(load - (self._bytes * self._here).sum(axis=0), 0)
        self._other_stalls = np.maximum(stalls - (self._stalls * self._here).sum(axis=0), 0)

    def best(self) -> Placement:
        """The best placement that was found."""
        best, least = self._here, self._waited(self._here)
        for start in self._starts():
            found, waited = self._descend(start)
            if waited < least * (1 - COST.placement_min_gain):
                best, least = found, waited
        return self._with_prices(self._polish(best))

    def _sums(self, placed: F64Array) -> tuple[F64Array, F64Array]:
        """Load and stalls of a placement."""
        load = self._other_load + (self._bytes * placed).sum(axis=0)
        return load, self._other_stalls + (self._stalls * placed).sum(axis=0)

    def _waited(self, placed: F64Array) -> float:
        """Seconds a second, with the cost of the moves."""
        return self._model.waited_s(*self._sums(placed)) + float((self._cost * placed).sum())

    def _each(self, latency: F64Array, congestion: F64Array) -> F64Array:
        """What a folio waits, makes others wait and costs, float64[classes, tiers]."""
        waits = self._stalls * latency[None, :] + self._bytes * congestion[None, :]
        return np.asarray(waits * 1e-9 + self._cost)

    def _starts(self) -> Iterator[F64Array]:
        model, none = self._model, np.zeros(self._tiers)
        yield self._here
        yield self._transport(self._each(model.idle_ns, none))
        load, stalls = self._sums(self._here)
        part = model.bytes_per_s / model.bytes_per_s.sum()
        latency, congestion = model.prices(load.sum() * part, stalls.sum() * part)
        yield self._transport(self._each(latency, congestion))
        yield self._transport(self._each(model.idle_ns, congestion))

    def _descend(self, placed: F64Array) -> tuple[F64Array, float]:
        """The best placement from a start, and what is waited there."""
        waited = self._waited(placed)
        for _ in range(COST.placement_iterations):
            prices = self._model.prices(*self._sums(placed))
            change = self._transport(self._each(*prices)) - placed
            found = self._along(placed, change)
            best = int(np.argmin(found))
            if found[best] >= waited * (1 - COST.placement_min_gain):
                break
            placed, waited = placed + COST.step_sizes[best] * change, float(found[best])
        return placed, waited

    def _along(self, placed: F64Array, change: F64Array) -> F64Array:
        """`_waited` after each of `COST.step_sizes` parts of a change."""
        load, stalls = self._sums(placed)
        sizes = np.array(COST.step_sizes)
        loads = load + sizes[:, None] * (self._bytes * change).sum(axis=0)
        all_stalls = stalls + sizes[:, None] * (self._stalls * change).sum(axis=0)
        waited = (self._model.loaded_ns(loads, all_stalls) * all_stalls).sum(axis=1) * 1e-9
        cost = float((self._cost * placed).sum()) + sizes * float((self._cost * change).sum())
        return np.asarray(waited + cost)

    def _transport(self, each: F64Array) -> F64Array:
        """All folios where they cost least, as far as there is room (greedy transport).

        The class that would lose most for a byte by going elsewhere chooses first (Vogel's rule).
        """
        placed, left, space = np.zeros_like(each), self._here.sum(axis=1), self._max_bytes.copy()
        price = each / self._size[:, None]
        for _ in range(self._tiers):
            waiting = np.flatnonzero(left > 0)
            if not len(waiting):
                break
            options, at = price[waiting].copy(), np.arange(len(waiting))
            first = options.argmin(axis=1)
            lowest = options[at, first]
            options[at, first] = np.inf
            regret = options.min(axis=1) - lowest
            for tier in np.unique(first):
                own = waiting[first == tier]
                own = own[np.argsort(-regret[first == tier], kind="stable")]
                size = left[own] * self._size[own]
                ends = np.cumsum(size)
                fits = np.clip(space[tier] - (ends - size), 0, size)
                placed[own, tier] += fits / self._size[own]
                left[own] -= fits / self._size[own]
                left[own[left[own] < 1e-9]] = 0
                space[tier] -= fits.sum()
                if ends[-1] > fits.sum() + 1:
                    price[:, tier] = np.inf
        stay = np.flatnonzero(left > 0)  # rounding, or all tiers are full
        placed[stay, self._tier[stay]] += left[stay]
        return placed

    def _polish(self, placed: F64Array) -> F64Array:
        """Move single classes while that gains: a change of all classes leaves out a few."""
        for _ in range(COST.polish_groups):
            group, source, dest = np.nonzero(
                (placed[:, :, None] > 0) & ~np.eye(self._tiers, dtype=np.bool_)[None]
            )
            if not len(group):
                break
            space = np.maximum(self._max_bytes - self._size @ placed, 0)
            folios = np.minimum(placed[group, source], space[dest] / self._size[group])
            load, stalls = self._sums(placed)
            loads, all_stalls = (np.tile(each, (len(group), 1)) for each in (load, stalls))
            at = np.arange(len(group))
            for sums, each in ((loads, self._bytes), (all_stalls, self._stalls)):
                sums[at, source] -= folios * each[group, 0]
                sums[at, dest] += folios * each[group, 0]
            waited = (self._model.loaded_ns(loads, all_stalls) * all_stalls).sum(axis=1) * 1e-9
            waited += folios * (self._cost[group, dest] - self._cost[group, source])
            best = int(waited.argmin())
            if waited[best] >= self._model.waited_s(load, stalls) * (1 - COST.polish_min_gain):
                break
            placed = placed.copy()
            placed[group[best], source[best]] -= folios[best]
            placed[group[best], dest[best]] += folios[best]
        return placed

    def _with_prices(self, best: F64Array) -> Placement:
        prices = self._model.prices(*self._sums((self._here + best) / 2))
        flow = np.floor(best + 1e-6).astype(np.int64)
        flow[self._at, self._tier] = 0
        saved = self._model.waited_s(*self._sums(self._here))
        saved -= self._model.waited_s(*self._sums(best))
        return Placement(flow, saved, *prices)
