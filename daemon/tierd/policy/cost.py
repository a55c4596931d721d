# SPDX-License-Identifier: Apache-2.0
"""The cost policy: a page is where the time that its accesses take, and cost others, is least.

One rule (`tierd.policy.scheduler`) makes all decisions: what comes in, what gives way, what
leaves a tier that is short of room, and what is left alone. It knows no ladder: HBM, which is
wide and not near, attracts streams and nothing else, and when a tier's loaded latency passes
that of another, pages leave it until both are level.

Watermarks, shares of groups and the least residency hold as in the watermark policy
(`tierd.policy.watermark`), and HBM keeps a share of its room for groups that have a floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from tierd.core.migration import MigrationPlan, MigrationResult
from tierd.core.tuning import COST
from tierd.hotness.view import PageSet
from tierd.policy.cost_decision import CostRound, CostSettings
from tierd.policy.demand import ResidualLoad
from tierd.policy.explain import sentence
from tierd.policy.feedback import FeedbackController
from tierd.policy.folio_split import SplitHistory, choose_splits
from tierd.policy.inputs import Inputs, Policy, Traffic
from tierd.policy.perturbation import HillClimber
from tierd.policy.scheduler import Rule
from tierd.policy.tiermodel import TierModel, make_model


@dataclass(frozen=True, slots=True)
class CostPolicyState:
    """What the last decision was made on, for status, metrics and explanations.

    Attributes:
        correlation: of predicted with observed gains, NaN until known.
        predicted, observed: seconds saved a second, all epochs together.
        spent_s: seconds of moving in them.
        last_minute_s: seconds gained in the last minute.
        standing: true while moves are taken back, to see whether that helps.
        suspected: tier name → how many times slower than it says it is thought to be.
        allowance: share of all lines that may change tier in an epoch.
        kept, failed: slices that were tried (`tierd.policy.perturbation`) and stayed, or went back.
        least: part of what is waited that the model must promise to move anything.
    """

    model: TierModel
    loaded_ns: tuple[float, ...]
    correlation: float
    predicted: float
    observed: float
    spent_s: float
    last_minute_s: float
    standing: bool
    suspected: dict[str, float]
    allowance: float
    kept: int
    failed: int
    least: float


class CostPolicy(Policy):
    """The policy `cost`. What it learns follows from its inputs alone."""

    name = "cost"
    state: CostPolicyState | None = None

    def __init__(self, settings: CostSettings) -> None:
        self.settings = settings
        self.outcomes = FeedbackController(settings.horizon_s, settings.epoch_s)
        self.hill_climber = HillClimber(settings.epoch_s, settings.watermarks.min_residency_s)
        self._folios = SplitHistory()
        self._residual = ResidualLoad()
        self._asked: Callable[[PageSet], str] | None = None
        self._acted_ns = 0
        self._quiet_s = 0.0
        """Time since the last plan that was not empty."""

    @property
    def low_watermark(self) -> float:
        """See `Policy`."""
        return self.settings.watermarks.low_watermark

    @property
    def busy(self) -> bool:
        """Whether it moved, split or tried something lately, or nothing may be moved now."""
        trying = self.hill_climber.busy or self.hill_climber.planned
        return trying or self.holds or self._quiet_s < COST.quiet_s

    @property
    def holds(self) -> bool:
        """Whether nothing shall be promoted between two decisions: a tier is overloaded."""
        sight = self.state
        if sight is None:
            return False
        upside_down = any(one > other for one, other in pairwise(sight.loaded_ns))
        return sight.standing or upside_down

    def explain(self, inputs: Inputs, page: PageSet) -> str:
        """What the rule said of one page at the last decision; "" before the first one."""
        del inputs
        return "" if self._asked is None else self._asked(page)

    def decide(self, inputs: Inputs) -> MigrationPlan:
        """The moves to make now, in order: what makes room before what needs it."""
        traffic = inputs.traffic or Traffic(0, self.outcomes.half_life_s)
        names = [tier.name for tier in inputs.tiers.tiers]
        model = make_model(inputs.tiers, traffic).suspecting(names, self.outcomes.suspected)
        work = CostRound(inputs, self.settings, model, traffic, self._residual)
        self._learn(traffic, inputs.last, work)
        standing = self._observe(traffic, work)
        for tier in inputs.tiers.tiers:
            work.keep_shares(tier)
        rule = Rule(
            horizon_s=self.settings.horizon_s,
            margin=self.settings.margin,
            folio_s=self.outcomes.folio_s or COST.remap_s,
        )
        if self.outcomes.undo is not None:
            work.take_back(*self.outcomes.undo)
            self.outcomes.undo = None
        lines = self.outcomes.lines_left if traffic.time_ns else math.inf
        if not standing and traffic.time_ns:
            self._perturb(traffic.time_ns, work, rule)
        rule = replace(rule, least=self.hill_climber.least)  # which a slice may just have raised
        free = not (standing or self.hill_climber.busy or self.hill_climber.planned)
        if free and lines > 0:
            choose_splits(work, self._folios, rule)
        work.exchange(rule, lines, trade=free)
        self.outcomes.planned(work.gain, *work.brought(), work.chosen_pages)
        self._asked = partial(
            sentence,
            tiers=inputs.tiers,
            traffic=traffic,
            model=work.model,
            weight=work.weight,
            rule=rule,
            confidence=work.confidence,
        )
        plan = work.plan()
        if len(plan) or len(plan.split) or not self._acted_ns:
            self._acted_ns = traffic.time_ns
        self._quiet_s = (traffic.time_ns - self._acted_ns) / 1e9
        return plan

    def _learn(self, traffic: Traffic, last: MigrationResult | None, work: CostRound) -> None:
        """Take in what came of the last plan."""
        self._folios.follow(traffic.time_ns, last)
        rest_s = COST.settling_half_lives * traffic.half_life_s
        work.pages = self._folios.rested(work.pages, traffic.time_ns, rest_s)
        self.outcomes.tried = self.hill_climber.busy or self.hill_climber.planned
        if self.hill_climber.planned:
            self.hill_climber.carried_out(traffic.time_ns, last)
        else:
            self.outcomes.carried_out(last)
            if last is not None and last.moved_bytes:
                self.hill_climber.reset_trials(traffic.time_ns)

    def _perturb(self, time_ns: int, work: CostRound, rule: Rule) -> None:
        """Let a slice be tried, where loads are told and nothing else is going on."""
        hill_climber, model = self.hill_climber, work.model
        if not self.outcomes.alike(hill_climber.mix):
            hill_climber.forget(time_ns, self.outcomes.mix)
        # A slice that is too much is a surprise itself.
        surprised = work.surprised and not hill_climber.trying
        if surprised or work.moves or "none" in model.source:
            hill_climber.reset_trials(time_ns)
        elif hill_climber.update(time_ns, work):
            back = hill_climber.verdict()
            if back is not None:
                work.take_back(*back)
            elif hill_climber.trying:
                hill_climber.promised(work.promise(rule))
            elif self.outcomes.settled:
                tried = hill_climber.due(
                    work,
                    model.loaded_ns(model.load, work.weight),
                    model.idle_ns,
                    model.load / model.bytes_per_s,
                )
                if tried is not None:
                    hill_climber.mix = self.outcomes.mix
                    work.bring(*tried)

    def _observe(self, traffic: Traffic, work: CostRound) -> bool:
        out = self.outcomes
        out.half_life_s = traffic.half_life_s
        standing = out.update(traffic.time_ns, work) if traffic.time_ns else False
        self.state = CostPolicyState(
            model=work.reported,
            loaded_ns=tuple(
                float(each) for each in work.reported.loaded_ns(work.reported.load, work.weight)
            ),
            correlation=out.correlation,
            predicted=out.predicted,
            observed=out.observed,
            spent_s=out.spent_s,
            last_minute_s=out.last_minute_s(traffic.time_ns),
            standing=standing,
            suspected=dict(out.suspected),
            allowance=out.allowance,
            kept=self.hill_climber.kept,
            failed=self.hill_climber.failed,
            least=self.hill_climber.least,
        )
        return standing
