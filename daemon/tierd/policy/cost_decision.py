# SPDX-License-Identifier: Apache-2.0
"""One decision of the cost policy: what may move, what memory serves, what is planned."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from tierd.core.access import LINE_BYTES
from tierd.core.migration import Direction, I16Array, MigrationPlan
from tierd.core.pagekey import PAGE_SIZE, U64Array
from tierd.core.tiermap import MemoryKind, Tier, TierMap
from tierd.core.tuning import COST, FEEDBACK
from tierd.hotness.view import PageSet
from tierd.policy import pageset
from tierd.policy.demand import Demand, F64Array, classify, estimate
from tierd.policy.feedback import Choice, Placed
from tierd.policy.inputs import Inputs
from tierd.policy.pageset import I64Array
from tierd.policy.scheduler import MigrationScheduler, MoveGroup, Rule
from tierd.policy.tiermodel import TierModel
from tierd.policy.traffic import Traffic
from tierd.policy.watermark import Round, WatermarkSettings

LATENCY_MODELS = ("loaded", "idle")


@dataclass(frozen=True, slots=True)
class CostSettings:
    """The rule's settings, beside those of the watermarks.

    Attributes:
        watermarks: watermarks, confidence, cooldown and moves a tick.
        horizon_s: how long accesses are expected to go on as they are.
        margin: by how much, relative to a move's cost, its gain exceeds it, at least.
        reserve: part of HBM that is kept free for programs that allocate there themselves.
        epoch_s: how long the effect of moves is observed before the next ones follow.
        latency_model: "loaded", or "idle" for tiers that differ in idle latency alone.
    """

    watermarks: WatermarkSettings = field(default_factory=WatermarkSettings)
    horizon_s: float = 10.0
    margin: float = 0.5
    reserve: float = 0.0
    epoch_s: float = field(default_factory=lambda: FEEDBACK.epoch_s)
    latency_model: str = "loaded"


class CostRound(Round):
    """One decision: what may move, and what the scheduler makes of it."""

    def __init__(
        self,
        inputs: Inputs,
        settings: CostSettings,
        model: TierModel,
        traffic: Traffic,
    ) -> None:
        super().__init__(inputs, settings.watermarks)
        self.reported = model
        self.patterns = traffic.patterns
        self.pages = self._movable()
        self.tier = _ranks(inputs.tiers, self.pages.node)
        self.demand = estimate(self.pages, traffic)
        known = _by_tier(len(model.load), self.tier, self.demand.lines * self.demand.line_bytes)
        self.load = np.where(model.reported, model.load, known)
        """Bytes a second by tier, float64[tiers]: as reported, else what known pages ask for."""
        self.model = replace(model, load=self.load)
        if settings.latency_model == "idle":
            self.model = self.model.without_load()
            self.demand = replace(self.demand, stall=np.ones(len(self.pages)))
        self.stalls = _stalls(self.model, self.tier, self.demand)
        self.reserve = settings.reserve
        self.groups: list[MoveGroup] = []
        self.splits: U64Array = np.empty(0, np.uint64)
        """Folios that `tierd.policy.folio_split` has chosen to split."""
        self.confidence = float(settings.watermarks.confidence / np.sqrt(2))

    def _movable(self) -> PageSet:
        """The hottest and the coldest pages of each node.

        Each is a pass over the heat table. Nothing is evicted from the slowest tier, whose coldest
        are looked up only if it is short of room.
        """
        heat, found = self.inputs.heat, []
        last = self.inputs.tiers.tiers[-1].nodes
        for node in self.spare:
            found.append(heat.hottest(node, self._limit, -1.0))
            if node in last and self.spare[node] >= 0:
                continue
            if len(found[-1]) >= self._limit:  # else these are all
                found.append(heat.coldest(node, self._limit))
        pages = pageset.concat(found)
        _, first = np.unique(pages.page, return_index=True)
        return pageset.take(pages, first)

    @property
    def lines_per_s(self) -> float:
        """Lines that memory serves: as reported, or as heat says where nothing is reported."""
        return float(self.load.sum()) / LINE_BYTES

    @property
    def waited_s(self) -> float:
        """Seconds that all accesses wait, a second."""
        return self.model.waited_s(self.model.load, self.stalls)

    def spread(self) -> F64Array:
        """Counted accesses by part of memory."""
        part = (self.patterns.region % COST.spread_parts).astype(np.int64)
        return np.asarray(np.bincount(part, self.patterns.counted, COST.spread_parts), np.float64)

    def saved(self, page: U64Array, source: I16Array) -> tuple[float, int]:
        """What pages save by being here, not on `source` nodes; how many are known."""
        _, at, before = np.intersect1d(self.pages.page, page, return_indices=True)
        here, there = self.tier[at], _ranks(self.inputs.tiers, source[before])
        known = (here >= 0) & (there >= 0)
        demand, here, there = self.demand.at(at[known]), here[known], there[known]

        def back(now: F64Array, each: F64Array) -> F64Array:
            """What tiers would have if pages were back."""
            tiers = len(now)
            change = np.bincount(there, each, tiers) - np.bincount(here, each, tiers)
            return np.maximum(now + change, 0)

        load = back(self.model.load, demand.lines * demand.line_bytes)
        stalls = back(self.stalls, demand.lines * demand.stall)
        return self.model.waited_s(load, stalls) - self.waited_s, int(np.count_nonzero(known))

    def take_back(self, placed: Placed) -> None:
        """Plan pages back to nodes, as far as there is room."""
        page, node = placed
        _, at, before = np.intersect1d(self.pages.page, page, return_indices=True)
        # What goes where there is most room makes room for what follows.
        nodes = sorted(np.unique(node[before]), key=lambda each: -self.spare.get(int(each), 0))
        for each in nodes:
            away = (node[before] == each) & (self.pages.node[at] != each)
            back = pageset.take(self.pages, at[away])
            dest = pageset.assign(back, [int(each)], {int(each): max(0, self.spare.get(each, 0))})
            self._add(Direction.DEMOTE, back, dest, "no room to take it back")

    def choice(self) -> Choice:
        """The moves of the rule's own choice, not those that make room."""
        chosen = [group for group in self.groups if not group.forced]
        found = Choice(sum(group.saved for group in chosen))
        latency = self.model.loaded_ns(self.model.load, self.stalls)
        for group in chosen:
            demand = self.demand.at(group.members)
            name = self.inputs.tiers.tiers[group.dest].name
            waited_s = float(demand.lines @ demand.stall * latency[group.dest]) * 1e-9
            page, lines = self.pages.page[group.members], float(demand.lines.sum())
            found.add(Choice(0.0, page, lines={name: lines}, waited_s={name: waited_s}))
        return found

    def schedule(self, rule: Rule, lines: float, *, exchange: bool) -> None:
        """Demote from tiers that are short of room, and exchange the rest.

        Args:
            rule: what a move must bring.
            lines: a second, that may change tier by the rule's choice.
            exchange: false where only room is made.
        """
        settled = self.pages.idle_s >= self.settings.min_residency_s
        self.notes["cooldown"] += int(np.count_nonzero(~settled))
        for _, planned, _ in self.moves:
            settled &= ~np.isin(self.pages.page, planned.page)
        tiers = self.inputs.tiers.tiers
        tier = np.where(settled, self.tier, -1)
        work = MigrationScheduler(
            self.model,
            classify(self.pages, tier, self.demand, self.confidence),
            self.stalls,
            space=np.array([self._free(tier) for tier in tiers], np.int64),
            spare=np.array([self._spare(tier) for tier in tiers], np.int64),
            rule=rule,
            lines=lines,
        )
        left = min(self.left, self.settings.max_moves_per_tick * PAGE_SIZE)
        for each in tiers:
            if need := self._lack(each):
                done = work.demote(each.rank, need, left)
                left -= done
                self.notes["no_demotion_target"] += max(0, need - done) // PAGE_SIZE
        if exchange:
            work.exchange(left)
        self.notes.update(work.notes)
        self.groups = work.groups
        for group in self.groups:
            self._plan(group)

    def _lack(self, tier: Tier) -> int:
        """Bytes that nodes below their low watermarks lack to their high ones."""
        short = [node for node in tier.nodes if self.spare.get(node, 0) < 0]
        return sum(self._gap(node) - self.spare[node] for node in short)

    def _spare(self, tier: Tier) -> int:
        return sum(max(0, self.spare.get(node, 0)) for node in tier.nodes)

    def _free(self, tier: Tier) -> int:
        """Bytes that may come in; less than 0 below the high watermark."""
        nodes = [node for node in tier.nodes if node in self.spare]
        free = sum(self.spare[node] - self._gap(node) for node in nodes)
        if tier.kind is MemoryKind.HBM:
            free -= int(self.reserve * tier.capacity_bytes)
        return free

    @property
    def space_or_lack(self) -> I64Array:
        """Bytes, int64[tiers], that may come in; negative: what a short tier lacks."""
        tiers = self.inputs.tiers.tiers
        return np.array([-self._lack(tier) or max(0, self._free(tier)) for tier in tiers], np.int64)

    def _plan(self, group: MoveGroup) -> None:
        tiers = self.inputs.tiers
        source, dest = tiers.tiers[group.source], tiers.tiers[group.dest]
        pages = pageset.take(self.pages, group.members)
        if self.fair is not None:
            leaves = self.fair.may_leave(pages, source.nodes)
            enters = self.fair.may_enter(pages, dest.nodes)
            self.notes["group_min"] += int(np.count_nonzero(~leaves))
            self.notes["group_max"] += int(np.count_nonzero(leaves & ~enters))
            pages = pageset.take(pages, leaves & enters)
        up = _height(dest) > _height(source)
        for node in pageset.nodes_of(pages):
            own = pageset.take(pages, pages.node == node)
            order = tiers.nearest_first(node, dest)
            space = {n: max(0, self.spare.get(n, 0)) for n in order}
            direction = Direction.PROMOTE if up else Direction.DEMOTE
            self._add(direction, own, pageset.assign(own, order, space), "no room")

    def plan(self) -> MigrationPlan:
        """All that was planned, in the order in which it makes room."""
        return replace(self._joined(self.moves), split=self.splits)


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


def _by_tier(tiers: int, tier: I64Array, values: F64Array) -> F64Array:
    known = tier >= 0
    return np.asarray(np.bincount(tier[known], values[known], tiers)[:tiers], np.float64)


def _stalls(model: TierModel, tier: I64Array, demand: Demand) -> F64Array:
    """Latencies a second that all accesses to each tier wait for.

    Those of known pages; the load beyond theirs is taken to be like theirs.
    """
    count = len(model.load)
    known = _by_tier(count, tier, demand.lines * demand.line_bytes)
    stalls = _by_tier(count, tier, demand.lines * demand.stall)
    more = np.maximum(model.load - known, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(known > 0, stalls / known, 1.0 / LINE_BYTES)
    return np.asarray(stalls + more * each)
