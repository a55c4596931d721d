# SPDX-License-Identifier: Apache-2.0
"""The cost policy: a page is where the time that its accesses take, and cost others, is least.

One rule (`tierd.policy.scheduler`) makes all decisions: what comes in, what is evicted, what
leaves a tier that is short of room, and what stays. HBM, which is wide and not near, attracts
streams and nothing else, and when the loaded latency of a tier passes that of another, pages leave
it until both are level.

Watermarks, limits of groups and the migration cooldown hold as in the watermark policy
(`tierd.policy.watermark`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tierd.core.migration import MigrationPlan
from tierd.core.tiermap import TierMap
from tierd.core.tuning import COST
from tierd.hotness.view import PageSet
from tierd.policy.cost_decision import LATENCY_MODELS, CostRound, CostSettings
from tierd.policy.demand import estimate, single_classes
from tierd.policy.feedback import FeedbackController
from tierd.policy.folio_split import SplitHistory, choose_splits
from tierd.policy.inputs import Inputs, Policy
from tierd.policy.scheduler import MigrationScheduler, Rule
from tierd.policy.tiermodel import F64Array, TierModel, make_model
from tierd.policy.traffic import Traffic


@dataclass(frozen=True, slots=True)
class CostPolicyState:
    """What the last decision was made on, for status, metrics and explanations.

    Attributes:
        model: tiers, loads and their sources.
        loaded_ns: loaded latency by rank.
        margin: learned.
        correlation: of predicted with observed gains, NaN until known.
        predicted, observed: seconds saved a second, all epochs together.
        spent_s: seconds of moving in them.
        last_minute_s: seconds gained in the last minute.
        hold: whether nothing is moved because moves lost.
        derated: tier name → how many times slower than its description it is taken to be.
    """

    model: TierModel
    loaded_ns: tuple[float, ...]
    margin: float
    correlation: float
    predicted: float
    observed: float
    spent_s: float
    last_minute_s: float
    hold: bool
    derated: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Explained:
    """What the last decision was made on, for the explanation of single pages."""

    tiers: TierMap
    traffic: Traffic
    model: TierModel
    stalls: F64Array
    rule: Rule
    confidence: float

    def text(self, page: PageSet) -> str:
        """What the rule says of one folio on a known node."""
        here, model = self.tiers.tier_of(int(page.node[0])), self.model
        demand = estimate(page, self.traffic)
        classes = single_classes(page, np.array([here.rank]), demand, self.confidence)
        space = np.zeros(len(self.tiers.tiers), np.int64)
        net = MigrationScheduler(
            model, classes, self.stalls, space=space, spare=space, rule=self.rule
        ).net()[0]
        loaded = model.loaded_ns(model.load, self.stalls)
        times = ", ".join(
            f"{tier.name} {loaded[tier.rank]:.0f} ns "
            f"({model.load[tier.rank] / model.bytes_per_s[tier.rank]:.0%} used, "
            f"by {model.source[tier.rank]})"
            for tier in self.tiers.tiers
        )
        streamed = float(np.clip((1 - demand.stall[0]) / (1 - 1 / COST.stream_lines), 0, 1))
        text = (
            f"{demand.lines[0]:.3g} lines a second, {streamed:.0%} of them streamed or written; "
            f"loaded latencies: {times}; "
        )
        best = int(net.argmax())
        if not net[best] > 0:
            return text + f"it stays on {here.name}: no move saves more than it costs"
        return text + (
            f"on {self.tiers.tiers[best].name} it would save {net[best] * 1e6:.3g} us over "
            f"{self.rule.horizon_s:g} s, beyond what the move costs: it moves when room and rate "
            "limit allow, if what would be evicted loses less"
        )


class CostPolicy(Policy):
    """See the module's text. What it learns follows from its inputs alone."""

    name = "cost"
    state: CostPolicyState | None = None

    def __init__(self, settings: CostSettings) -> None:
        self.settings = settings
        self.feedback = FeedbackController(settings.margin, settings.horizon_s, settings.epoch_s)
        self._splits = SplitHistory()
        self._explained: _Explained | None = None

    @property
    def low_watermark(self) -> float:
        """See `Policy`."""
        return self.settings.watermarks.low_watermark

    @property
    def busy(self) -> bool:
        """Whether what was moved is still judged, or nothing may be moved now."""
        return self.holds

    @property
    def holds(self) -> bool:
        """Whether nothing shall be promoted between two decisions: a tier is overloaded."""
        if self.state is None:
            return False
        upside_down = any(one > other for one, other in pairwise(self.state.loaded_ns))
        return self.state.hold or upside_down

    def explain(self, inputs: Inputs, page: PageSet) -> str:
        """What the rule said of one page at the last decision; "" before the first one."""
        del inputs
        return "" if self._explained is None else self._explained.text(page)

    def decide(self, inputs: Inputs) -> MigrationPlan:
        """The moves to make now, in order: what makes room before what needs it."""
        traffic, feedback = inputs.traffic or Traffic(0, COST.half_life_s), self.feedback
        names = [tier.name for tier in inputs.tiers.tiers]
        model = make_model(inputs.tiers, traffic).derated(names, feedback.derated)
        work = CostRound(inputs, self.settings, model, traffic)
        self._splits.follow(traffic.time_ns, inputs.last)
        rest_s = COST.settling_half_lives * traffic.half_life_s
        work.pages = self._splits.rested(work.pages, traffic.time_ns, rest_s)
        feedback.carried_out(inputs.last)
        feedback.half_life_s = traffic.half_life_s
        hold = feedback.update(traffic.time_ns, work) if traffic.time_ns else False
        self.state = self._state_of(work.reported, work.stalls, traffic.time_ns, hold=hold)
        for tier in inputs.tiers.tiers:
            work.keep_shares(tier)
        rule = Rule(
            horizon_s=self.settings.horizon_s,
            margin=feedback.margin,
            folio_s=feedback.folio_s or COST.remap_s,
        )
        if feedback.take_back is not None:
            work.take_back(feedback.take_back)
            feedback.take_back = None
        lines = feedback.lines_left if traffic.time_ns else math.inf
        if not hold and lines > 0:
            choose_splits(work, self._splits, rule)
        work.schedule(rule, lines, exchange=not hold)
        feedback.planned(work.choice())
        self._explained = _Explained(
            inputs.tiers, traffic, work.model, work.stalls, rule, work.confidence
        )
        return work.plan()

    def _state_of(
        self, model: TierModel, stalls: F64Array, time_ns: int, *, hold: bool
    ) -> CostPolicyState:
        feedback = self.feedback
        return CostPolicyState(
            model=model,
            loaded_ns=tuple(model.loaded_ns(model.load, stalls).tolist()),
            margin=feedback.margin,
            correlation=feedback.correlation,
            predicted=feedback.predicted,
            observed=feedback.observed,
            spent_s=feedback.spent_s,
            last_minute_s=feedback.last_minute_s(time_ns),
            hold=hold,
            derated=dict(feedback.derated),
        )


__all__ = ["LATENCY_MODELS", "CostPolicy", "CostPolicyState", "CostSettings"]
