# SPDX-License-Identifier: Apache-2.0
"""One decision of the cost policy: what may move, what memory serves, what is planned."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tierd.core.access import LINE_BYTES
from tierd.core.migration import Direction, MigrationPlan
from tierd.core.pagekey import PAGE_SIZE, I16Array, I64Array, U64Array
from tierd.core.tiermap import MemoryKind, Tier, TierMap
from tierd.core.tuning import COST
from tierd.hotness.view import PageSet
from tierd.policy import pageset
from tierd.policy.demand import Demand, ResidualLoad, estimate, kinds_of
from tierd.policy.inputs import Inputs, Traffic
from tierd.policy.scheduler import MigrationScheduler, Rule, Step
from tierd.policy.streaming_regions import Regions
from tierd.policy.tiermodel import TierModel
from tierd.policy.watermark import Round, WatermarkSettings


@dataclass(frozen=True, slots=True)
class CostSettings:
    """The rule's knobs, beside those of the watermarks.

    Attributes:
        watermarks: watermarks, confidence, residency and moves a tick.
        horizon_s: how long accesses are expected to go on as they are.
        margin: by how much, relative to a move's cost, its benefit exceeds it, at least.
        reserve: share of HBM that is kept free for groups with a floor.
        epoch_s: how long what moves bring is looked at before the next ones follow.
        latency_model: "loaded", or "idle" for tiers that differ in idle latency alone.
    """

    watermarks: WatermarkSettings
    horizon_s: float
    margin: float
    reserve: float
    epoch_s: float
    latency_model: str


class CostRound(Round):
    """One decision: what may move, and what the exchange makes of it."""

    def __init__(
        self,
        inputs: Inputs,
        settings: CostSettings,
        model: TierModel,
        traffic: Traffic,
        residual: ResidualLoad,
    ) -> None:
        super().__init__(inputs, settings.watermarks)
        self.reported = model
        self.patterns = traffic.patterns
        self.pages = self._movable()
        self.tier = _ranks(inputs.tiers, self.pages.node)
        self.demand = estimate(self.pages, traffic)
        known = _by_tier(len(model.load), self.tier, self.demand.lines * self.demand.moved)
        wait_s = COST.settling_half_lives * traffic.half_life_s
        self.model = residual.follow(model, known, traffic, wait_s)
        self.surprised = residual.surprised(wait_s)
        if settings.latency_model == "idle":
            self.model = self.model.without_load()
            self.demand = replace(self.demand, share=np.ones(len(self.pages)))
        self.weight = _weight(self.model, self.tier, self.demand)
        self.reserve = settings.reserve
        self.steps: list[Step] = []
        self.splits: U64Array = np.empty(0, np.uint64)
        """Folios that `tierd.policy.folio_split` has chosen to split."""
        self.gain = 0.0
        self.confidence = float(settings.watermarks.confidence / np.sqrt(2))

    def _movable(self) -> PageSet:
        """The hottest and the coldest pages of each node.

        Each is a pass over the heat table. Nothing gives way in the slowest tier, whose coldest
        are looked for only if it is short of room.
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
        """Lines that memory serves, as told; where nobody tells, as far as heat knows."""
        silent = np.array([source == "none" for source in self.reported.source])
        return float(np.where(silent, self.model.load, self.reported.load).sum()) / LINE_BYTES

    @property
    def waited(self) -> float:
        """Seconds that all accesses wait, a second."""
        return float(self.model.loaded_ns(self.model.load, self.weight) @ self.weight) * 1e-9

    def spread(self) -> np.ndarray:
        """Counted accesses by part of memory."""
        known = self.patterns
        return np.bincount(
            (known.region % COST.spread_parts).astype(np.int64), known.counted, COST.spread_parts
        )

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
        return float(self.model.loaded_ns(load, weight) @ weight) * 1e-9 - self.waited, len(at)

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

    @property
    def chosen(self) -> list[Step]:
        """Steps of which it is asked later what they brought: not those that make room."""
        return [step for step in self.steps if not step.forced]

    @property
    def chosen_pages(self) -> U64Array:
        """Their pages, uint64[n]."""
        members = [step.members for step in self.chosen]
        return self.pages.page[np.concatenate(members)] if members else self.pages.page[:0]

    def brought(self) -> tuple[dict[str, float], dict[str, float]]:
        """Lines a second that chosen steps bring to tiers by name, and what they wait there."""
        lines: dict[str, float] = {}
        waits: dict[str, float] = {}
        latency = self.model.loaded_ns(self.model.load, self.weight)
        for step in self.chosen:
            name, each = self.inputs.tiers.tiers[step.dest].name, self.demand.lines[step.members]
            lines[name] = lines.get(name, 0.0) + float(each.sum())
            wait = float(each @ self.demand.share[step.members] * latency[step.dest])
            waits[name] = waits.get(name, 0.0) + wait * 1e-9
        return lines, waits

    def slice_of(
        self, source: int, dest: int, share: float, avoid: U64Array
    ) -> tuple[U64Array, U64Array]:
        """As of `Regions.slice_of`, nothing where there is no room for it."""
        page, regions = self._regions().slice_of(source, dest, share, avoid)
        space = min(self._free(self.inputs.tiers.tiers[dest]), self.left) // PAGE_SIZE
        return (page, regions) if len(page) <= space else (page[:0], regions[:0])

    def _regions(self) -> Regions:
        settled = self.pages.idle_s >= self.settings.min_residency_s
        return Regions(self.pages, self.tier, self.demand, settled)

    def bring(self, page: U64Array, rank: int) -> None:
        """Plan pages to a tier, as far as there is room."""
        at = np.flatnonzero(np.isin(self.pages.page, page) & (self.tier != rank))
        for source in np.unique(self.tier[at]):
            self._plan(Step(at[self.tier[at] == source], int(source), rank, 0.0))

    def promise(self, rule: Rule) -> float:
        """Part of what is waited that the model says the best end would save."""
        return self._exchange(rule, math.inf).promise()

    def _exchange(self, rule: Rule, lines: float) -> MigrationScheduler:
        """Of what may move now."""
        settled = self.pages.idle_s >= self.settings.min_residency_s
        self.notes["cooldown"] += int(np.count_nonzero(~settled))
        for _, planned, _ in self.moves:
            settled &= ~np.isin(self.pages.page, planned.page)
        tiers = self.inputs.tiers.tiers
        return MigrationScheduler(
            self.model,
            kinds_of(self.pages, np.where(settled, self.tier, -1), self.demand, self.confidence),
            self.weight,
            space=np.array([self._free(tier) for tier in tiers], np.int64),
            spare=np.array([self._spare(tier) for tier in tiers], np.int64),
            rule=rule,
            lines=lines,
        )

    def exchange(self, rule: Rule, lines: float, *, trade: bool) -> None:
        """Relieve what is short of room, and trade the rest."""
        tiers = self.inputs.tiers.tiers
        short = [min(0, self._short(tier)) for tier in tiers]
        work = self._exchange(rule, lines)
        left = min(self.left, self.settings.max_moves_per_tick * 4096)
        for tier in tiers:
            if short[tier.rank]:
                need = -short[tier.rank]
                done = work.relieve(tier.rank, need, left)
                left -= done
                if done < need:
                    self.notes["no_demotion_target"] += (need - done) // 4096
        if self.surprised:
            self.notes["phase_change"] += 1
        elif trade and len(work.kinds):
            work.trade(left)
        self.notes.update(work.notes)
        self.steps = work.steps
        self.gain = sum(step.saved for step in self.chosen)
        self._make_whole()
        for step in self.steps:
            self._plan(step)

    def _make_whole(self) -> None:
        """Let steps be of whole regions where streams' pages are alike."""
        if not self.steps:
            return
        regions, taken = self._regions(), np.zeros(len(self.pages), np.bool_)
        for _, planned, _ in self.moves:
            taken |= np.isin(self.pages.page, planned.page)
        for step in self.steps:
            taken[step.members] = True
        for number, step in enumerate(self.steps):
            taken[step.members] = False
            members = regions.whole(step.members, step.source, step.dest, taken)
            taken[members] = True
            regions.go(members, step.dest)
            self.steps[number] = replace(step, members=members)

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

    @property
    def spaces(self) -> I64Array:
        """Bytes, int64[tiers], that may come in; below 0 what a short tier lacks."""
        tiers = self.inputs.tiers.tiers
        return np.array(
            [min(0, self._short(tier)) or max(0, self._free(tier)) for tier in tiers], np.int64
        )

    def _plan(self, step: Step) -> None:
        tiers = self.inputs.tiers
        dest, pages = tiers.tiers[step.dest], pageset.take(self.pages, step.members)
        if self.fair is not None:
            allowed = self.fair.may_leave(pages, tiers.tiers[step.source].nodes)
            self.notes["group_min"] += int(np.count_nonzero(~allowed))
            enters = self.fair.may_enter(pages, dest.nodes)
            self.notes["group_max"] += int(np.count_nonzero(allowed & ~enters))
            pages = pageset.take(pages, allowed & enters)
        up = _height(dest) > _height(tiers.tiers[step.source])
        for node in np.unique(pages.node):
            own = pageset.take(pages, pages.node == node)
            order = tiers.nearest_first(int(node), dest)
            space = {n: max(0, self.spare.get(n, 0)) for n in order}
            self._add(
                Direction.PROMOTE if up else Direction.DEMOTE,
                own,
                pageset.assign(own, order, space),
                "no room",
            )

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


def _by_tier(tiers: int, tier: I64Array, values: np.ndarray) -> np.ndarray:
    known = tier >= 0
    return np.bincount(tier[known], values[known], minlength=tiers)[:tiers]


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
