# SPDX-License-Identifier: Apache-2.0
"""Replays a recording: the same inputs, another policy or other settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tierd.config.model import Config
from tierd.config.whole import loads
from tierd.core import bounds
from tierd.core.errors import ConfigError
from tierd.core.migration import Direction, Fate, MigrationPlan, MigrationResult
from tierd.core.tiermap import TierMap
from tierd.observe.recording import RecordingError
from tierd.observe.recording.reader import Gap, Recording
from tierd.observe.recording.records import RecordedTick, plan_difference
from tierd.observe.recording.schema import MAX_BYTES
from tierd.policy.inputs import Inputs, Policy
from tierd.policy.limits import Budget
from tierd.replay.decided import Decided
from tierd.replay.settings import differences
from tierd.replay.world import DEFAULT_MEMORY, World

UNKNOWN = "unknown"
"""Accesses to pages whose node was not known."""


@dataclass
class Side:
    """What one side, the recording or the replay, did. Pages are of 4 KiB.

    Attributes:
        planned, moved: pages by direction ("promoted", "demoted").
        served: recorded accesses by the tier that their page was in.
    """

    planned: Counter[str] = field(default_factory=Counter)
    moved: Counter[str] = field(default_factory=Counter)
    served: Counter[str] = field(default_factory=Counter)

    def add(self, plan: MigrationPlan, report: MigrationResult | None) -> None:
        """Count a plan and what became of it."""
        for direction, name in ((Direction.PROMOTE, "promoted"), (Direction.DEMOTE, "demoted")):
            pages = 1 << plan.order[plan.direction == direction].astype(np.int64)
            self.planned[name] += int(pages.sum())
            if report is not None:
                self.moved[name] += report.count(Fate.MOVED, direction)

    def share(self, tier: str) -> float | None:
        """Share of the accesses to pages of known place that this tier served."""
        known = self.served.total() - self.served[UNKNOWN]
        return self.served[tier] / known if known > 0 else None


@dataclass(frozen=True, slots=True)
class Compared:
    """One decision.

    Attributes:
        tick: the recorded tick with its plan.
        plan: the replayed plan.
        report: what became of it.
        difference: how the plans differ, "" if they do not, bit for bit.
        moves_differ: other pages move, or to other nodes.
    """

    tick: RecordedTick
    plan: MigrationPlan
    report: MigrationResult | None
    difference: str
    moves_differ: bool


def shared_moves(one: MigrationPlan, other: MigrationPlan) -> int:
    """Moves that two plans have in common: the same page to the same node."""
    if not len(one) or not len(other):
        return 0
    at = np.searchsorted(one.page, other.page, sorter=(by_key := np.argsort(one.page)))
    at = by_key[np.minimum(at, len(by_key) - 1)]
    return int(np.count_nonzero((one.page[at] == other.page) & (one.dest[at] == other.dest)))


class Replay:
    """One run over a recording.

    Args:
        change: makes the configuration to use of the recorded one; None replays it as
            it was recorded.

    Attributes:
        changed: settings that are others here, by dotted key.
        after_gap: decisions after the first gap: heat is not known exactly there.
        decided: what other components than the policy decide again, without a change of settings.
    """

    def __init__(
        self,
        recording: Recording,
        make_policy: Callable[[Config], Policy],
        change: Callable[[Config], Config] | None = None,
        *,
        memory_bytes: int = DEFAULT_MEMORY,
    ) -> None:
        self._recording = recording
        self._make_policy = make_policy
        self._change = change
        self._memory_bytes = memory_bytes
        self.recorded, self.replayed = Side(), Side()
        self.ticks = self.decisions = self.differing = self.moves_differing = 0
        self.after_gap = self.differing_before_gap = self.resized = 0
        self.seconds = 0.0
        self.changed: dict[str, tuple[Any, Any]] = {}
        self.fast_tier = ""
        self.decided = Decided()

    def __iter__(self) -> Iterator[Compared]:
        """Every decision, in order; counters are complete at the end.

        Raises:
            RecordingError: the recording cannot be replayed.
            ConfigError: a changed configuration is wrong.
        """
        text: str | None = None
        world: World | None = None
        policy: Policy | None = None
        last: MigrationResult | None = None
        rate, start_ns, gap = 1.0, None, False
        for tick in self._recording:
            if isinstance(tick, Gap):
                gap = True
                self.decided.gap()
                continue
            if world is None or policy is None or tick.config != text:
                text = tick.config
                old = _config(text)
                new = old if self._change is None else self._change(old)
                policy = self._make_policy(new)
                self.changed.update(differences(old, new))
                rate = new.migration.rate_limit_bytes_per_s / old.migration.rate_limit_bytes_per_s
                world = self._world(old, new) if world is None else world
            start_ns = tick.time_ns if start_ns is None else start_ns
            self.seconds = (tick.end_ns - start_ns) / 1e9
            self.ticks += 1
            self._before(tick, world)
            plan = tick.plan
            if tick.budget is not None:
                inputs = _inputs(tick, world, tick.budget, rate, last)
                plan = policy.decide(inputs)
                self._feed(tick, world, decided=True)
            last = world.carry_out(tick, plan)
            if self._change is None:
                self.decided.after(tick, world)
            if tick.budget is not None:
                yield self._compared(tick, plan, last, gap=gap)
        self.resized = 0 if world is None else world.divergence.resized

    def _before(self, tick: RecordedTick, world: World) -> None:
        """All that comes before a tick's decision."""
        if self._change is None:
            self.decided.before(tick)
        self._feed(tick, world, decided=False)
        self._account(tick, world)

    def _feed(self, tick: RecordedTick, world: World, *, decided: bool) -> None:
        for op in tick.late if decided else tick.ops:
            world.apply(op)

    def _compared(
        self, tick: RecordedTick, plan: MigrationPlan, report: MigrationResult | None, *, gap: bool
    ) -> Compared:
        difference = plan_difference(tick.plan, plan)
        same = len(plan) == len(tick.plan) == shared_moves(tick.plan, plan)
        moves = bool(difference) and not same
        self.decisions += 1
        self.after_gap += gap
        self.differing += bool(difference)
        self.differing_before_gap += bool(difference) and not gap
        self.moves_differing += moves
        self.recorded.add(tick.plan, tick.report)
        self.replayed.add(plan, report)
        return Compared(tick, plan, report, difference, moves)

    def _world(self, old: Config, new: Config) -> World:
        memory, half_life_ns = new.heat.memory_bytes, new.heat.half_life_ns
        pages = None if memory is None else memory // bounds.HEAT_BYTES_PER_PAGE
        return World(
            memory_bytes=self._memory_bytes,
            capacity_pages=None if memory == old.heat.memory_bytes else pages,
            half_life_s=None if half_life_ns == old.heat.half_life_ns else half_life_ns / 1e9,
            all_succeed=self._recording.meta.dry_run and self._change is not None,
        )

    def _account(self, tick: RecordedTick, world: World) -> None:
        """Who served the tick's accesses: the tier their page was in before the decision."""
        if tick.tiers.tiers:
            self.fast_tier = tick.tiers.tiers[0].name
        for batch in tick.batches:
            recorded, replayed = world.nodes(batch.page)
            for side, nodes in ((self.recorded, recorded), (self.replayed, replayed)):
                add_served(side.served, tick.tiers, nodes, batch.count)


def _inputs(
    tick: RecordedTick, world: World, budget: Budget, rate: float, last: MigrationResult | None
) -> Inputs:
    """What a tick's decision is made on here; `rate`: of the recorded limit of moving."""
    if rate != 1.0:
        budget = Budget(min(int(budget.move_bytes * rate), MAX_BYTES))
    return Inputs(
        heat=world.heat,
        tiers=tick.tiers,
        usage=world.usage(tick),
        budget=budget,
        last=last,
        groups=world.groups(tick),
        traffic=tick.traffic,
        exchanged=tick.exchanged,
    )


def add_served(
    served: Counter[str],
    tiers: TierMap,
    node: np.ndarray[tuple[int], np.dtype[np.int16]],
    count: np.ndarray[tuple[int], np.dtype[np.float32]],
) -> None:
    """Add counts, float32[n], of accesses to pages on nodes, int16[n], by tier name."""
    usable = np.isfinite(count) & (count > 0)
    by_node = np.bincount(np.maximum(node[usable], -1) + 1, count[usable])
    names = {each: tier.name for tier in tiers.tiers for each in tier.nodes}
    for index in np.flatnonzero(by_node):
        # Counters hold any number; accesses are sampled estimates, not whole ones.
        served[names.get(int(index) - 1, UNKNOWN)] += by_node[index]


def _config(text: str) -> Config:
    try:
        return loads(text)
    except ConfigError as error:
        raise RecordingError(
            f"the recorded configuration is not understood: {error}",
            hint="use the tierd that wrote the recording",
        ) from None
