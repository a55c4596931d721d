# SPDX-License-Identifier: Apache-2.0
"""The cost policy: a page is where the time that its accesses take, and cost others, is least.

Owns: one decision from heat, traffic and room; what is learned from outcomes.
Must not touch: the host, clocks, random numbers.

One rule (`tierd.policy.exchange`) makes all decisions: what comes in, what gives way, what
leaves a tier that is short of room, and what is left alone. It knows no ladder: HBM, which is
wide and not near, attracts streams and nothing else, and when a tier's loaded latency passes
that of another, pages leave it until both are level.

Watermarks, shares of groups and the least residency hold as in the watermark policy
(`tierd.policy.watermark`), and HBM keeps a share of its room for groups that have a floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import numpy as np

from tierd.heat.view import PageSet
from tierd.moves import Direction, I16Array, MovePlan
from tierd.pagekey import U64Array
from tierd.policy import pageset
from tierd.policy.costwords import sentence
from tierd.policy.demand import Demand, Kinds, estimate, kinds_of
from tierd.policy.exchange import REMAP_S, Exchange, Rule, Step
from tierd.policy.inputs import Inputs
from tierd.policy.outcome import EPOCH_S, Outcomes
from tierd.policy.pageset import I64Array
from tierd.policy.tiermodel import TierModel, make_model
from tierd.policy.traffic import LINE_BYTES, Traffic
from tierd.policy.watermark import Round, WatermarkSettings
from tierd.tiermap import MemoryKind, Tier, TierMap

LADDERS = ("time", "latency")
SPREAD = 256
"""Parts of memory by which the spread of accesses is compared."""
HALF_LIFE_S = 5.0
"""Of heat, where nobody tells."""


@dataclass(frozen=True, slots=True)
class CostSettings:
    """The rule's knobs, beside those of the watermarks.

    Attributes:
        watermarks: watermarks, confidence, residency and moves a tick.
        horizon_s: how long accesses are expected to go on as they are.
        margin: by how much, relative to a move's cost, its benefit exceeds it, at least.
        reserve: share of HBM that is kept free for groups with a floor.
        epoch_s: how long what moves bring is looked at before the next ones follow.
        ladder: "time", or "latency" for tiers that differ in idle latency alone.
    """

    watermarks: WatermarkSettings = field(default_factory=WatermarkSettings)
    horizon_s: float = 10.0
    margin: float = 0.5
    reserve: float = 0.0
    epoch_s: float = EPOCH_S
    ladder: str = "time"


@dataclass(frozen=True, slots=True)
class Sight:
    """What the last decision was made on, for status, metrics and explanations.

    Attributes:
        model: tiers, loads and their sources.
        loaded_ns: loaded latency by rank.
        trust, margin: learned.
        correlation: of predicted with observed gains, NaN until known.
        predicted, observed: seconds saved a second, all epochs together.
        spent_s: seconds of moving in them.
        last_minute_s: seconds gained in the last minute.
        standing: true while nothing is moved because the last minute lost.
        suspected: tier name → how many times slower than it says it is thought to be.
        allowance: share of all lines that may change tier in an epoch.
    """

    model: TierModel
    loaded_ns: tuple[float, ...]
    trust: float
    margin: float
    correlation: float
    predicted: float
    observed: float
    spent_s: float
    last_minute_s: float
    standing: bool
    suspected: dict[str, float]
    allowance: float


class CostPolicy:
    """See the module's text. What it learns follows from its inputs alone."""

    name = "cost"

    def __init__(self, settings: CostSettings) -> None:
        self.settings = settings
        self.outcomes = Outcomes(settings.margin, settings.horizon_s, settings.epoch_s)
        self.sight: Sight | None = None
        self._asked: Callable[[PageSet], str] | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing shall be promoted between two decisions: a tier is overloaded."""
        sight = self.sight
        if sight is None:
            return False
        upside_down = any(one > other for one, other in pairwise(sight.loaded_ns))
        return sight.standing or upside_down

    def explain(self, page: PageSet) -> str:
        """What the rule says of one page; "" before the first decision."""
        return "" if self._asked is None else self._asked(page)

    def decide(self, inputs: Inputs) -> MovePlan:
        """The moves to make now, in order: what makes room before what needs it."""
        traffic = inputs.traffic or Traffic(0, HALF_LIFE_S)
        names = [tier.name for tier in inputs.tiers.tiers]
        model = make_model(inputs.tiers, traffic).suspecting(names, self.outcomes.suspected)
        work = _Round(inputs, self.settings, model, traffic)
        self.outcomes.carried_out(inputs.last)
        standing = self._look(traffic, work)
        for tier in inputs.tiers.tiers:
            work.keep_shares(tier)
        rule = Rule(
            horizon_s=self.settings.horizon_s,
            trust=self.outcomes.trust,
            margin=self.outcomes.margin,
            folio_s=self.outcomes.folio_s or REMAP_S,
        )
        if self.outcomes.undo is not None:
            work.take_back(*self.outcomes.undo)
            self.outcomes.undo = None
        lines = self.outcomes.lines_left if traffic.time_ns else math.inf
        work.exchange(rule, lines, trade=not standing)
        self.outcomes.planned(work.gain, *work.brought())
        self._asked = partial(
            sentence,
            tiers=inputs.tiers,
            traffic=traffic,
            model=work.model,
            weight=work.weight,
            rule=rule,
            confidence=work.confidence,
        )
        return work.plan()

    def _look(self, traffic: Traffic, work: _Round) -> bool:
        out = self.outcomes
        out.half_life_s = traffic.half_life_s
        standing = out.look(traffic.time_ns, work) if traffic.time_ns else False
        self.sight = Sight(
            model=work.told,
            loaded_ns=tuple(float(each) for each in work.told.loaded_ns(work.told.load)),
            trust=out.trust,
            margin=out.margin,
            correlation=out.correlation,
            predicted=out.predicted,
            observed=out.observed,
            spent_s=out.spent_s,
            last_minute_s=out.last_minute_s(traffic.time_ns),
            standing=standing,
            suspected=dict(out.suspected),
            allowance=out.allowance,
        )
        return standing


class _Round(Round):
    """One decision: what may move, and what the exchange makes of it."""

    def __init__(
        self, inputs: Inputs, settings: CostSettings, model: TierModel, traffic: Traffic
    ) -> None:
        super().__init__(inputs, settings.watermarks)
        self.told = model
        self.patterns = traffic.patterns
        self.pages = self._movable()
        self.tier = _ranks(inputs.tiers, self.pages.node)
        self.demand = estimate(self.pages, traffic)
        self.model = _with_load(model, self.tier, self.demand)
        if settings.ladder == "latency":
            self.model = self.model.without_load()
            self.demand = replace(self.demand, share=np.ones(len(self.pages)))
        self.weight = _weight(self.model, self.tier, self.demand)
        self.reserve = settings.reserve
        self.steps: list[Step] = []
        self.gain = 0.0
        self.confidence = float(settings.watermarks.confidence / np.sqrt(2))

    def _movable(self) -> PageSet:
        """The hottest and the coldest pages of each node that moved long enough ago."""
        heat, found = self.inputs.heat, []
        for node in self.spare:
            found.append(heat.hottest(node, self._limit, -1.0))
            if len(found[-1]) >= self._limit:  # else these are all
                found.append(heat.coldest(node, self._limit))
        pages = pageset.concat(found)
        _, first = np.unique(pages.page, return_index=True)
        return pageset.take(pages, first)

    @property
    def lines_per_s(self) -> float:
        """Lines that memory serves."""
        return float(self.model.load.sum()) / LINE_BYTES

    @property
    def waited(self) -> float:
        """Seconds that all accesses wait, a second."""
        return float(self.model.loaded_ns(self.model.load) @ self.weight) * 1e-9

    def spread(self) -> np.ndarray:
        """Counted accesses by part of memory."""
        known = self.patterns
        return np.bincount((known.region % SPREAD).astype(np.int64), known.counted, SPREAD)

    def saved(self, page: U64Array, source: I16Array) -> tuple[float, int]:
        """What pages save by being here, not on `source` nodes; how many are known."""
        _, at, before = np.intersect1d(self.pages.page, page, return_indices=True)
        here, there = self.tier[at], _ranks(self.inputs.tiers, source[before])
        known = (here >= 0) & (there >= 0)
        at, here, there = at[known], here[known], there[known]
        lines = self.demand.lines[at]
        tiers = len(self.weight)

        def back(each: np.ndarray) -> np.ndarray:
            """What tiers would have more if pages were back."""
            return np.bincount(there, lines * each, tiers) - np.bincount(here, lines * each, tiers)

        load = self.model.load + back(self.demand.moved[at])
        weight = self.weight + back(self.demand.share[at])
        load, weight = np.maximum(load, 0), np.maximum(weight, 0)
        return float(self.model.loaded_ns(load) @ weight) * 1e-9 - self.waited, len(at)

    def take_back(self, page: U64Array, node: I16Array) -> None:
        """Plan pages back to nodes, as far as there is room."""
        _, at, before = np.intersect1d(self.pages.page, page, return_indices=True)
        # What goes where there is most room makes room for what follows.
        nodes = sorted(np.unique(node[before]), key=lambda each: -self.spare.get(int(each), 0))
        for each in nodes:
            away = (node[before] == each) & (self.pages.node[at] != each)
            back = pageset.take(self.pages, at[away])
            dest = pageset.assign(back, [int(each)], {int(each): max(0, self.spare.get(each, 0))})
            self._add(Direction.DEMOTE, back, dest, "no room to take it back")

    def brought(self) -> tuple[dict[str, float], dict[str, float]]:
        """Lines a second that the plan brings to tiers by name, and what they wait there."""
        lines: dict[str, float] = {}
        waits: dict[str, float] = {}
        latency = self.model.loaded_ns(self.model.load)
        for step in self.steps:
            name, each = self.inputs.tiers.tiers[step.dest].name, self.demand.lines[step.members]
            lines[name] = lines.get(name, 0.0) + float(each.sum())
            wait = float(each @ self.demand.share[step.members] * latency[step.dest])
            waits[name] = waits.get(name, 0.0) + wait * 1e-9
        return lines, waits

    def exchange(self, rule: Rule, lines: float, *, trade: bool) -> None:
        """Relieve what is short of room, and trade the rest."""
        tiers = self.inputs.tiers.tiers
        settled = self.pages.idle_s >= self.settings.min_residency_s
        self.notes["moved lately"] += int(np.count_nonzero(~settled))
        for _, planned, _ in self.moves:
            settled &= ~np.isin(self.pages.page, planned.page)
        kinds = kinds_of(self.pages, np.where(settled, self.tier, -1), self.demand, self.confidence)
        short = [min(0, self._short(tier)) for tier in tiers]
        work = Exchange(
            self.model,
            kinds,
            self.weight,
            room=np.array([self._free(tier) for tier in tiers], np.int64),
            spare=np.array([self._spare(tier) for tier in tiers], np.int64),
            rule=rule,
            lines=lines,
        )
        left = min(self.left, self.settings.max_moves_per_tick * 4096)
        for tier in tiers:
            if short[tier.rank]:
                need = -short[tier.rank]
                done = work.relieve(tier.rank, need, left)
                left -= done
                if done < need:
                    self.notes["short of room, and nowhere to go"] += (need - done) // 4096
        if trade and len(kinds):
            work.trade(left)
        self.notes.update(work.notes)
        self.steps, self.gain = work.steps, sum(step.saved for step in work.steps)
        for step in work.steps:
            self._plan(step)

    def _short(self, tier: Tier) -> int:
        """Bytes (negative) that its short nodes lack to their high watermarks."""
        return -sum(
            self._gap(node) - self.spare[node]
            for node in tier.nodes
            if node in self.spare and self.spare[node] < 0
        )

    def _spare(self, tier: Tier) -> int:
        return sum(max(0, self.spare[node]) for node in tier.nodes if node in self.spare)

    def _free(self, tier: Tier) -> int:
        """Bytes that may come in; less than 0 below the high watermark."""
        nodes = [node for node in tier.nodes if node in self.spare]
        free = sum(self.spare[node] - self._gap(node) for node in nodes)
        if tier.kind is MemoryKind.HBM:
            free -= int(self.reserve * tier.capacity_bytes)
        return free

    def _plan(self, step: Step) -> None:
        tiers = self.inputs.tiers
        dest, pages = tiers.tiers[step.dest], pageset.take(self.pages, step.members)
        if self.fair is not None:
            allowed = self.fair.may_leave(pages, tiers.tiers[step.source].nodes)
            self.notes["at the floor of its group"] += int(np.count_nonzero(~allowed))
            enters = self.fair.may_enter(pages, dest.nodes)
            self.notes["at the cap of its group"] += int(np.count_nonzero(allowed & ~enters))
            pages = pageset.take(pages, allowed & enters)
        up = _height(dest) > _height(tiers.tiers[step.source])
        for node in np.unique(pages.node):
            own = pageset.take(pages, pages.node == node)
            order = tiers.nearest_first(int(node), dest)
            room = {n: max(0, self.spare.get(n, 0)) for n in order}
            self._add(
                Direction.PROMOTE if up else Direction.DEMOTE,
                own,
                pageset.assign(own, order, room),
                "no room",
            )

    def plan(self) -> MovePlan:
        """All that was planned, in the order in which it makes room."""
        return self._joined(self.moves)


def _height(tier: Tier) -> tuple[bool, int]:
    """For the words "promoted" and "demoted": HBM above the others, those by rank."""
    return tier.kind is MemoryKind.HBM, -tier.rank


def _ranks(tiers: TierMap, nodes: I16Array) -> I64Array:
    """Ranks, int64[n], of the tiers of nodes, int16[n]; -1 for none."""
    table = np.full(max((node for node in tiers.nodes), default=0) + 2, -1, np.int64)
    for tier in tiers.tiers:
        table[list(tier.nodes)] = tier.rank
    node = np.where((nodes < 0) | (nodes >= len(table) - 1), -1, nodes)
    return np.asarray(table[node])


def _by_tier(tiers: int, tier: I64Array, values: np.ndarray) -> np.ndarray:
    known = tier >= 0
    return np.bincount(tier[known], values[known], minlength=tiers)[:tiers]


def _with_load(model: TierModel, tier: I64Array, demand: Demand) -> TierModel:
    """Where nobody tells a tier's load, what its known pages ask for stands in."""
    known = _by_tier(len(model.load), tier, demand.lines * demand.moved)
    silent = np.array([source == "none" for source in model.source])
    return replace(model, load=np.where(silent, known, model.load))


def _weight(model: TierModel, tier: I64Array, demand: Demand) -> np.ndarray:
    """Latencies waited for a second on each tier.

    Of known pages, and of the load beyond theirs, which is taken to be like theirs.
    """
    count = len(model.load)
    known = _by_tier(count, tier, demand.lines * demand.moved)
    weight = _by_tier(count, tier, demand.lines * demand.share)
    more = np.maximum(model.load - known, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(known > 0, weight / known, 1.0 / LINE_BYTES)
    return np.asarray(weight + more * each)


__all__ = ["LADDERS", "CostPolicy", "CostSettings", "Kinds", "Sight"]
