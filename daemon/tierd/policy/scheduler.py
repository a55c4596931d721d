# SPDX-License-Identifier: Apache-2.0
"""The cost rule: which groups of pages change tiers because that saves more than it costs.

An access that moves from tier s to t saves

    share · (L_s - L_t) + moved · (W_s · S_s - W_t · S_t)

nanoseconds: its own wait, and what others wait less on s and more on t (L: loaded latency; S:
its slope; W: latencies waited for a second by all accesses of the tier). The benefit of a move
is that, times the accesses expected over the horizon. Its cost is the copy (through both tiers'
bandwidth), unmapping, flushing and mapping again, and, where the destination is full, what the
page loses that gives way, which costs a move of its own. Rates that speak for a move are
taken less their doubt, rates that speak against it plus theirs.

Exchanges are chosen one after another, the most benefit for a byte first, each with the loads
that the ones before would leave. Before one is taken, the whole waiting time with and without
it is compared, so that a step is never so large that it makes matters worse by the model. And
as programs go faster when they wait less, and estimates lag, one decision adds no more than
`COST.load_step` of its bandwidth to the load of a tier that is more than half used: what came of it
is looked at first.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from tierd.core import bounds
from tierd.core.pagekey import F64Array, I64Array
from tierd.core.tuning import COST
from tierd.policy.demand import Kinds
from tierd.policy.placement import Search, Target
from tierd.policy.tiermodel import TierModel


@dataclass(frozen=True, slots=True)
class Rule:
    """What a move must bring.

    Attributes:
        horizon_s: how long accesses are expected to go on.
        margin: relative to the cost, by which the benefit must exceed it.
        folio_s: seconds that a move costs for each folio, beside the copy.
        least: part of what is waited that the end of all moves must save.
    """

    horizon_s: float
    margin: float
    folio_s: float
    least: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """Folios of one group that go to one tier.

    Attributes:
        members: int64[n] indices in the page set.
        saved: predicted seconds of waiting saved a second, at the prices it was chosen by: those
            of the way to the end for a trade, and all steps to an end add up to what that saves.
            Negative for most that make room for the step that follows.
        forced: it is no choice of the rule's: its tier was short of room.
    """

    members: I64Array
    source: int
    dest: int
    saved: float
    forced: bool = False


class MigrationScheduler:
    """One decision in the making.

    Args:
        kinds: what may move; folios are taken out of it.
        weight: float64[tiers] latencies waited for a second on each tier by all accesses.
        room: int64[tiers] bytes that may come in.
        spare: int64[tiers] bytes that may be used while pages change places.
        lines: a second, that may change tier in trades.
    """

    def __init__(
        self,
        model: TierModel,
        kinds: Kinds,
        weight: F64Array,
        *,
        space: I64Array,
        spare: I64Array,
        rule: Rule,
        lines: float = math.inf,
    ) -> None:
        self.model = model
        self._lines_left = lines
        self.kinds = kinds
        self.weight = weight.astype(np.float64)
        self.load = model.load.astype(np.float64)
        self.space, self.spare = space.astype(np.int64), spare.astype(np.int64)
        self.rule = rule
        self.steps: list[Step] = []
        self.notes: Counter[str] = Counter()
        bandwidth = model.bytes_per_s
        self._most_load = np.maximum(
            COST.free_load * bandwidth, self.load + COST.load_step * bandwidth
        )
        self._blocked = np.zeros((len(kinds), len(self.load)), np.bool_)
        self._way: Target | None = None

    def waiting(self, load: F64Array, weight: F64Array) -> float:
        """Seconds waited a second by all accesses."""
        return float(self.model.loaded_ns(load, weight) @ weight) * 1e-9

    def net(self) -> F64Array:
        """Benefit less cost in seconds for a folio of each group, float64[groups, tiers].

        -inf for where it is, and where nothing may go.
        """
        prices = self.model.prices(self.load, self.weight)
        return np.where(self._blocked, -np.inf, self._net(*prices))

    def _net(self, latency: F64Array, crowd: F64Array) -> F64Array:
        """... at these prices."""
        kinds, rule = self.kinds, self.rule
        here = kinds.tier
        nearer = latency[here][:, None] - latency[None, :]
        unit = np.where(nearer > 0, kinds.short[:, None], kinds.long[:, None]) * nearer
        unit += kinds.moved[:, None] * (crowd[here][:, None] - crowd[None, :])
        rate = np.where(unit > 0, kinds.low[:, None], kinds.high[:, None])
        benefit = rule.horizon_s * rate * unit * 1e-9
        net = np.asarray(benefit - (1 + rule.margin) * self._cost())
        net[np.arange(len(kinds)), here] = -np.inf
        return net

    def _cost(self) -> F64Array:
        """Seconds that a move costs, float64[groups, tiers]."""
        byte_s = 1 / self.model.bytes_per_s
        copy = self.kinds.size[:, None] * (byte_s[self.kinds.tier][:, None] + byte_s[None, :])
        return np.asarray(copy + self.rule.folio_s)

    def _demotion_node(self, net: F64Array) -> F64Array:
        """`net` for what gives way: in all tiers but the last it will have to do so again."""
        again = (1 + self.rule.margin) * self._cost()
        again[:, -1] = 0
        return np.asarray(net - again)

    def relieve(self, tier: int, need: int, budget: int) -> int:
        """Send what loses least for a byte out of a tier, until `need` bytes have left.

        Returns:
            Bytes of the moves.
        """
        spent = 0
        while need > spent < budget:
            net = self._demotion_node(self.net())
            net[:, self.spare < self.kinds.size.min(initial=0)] = -np.inf
            here = (self.kinds.tier == tier) & (self.kinds.folios > 0)
            if not here.any():
                break
            value = np.where(here, net.max(axis=1), -np.inf) / self.kinds.size
            group = int(value.argmax())
            if not np.isfinite(value[group]):
                break
            dest = int(net[group].argmax())
            size = int(self.kinds.size[group])
            most = min(need - spent + size - 1, self.spare[dest], budget - spent)
            count = min(int(self.kinds.folios[group]), int(most) // size)
            if count <= 0:
                self._blocked[group, dest] = True
                continue
            self._move(group, dest, count, forced=True)
            spent += count * size
        return spent

    def trade(self, budget: int) -> int:
        """Make the exchanges towards the best end, within `budget` bytes; bytes of the moves."""
        if not len(self.kinds):
            return 0
        if self._lines_left <= 0:
            self.notes["awaiting_feedback"] += 1
            return 0
        target = self._target()
        if not self._worth(target):
            self.notes["no_gain"] += 1
            return 0
        self._way, flow = target, target.flow
        net = self._net(target.latency, target.crowd)
        left = budget
        for _ in range(bounds.EXCHANGES):
            open_ = (flow > 0) & (self.kinds.folios[:, None] > 0)
            value = np.where(open_ & ~self._blocked, net, -np.inf) / self.kinds.size[:, None]
            if not (value > 0).any():
                return budget - left
            group, dest = (int(i) for i in np.unravel_index(value.argmax(), value.shape))
            size = int(self.kinds.size[group])
            if left < size:
                self.notes["rate_limit"] += int(flow[value > 0].sum())
                return budget - left
            if self.space[dest] >= size:
                want = min(int(flow[group, dest]), min(left, int(self.space[dest])) // size)
                done = self._try(group, dest, min(want, self._bearable(group, dest)))
                flow[group, dest] -= done // size
            else:
                done = self._swap(group, dest, left, value, flow)
            if not done:
                self._blocked[group, dest] = True
            left -= done
        self.notes["tick_limit"] += 1
        return budget - left

    def promise(self) -> float:
        """Part of what is waited that the best end would save."""
        waited = self.waiting(self.load, self.weight)
        return max(0.0, self._target().saved / waited) if waited > 0 and len(self.kinds) else 0.0

    def _target(self) -> Target:
        cost = (1 + self.rule.margin) / self.rule.horizon_s * self._cost()
        # What is too cold to be worth its own move will have to give way again, but in the last.
        idle_s = self.model.idle_ns * 1e-9
        cold = self.kinds.lines * (idle_s.max() - idle_s.min()) < cost.min(axis=1)
        cost[cold, :-1] *= 2
        search = Search(self.model, self.kinds, self.load, self.weight, space=self.space, cost=cost)
        return search.best()

    def _worth(self, target: Target) -> bool:
        """Whether the end saves more than all moves to it cost."""
        spent = float((self._cost() * target.flow).sum())
        saved = self.rule.horizon_s * target.saved
        if target.saved < self.rule.least * self.waiting(self.load, self.weight):
            return False
        return bool(target.flow.any()) and saved > (1 + self.rule.margin) * spent

    def _try(self, group: int, dest: int, count: int) -> int:
        """Move so many of a group; bytes of it."""
        if count <= 0:
            self.notes["ramp_up_limit"] += int(self.kinds.folios[group])
            return 0
        count = min(count, int(self.kinds.folios[group]))
        self._move(group, dest, count)
        return count * int(self.kinds.size[group])

    def _swap(self, group: int, dest: int, want: int, value: F64Array, flow: I64Array) -> int:
        """Let what loses least for a byte give way to a group's folios, if both together pay."""
        kinds, source = self.kinds, int(self.kinds.tier[group])
        others = value.copy()
        others[kinds.tier != dest] = -np.inf
        space = np.minimum(self.space, self.spare)
        space[source] = self.spare[source]  # which the incoming folios make good
        others[:, space <= 0] = -np.inf
        victim, demotion_node = (int(i) for i in np.unravel_index(others.argmax(), others.shape))
        if not np.isfinite(others[victim, demotion_node]):
            self.notes["no_room"] += int(kinds.folios[group])
            return 0
        if value[group, dest] + others[victim, demotion_node] <= 0:
            self.notes["not_worth_eviction"] += int(kinds.folios[group])
            return 0
        # Whole folios of both: the larger size sets the step.
        into, out = int(kinds.size[group]), int(kinds.size[victim])
        unit = max(into, out)
        amount = min(
            want // 2,
            int(space[demotion_node]),
            int(flow[group, dest]) * into,
            int(flow[victim, demotion_node]) * out,
            self._bearable(victim, demotion_node) * out,
            self._bearable(group, dest, victim) * into,
        )
        amount = amount // unit * unit
        if amount <= 0:
            self.notes["ramp_up_limit"] += int(kinds.folios[group])
            return 0
        for member, to, size in ((victim, demotion_node, out), (group, dest, into)):
            self._move(member, to, amount // size)
            flow[member, to] -= amount // size
        return 2 * amount

    def _bearable(self, group: int, dest: int, instead_of: int | None = None) -> int:
        """Folios of a group that `dest` can bear in this decision."""
        kinds, most = self.kinds, 1 << 60
        each = kinds.lines[group] * kinds.moved[group]
        if instead_of is not None:
            gone = kinds.lines[instead_of] * kinds.moved[instead_of]
            each -= gone * kinds.size[group] / kinds.size[instead_of]
        left = self._most_load[dest] - self.load[dest]
        if each > 0:
            most = int(min(most, max(left, 0) / each))
        if kinds.lines[group] > 0:
            most = int(min(most, self._lines_left / kinds.lines[group]))
        return most

    def _after(self, moves: list[tuple[int, int, int]]) -> tuple[F64Array, F64Array]:
        load, weight = self.load.copy(), self.weight.copy()
        for group, dest, count in moves:
            lines = self.kinds.lines[group] * count
            source = self.kinds.tier[group]
            for tier, sign in ((source, -1), (dest, 1)):
                load[tier] += sign * lines * self.kinds.moved[group]
                weight[tier] += sign * lines * self.kinds.share[group]
        return np.maximum(load, 0), np.maximum(weight, 0)

    def _saved(self, moves: list[tuple[int, int, int]]) -> float:
        return self.waiting(self.load, self.weight) - self.waiting(*self._after(moves))

    def _worth_of(self, group: int, dest: int, count: int) -> float:
        """Seconds saved a second by folios of a group at the prices of the way."""
        assert self._way is not None
        kinds, source = self.kinds, self.kinds.tier[group]
        nearer = self._way.latency[source] - self._way.latency[dest]
        emptier = self._way.crowd[source] - self._way.crowd[dest]
        unit = kinds.share[group] * nearer + kinds.moved[group] * emptier
        return float(count * kinds.lines[group] * unit) * 1e-9

    def _move(self, group: int, dest: int, count: int, *, forced: bool = False) -> None:
        moves = [(group, dest, count)]
        source = int(self.kinds.tier[group])
        saved = self._saved(moves) if self._way is None else self._worth_of(group, dest, count)
        self.load, self.weight = self._after(moves)
        size = count * int(self.kinds.size[group])
        for space in (self.space, self.spare):
            space[source] += size
            space[dest] -= size
        self._lines_left = max(0.0, self._lines_left - count * float(self.kinds.lines[group]))
        members = self.kinds.take(group, count)
        self.steps.append(Step(members, source, dest, saved, forced))
