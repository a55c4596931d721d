# SPDX-License-Identifier: Apache-2.0
"""The cost rule: which classes of pages change tiers because that saves more than it costs.

An access that moves from tier s to tier d saves

    stall · (L(s) - L(d)) + bytes · (C(s) - C(d))

nanoseconds: what it waits itself, and what all others wait because of it (L: loaded latency;
C: marginal congestion cost of a byte a second). The gain of a move is that, times the accesses
expected over the horizon. Its cost is the copy through both tiers' bandwidth, and unmapping,
flushing and mapping again. Estimates that speak for a move count with their lower confidence
bound, those that speak against it with their upper one.

The best placement of all classes is looked for first (`tierd.policy.placement`). Moves towards it
are scheduled one after another, the most gain for a byte first; where the destination is full, the
class that loses least for a byte is evicted, if both moves together pay. Programs go faster when
they wait less, and estimates lag, so that one decision adds at most `COST.load_step` of its
bandwidth to the load of a tier that is more than half used.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from tierd.core.tuning import COST
from tierd.policy.demand import F64Array, PageClasses
from tierd.policy.pageset import I64Array
from tierd.policy.placement import Placement, Search
from tierd.policy.tiermodel import TierModel

Prices = tuple[F64Array, F64Array]
"""Latency and congestion cost by tier, as of `TierModel.prices`."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a move must bring.

    Attributes:
        horizon_s: how long accesses are expected to go on.
        margin: relative to the cost, by which the gain must exceed it.
        folio_s: seconds that a move costs for each folio, beside the copy.
    """

    horizon_s: float = 10.0
    margin: float = 0.5
    folio_s: float = field(default_factory=lambda: COST.remap_s)

    def gain_s(self, classes: PageClasses, prices: Prices) -> F64Array:
        """Seconds that all accesses save over the horizon by a folio's move, float64[classes,
        tiers]; negative where they lose."""
        latency, congestion = prices
        here = classes.tier
        nearer = latency[here][:, None] - latency[None, :]
        emptier = congestion[here][:, None] - congestion[None, :]
        stall = np.where(nearer > 0, classes.stall_low[:, None], classes.stall_high[:, None])
        each = stall * nearer + classes.line_bytes[:, None] * emptier
        rate = np.where(each > 0, classes.low[:, None], classes.high[:, None])
        return np.asarray(self.horizon_s * rate * each * 1e-9)

    def cost_s(self, classes: PageClasses, model: TierModel) -> F64Array:
        """Seconds that a folio's move costs, float64[classes, tiers]."""
        byte_s = 1 / model.bytes_per_s
        copy = classes.size[:, None] * (byte_s[classes.tier][:, None] + byte_s[None, :])
        return np.asarray(copy + self.folio_s)


@dataclass(frozen=True, slots=True)
class MoveGroup:
    """Folios of one class that go to one tier.

    Attributes:
        members: int64[n] indices in the page set.
        source, dest: ranks.
        saved: predicted seconds of waiting saved a second, at the prices half-way to the best
            placement.
        forced: the rule did not choose it: its tier was short of room.
    """

    members: I64Array
    source: int
    dest: int
    saved: float = 0.0
    forced: bool = False


class MigrationScheduler:
    """One decision in the making.

    Args:
        model: tiers and their present load.
        classes: what may move; folios are taken out of it.
        stalls: float64[tiers] latencies a second that all accesses to each tier wait for.
        space: int64[tiers] bytes that may come in.
        spare: int64[tiers] bytes that may be used while pages change places.
        rule: what a move must bring.
        lines: a second, that may change tier by the rule's choice.
    """

    def __init__(
        self,
        model: TierModel,
        classes: PageClasses,
        stalls: F64Array,
        *,
        space: I64Array,
        spare: I64Array,
        rule: Rule,
        lines: float = math.inf,
    ) -> None:
        self.model, self.classes, self.rule = model, classes, rule
        self.load = model.load.astype(np.float64)
        self.stalls = stalls.astype(np.float64)
        self.space, self.spare = space.astype(np.int64), spare.astype(np.int64)
        self.groups: list[MoveGroup] = []
        self.notes: Counter[str] = Counter()
        self._lines_left = lines
        self._max_load = np.maximum(
            COST.free_load * model.bytes_per_s, self.load + COST.load_step * model.bytes_per_s
        )
        self._blocked = np.zeros((len(classes), len(self.load)), np.bool_)

    def net(self, prices: Prices | None = None) -> F64Array:
        """Gain less cost of a folio's move in seconds, float64[classes, tiers].

        -inf for the tier where it is, and where nothing may go.

        Args:
            prices: None for the present ones.
        """
        prices = prices or self.model.prices(self.load, self.stalls)
        cost = (1 + self.rule.margin) * self.rule.cost_s(self.classes, self.model)
        net = self.rule.gain_s(self.classes, prices) - cost
        net[np.arange(len(self.classes)), self.classes.tier] = -np.inf
        return np.where(self._blocked, -np.inf, net)

    def demote(self, tier: int, need: int, budget: int) -> int:
        """Demote what loses least for a byte from a tier, until `need` bytes have left.

        Returns:
            Bytes of the moves.
        """
        classes, spent = self.classes, 0
        # In all tiers but the last it will have to leave once more.
        again = (1 + self.rule.margin) * self.rule.cost_s(classes, self.model)
        again[:, -1] = 0
        while need > spent < budget:
            net = self.net() - again
            net[:, self.spare < classes.size.min(initial=0)] = -np.inf
            here = (classes.tier == tier) & (classes.folios > 0)
            value = np.where(here, net.max(axis=1, initial=-np.inf), -np.inf) / classes.size
            if not np.isfinite(value).any():
                break
            group = int(value.argmax())
            dest, size = int(net[group].argmax()), int(classes.size[group])
            most = min(need - spent + size - 1, self.spare[dest], budget - spent)
            count = min(int(classes.folios[group]), int(most) // size)
            if count <= 0:
                self._blocked[group, dest] = True
                continue
            self._move(group, dest, count)
            spent += count * size
        return spent

    def exchange(self, budget: int) -> None:
        """Schedule moves of `budget` bytes at most towards the best placement."""
        if not len(self.classes):
            return
        if self._lines_left <= 0:
            self.notes["awaiting_feedback"] += 1
            return
        best = self._best_placement()
        if not self._pays(best):
            self.notes["no_gain"] += 1
            return
        net, flow, size = self.net((best.latency, best.congestion)), best.flow, self.classes.size
        for _ in range(COST.max_exchanges):
            open_ = (flow > 0) & (self.classes.folios[:, None] > 0) & ~self._blocked
            value = np.where(open_, net, -np.inf) / size[:, None]
            if not (value > 0).any():
                return
            group, dest = (int(i) for i in np.unravel_index(value.argmax(), value.shape))
            if budget < size[group]:
                self.notes["rate_limit"] += int(flow[value > 0].sum())
                return
            if self.space[dest] >= size[group]:
                done = self._fill(group, dest, budget, best)
            else:
                done = self._swap(group, dest, budget, value, best)
            self._blocked[group, dest] |= not done
            budget -= done
        self.notes["tick_limit"] += 1

    def _best_placement(self) -> Placement:
        rule, model = self.rule, self.model
        cost = (1 + rule.margin) / rule.horizon_s * rule.cost_s(self.classes, model)
        # What is too cold to be worth its own move will have to leave again, but in the last tier.
        nearest = (model.idle_ns.max() - model.idle_ns.min()) * 1e-9
        cold = self.classes.lines * nearest < cost.min(axis=1)
        cost[cold, :-1] *= 2
        return Search(
            model, self.classes, self.load, self.stalls, space=self.space, cost=cost
        ).best()

    def _pays(self, best: Placement) -> bool:
        """Whether a placement saves more than all moves to it cost."""
        spent = float((self.rule.cost_s(self.classes, self.model) * best.flow).sum())
        saved = self.rule.horizon_s * best.saved
        return bool(best.flow.any()) and saved > (1 + self.rule.margin) * spent

    def _fill(self, group: int, dest: int, budget: int, best: Placement) -> int:
        """Move folios of a class into free room; bytes of them."""
        size, folios = int(self.classes.size[group]), int(self.classes.folios[group])
        want = min(int(best.flow[group, dest]), min(budget, int(self.space[dest])) // size)
        count = min(want, self._bearable(group, dest), folios)
        if count <= 0:
            self.notes["ramp_up_limit"] += folios
            return 0
        self._move(group, dest, count, best)
        return count * size

    def _swap(self, group: int, dest: int, budget: int, value: F64Array, best: Placement) -> int:
        """Evict what loses least for a byte for folios of a class; bytes of both moves."""
        classes, source, flow = self.classes, int(self.classes.tier[group]), best.flow
        others = value.copy()
        others[classes.tier != dest] = -np.inf
        space = np.minimum(self.space, self.spare)
        space[source] = self.spare[source]  # which the incoming folios make good
        others[:, space <= 0] = -np.inf
        victim, away = (int(i) for i in np.unravel_index(others.argmax(), others.shape))
        if not np.isfinite(others[victim, away]):
            self.notes["no_room"] += int(classes.folios[group])
            return 0
        if value[group, dest] + others[victim, away] <= 0:
            self.notes["not_worth_eviction"] += int(classes.folios[group])
            return 0
        into, out = int(classes.size[group]), int(classes.size[victim])
        amount = min(
            budget // 2,
            int(space[away]),
            min(int(flow[group, dest]), self._bearable(group, dest, victim)) * into,
            min(int(flow[victim, away]), self._bearable(victim, away)) * out,
        )
        amount -= amount % max(into, out)  # whole folios of both
        if amount <= 0:
            self.notes["ramp_up_limit"] += int(classes.folios[group])
            return 0
        self._move(victim, away, amount // out, best)
        self._move(group, dest, amount // into, best)
        return 2 * amount

    def _bearable(self, group: int, dest: int, evicted: int | None = None) -> int:
        """Folios of a class that `dest` can bear in this decision, instead of evicted ones."""
        classes, most = self.classes, 1 << 60
        each = classes.lines[group] * classes.line_bytes[group]
        if evicted is not None:
            gone = classes.lines[evicted] * classes.line_bytes[evicted]
            each -= gone * classes.size[group] / classes.size[evicted]
        if each > 0:
            most = int(min(most, max(self._max_load[dest] - self.load[dest], 0) / each))
        if classes.lines[group] > 0:
            most = int(min(most, self._lines_left / classes.lines[group]))
        return most

    def _move(self, group: int, dest: int, count: int, best: Placement | None = None) -> None:
        """Schedule a move, towards the best placement, or forced."""
        classes, source = self.classes, int(self.classes.tier[group])
        lines, size = float(classes.lines[group]) * count, int(classes.size[group]) * count
        stall, line_bytes = classes.stall[group], classes.line_bytes[group]
        saved = 0.0
        if best is not None:
            nearer = best.latency[source] - best.latency[dest]
            emptier = best.congestion[source] - best.congestion[dest]
            saved = float(lines * (stall * nearer + line_bytes * emptier)) * 1e-9
            best.flow[group, dest] -= count
        for tier, sign in ((source, -1), (dest, 1)):
            self.load[tier] = max(0.0, self.load[tier] + sign * lines * line_bytes)
            self.stalls[tier] = max(0.0, self.stalls[tier] + sign * lines * stall)
            self.space[tier] -= sign * size
            self.spare[tier] -= sign * size
        self._lines_left = max(0.0, self._lines_left - lines)
        members = classes.take(group, count)
        self.groups.append(MoveGroup(members, source, dest, saved, best is None))
