# SPDX-License-Identifier: Apache-2.0
"""`Tick`: one iteration of the control loop: sources to heat, heat to policy, policy to mover."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from tierd.config.model import Config
from tierd.core import bounds
from tierd.core.access import AccessBatch
from tierd.core.errors import UnavailableError
from tierd.core.logfmt import logfmt
from tierd.core.migration import MigrationPlan, MigrationResult, SplitFate
from tierd.core.pagekey import VPN_BITS
from tierd.core.tiermap import NodeUsage, TierMap
from tierd.core.tuning import PACING
from tierd.engine.components import Components
from tierd.engine.decision import DecisionContext
from tierd.engine.phase import PhaseAge
from tierd.engine.refusals import Refusals
from tierd.engine.sampling_limits import SamplingLimits
from tierd.engine.standing_account import StandingAccount
from tierd.engine.undo import Undo
from tierd.migration.origins import Origins
from tierd.observe.tick_record import Observer, StageTimer, TickRecord
from tierd.observe.totals import Totals
from tierd.policy.rule import break_even_s

log = logging.getLogger(__name__)

IN_PIECES = (SplitFate.DONE, SplitFate.ALREADY)
"""Split results after which a folio consists of 4 KiB pages."""


class Tick:
    """Runs the ticks of a service, one at a time, in its loop's thread.

    Attributes:
        paused: while true pages are watched, and not moved.
        on_attached: called once, when a source is attached.
        on_decided: called after each decision, before its moves begin.
        origins: where pages were before tierd moved them.
        undo: puts pages back, while the service is paused or stands down.
        refusals: what the kernel refused to move, which is left alone for a while.
        account: whether moving pays; the service stands down when it does not.
    """

    def __init__(
        self,
        config: Config,
        components: Components,
        tiers: TierMap,
        *,
        observers: Sequence[Observer] = (),
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.config = config
        self.components = components
        self.tiers = tiers
        self.observers = list(observers)
        self.totals = Totals()
        self.decision = DecisionContext(config)
        self.sampling_limits = SamplingLimits(components.heat, components.tracking.resident_bytes)
        self.origins = Origins(int(components.heat.stats().capacity * bounds.UNDO_FRACTION) + 1)
        self.undo = Undo(self.origins)
        self.refusals = Refusals(
            components.heat,
            components.tracking.mappings,
            int(components.heat.stats().capacity * bounds.REFUSALS_FRACTION) + 1,
        )
        self.totals.tell_refusals = self._tell_refusals
        components.tracking.left_alone = self._left_alone
        self.account = StandingAccount()
        self.totals.tell_account = self.account.as_json
        components.tracking.on_forgotten = self._forget
        self.paused = self.stopping = False
        self.on_attached: Callable[[Config], None] = lambda config: None
        self.on_decided: Callable[[], None] = lambda: None
        self._clock = clock
        self.last: TickRecord | None = None
        self._last: MigrationResult | None = None
        self.phase_age = PhaseAge()
        self._usage: Mapping[int, NodeUsage] = {}
        self._blind = False
        self._attached = False
        self._early: list[AccessBatch] = []
        self._moved = self._changed = False
        self._targets_ns = self._watch_ns = 0
        self._aside_cpu_ns = self._reads_cpu_ns = 0

    def renew(self) -> None:
        """Refresh targets, and give them to sources again, in the next tick."""
        self._targets_ns = self._watch_ns = 0

    def refresh(self) -> None:
        """Refresh targets in the next tick."""
        self._targets_ns = 0

    def targets_changed(self, now: int) -> bool:
        """Refresh targets between two ticks, if it is time; whether any have changed since.

        The CPU time counts for the next tick. With a single tier there are no targets.
        """
        if len(self.tiers.tiers) < 2:
            return False
        if now >= self._targets_ns:
            laps = StageTimer(self._clock)
            self._refresh_targets(now)
            laps.mark("targets")
            self.totals.add_parts(laps.ns, laps.cpu_ns)
            self._aside_cpu_ns += laps.cpu_ns["targets"]
        return self._changed

    def take_aside_cpu_ns(self) -> int:
        """CPU time that was spent between ticks, and by readers, since the last call."""
        spent, self._aside_cpu_ns = self._aside_cpu_ns, 0
        before, self._reads_cpu_ns = self._reads_cpu_ns, self.components.tracking.reads.cpu_ns
        return spent + self._reads_cpu_ns - before

    def _refresh_targets(self, now: int) -> None:
        if now >= self._targets_ns:
            self._targets_ns = now + self.config.targets.refresh_interval_ns
            self._changed = self.components.tracking.refresh(now) or self._changed

    def run(self, now: int, worker: ThreadPoolExecutor, *, gather: bool) -> bool:
        """One tick; true if it made a decision.

        With `gather` it decides only when all pages were located, and samples came in for a
        half-life of heat.
        """
        components, config = self.components, self.config
        laps = StageTimer(self._clock)
        self._refresh_targets(now)
        laps.mark("targets")
        due = self._changed or now >= self._watch_ns or components.sources.active is None
        if due and not self.stopping:
            self._watch_ns = now + PACING.upkeep_interval_ns
            self._watch(now)
        self._changed = False
        laps.mark("watch")
        batches = [*self._early, *self._ingest(now)]
        self._early = []
        self._prepare_fast_path(gather=gather)
        laps.mark("ingest")
        located, walked = self._locate(now)
        laps.mark("residency")
        between = self._between(now)
        self._usage = components.read_usage(self.tiers)
        decides = not self.stands and (not gather or self._knows_enough(now))
        plan = self._plan(now, decides=decides)
        laps.mark("decide")
        self.totals.ticks += 1
        self.totals.add_plan(plan)
        fast = None if self.undo.active else components.fast_path
        self._last = self._execute(plan if fast is None else fast.allow(plan), worker)
        self._steer(gather=gather)
        laps.mark("move")
        self.totals.add_parts(laps.ns, laps.cpu_ns)
        self.last = TickRecord(
            number=self.totals.ticks,
            time_ns=now,
            end_ns=self._clock(),
            source="" if components.sources.active is None else components.sources.active.name,
            batches=tuple(batches),
            located=located,
            walked=walked,
            targets=len(components.tracking.pids),
            tiers=self.tiers,
            usage=self._usage,
            budget=self.decision.granted,
            plan=plan,
            report=self._last,
            ms=laps.ms,
            config=config,
            groups=self.decision.groups,
            between=between,
            hot_set_moved=self._moved,
            traffic=self.decision.traffic,
            exchanged=self.decision.exchanged,
        )
        self._tell(self.last)
        laps.mark("tell")
        self.totals.add_parts({"tell": laps.ns["tell"]}, {"tell": laps.cpu_ns["tell"]})
        return decides

    def _prepare_fast_path(self, *, gather: bool) -> None:
        """Have the fast path promote until the decision, where that is allowed."""
        # Before the first decision the groups' remaining budgets are not known.
        unknown = bool(self.config.rules) and self.decision.groups is None
        fast_path = self.components.fast_path
        if fast_path is not None and not (self.stands or gather or unknown):
            fast_path.prepare(self.tiers, self.components.read_usage)

    def _locate(self, now: int) -> tuple[int, int]:
        """Find out where pages are: how many hot ones were asked for, and how many walked."""
        if self.account.stands or self.stopping:
            return 0, 0
        tracking, budget = self.components.tracking, self.config.residency.pages_per_tick
        # Pages that do not pay for a move are located by the residency scans alone.
        least = self.config.policy.confidence_sigmas**2 * PACING.locate_heat_fraction
        located = tracking.locate(int(budget * PACING.locate_budget_fraction), least)
        return located, tracking.walk(now, budget - located, self.tiers.demoting_nodes)

    def _between(self, now: int) -> MigrationResult | None:
        """Stop the fast path; the moves that it made since the tick before."""
        components = self.components
        between = None if components.fast_path is None else components.fast_path.begin(now)
        if between is not None:
            self.totals.add_report(between)
            components.tracking.resident_bytes.moved(between)
            self.origins.moved(between)
            self.account.moved(between, self.tiers, components.heat.half_life_s)
            self.decision.spent(components, between)
            self.refusals.see(between, now)
            components.cgroup_pressure.note_moves(between)
        self._balance(now)
        return between

    @property
    def stands(self) -> bool:
        """Whether the policy decides nothing: a pause, an undo, or moving does not pay."""
        return self.paused or self.account.holds or self.undo.active

    def _balance(self, now: int) -> None:
        """Bring the account up to date; where moves have done harm, have them undone."""
        policy, account = self.config.policy, self.account
        # The cost policy measures the effect of its moves itself. An undo's are not predicted.
        wanted = policy.stand_down and self.components.loads is None
        if not wanted and account.stands:
            account.end()
        stood = account.stands
        pays_in_s = break_even_s(policy.break_even_time_ns / 1e9, self.phase_age.seconds(now))
        counts = wanted and not (self.paused or self.undo.active)
        if account.see(self.components.sources.active, now, pays_in_s, counts=counts):
            self.undo.wanted = True
        if account.stands != stood:
            self._watch_ns = 0
            self.phase_age.restart(now)

    def _plan(self, now: int, *, decides: bool) -> MigrationPlan:
        """The plan of this tick; empty if it decides nothing."""
        if self.undo.wanted and self.stands:
            self.components.mover.resume()
            self.undo.begin(self.tiers)
        if self.undo.active and not self.stopping:
            budget, _ = self.decision.grant(self.config, self.components, now)
            self.decision.stand(now)
            return self.undo.plan(self.components.tracking, budget.move_bytes)
        if not decides:
            self.decision.stand(now)
            why = "paused" if self.paused else "control" if self.account.holds else ""
            why = "stands_down" if self.account.stands and not self.paused else why
            return MigrationPlan.empty({why: 1} if why else None)
        self.refusals.release(now)
        plan = self.decision.decide(
            self.config,
            self.components,
            tiers=self.tiers,
            usage=self._usage,
            last=self._last,
            now_ns=now,
            migrations=self.totals.migrations,
        )
        self.on_decided()
        return plan

    def _forget(self, target: int) -> None:
        """A target ended: its number may be another's from now on."""
        self.origins.forget(target)
        self.undo.forget(target)
        self.refusals.forget(target)
        self.decision.budget.forget(target)

    def _left_alone(self) -> list[tuple[int, int]]:
        """Mappings that refuse, and targets whose moves failed, as page keys [start, end)."""
        targets = self.decision.budget.shares
        whole = ((each << VPN_BITS, (each + 1) << VPN_BITS) for each in targets)
        refused = (span for span in self.refusals.spans() if span[0] >> VPN_BITS not in targets)
        return sorted([*whole, *refused])

    def _tell_refusals(self) -> dict[str, Any]:
        """What is left alone, and the pids of targets whose moves failed with their shares."""
        pids, shares = self.components.tracking.pids, self.decision.budget.shares
        limited = {str(pids[each]): share for each, share in shares.items() if each in pids}
        return self.refusals.as_json() | {"limited": limited}

    def _steer(self, *, gather: bool) -> None:
        """Count the calls that both paths made, update the fast path, and start it again."""
        self.totals.add_calls(*self.components.mover.take_calls())
        fast_path = self.components.fast_path
        if fast_path is None:
            return
        stands = self.stands or self.stopping or gather or self.components.policy.holds
        now = self._clock()
        fast_path.end(
            now,
            self.tiers,
            self._usage,
            self._last,
            phase_age_s=self.phase_age.seconds(now),
            paused=stands,
            groups=self.decision.groups,
        )
        fast_path.tell(self.totals)

    def _tell(self, tick: TickRecord) -> None:
        """Give the record to the observers; one that fails is removed, and the loop goes on."""
        self.totals.tick_ns.add(tick.end_ns - tick.time_ns)
        for observer in list(self.observers):
            try:
                observer.on_tick(tick)
            except Exception:
                log.exception(logfmt(event="observer_failed", observer=type(observer).__name__))
                self.observers.remove(observer)

    def _knows_enough(self, now: int) -> bool:
        walked = self.components.tracking.all_walked
        half_life_ns = int(1e9 * self.components.heat.half_life_s)
        return self.phase_age.gathered(now, half_life_ns, walked=walked)

    def _watch(self, now: int) -> None:
        """Give sources their targets; without a source, pages stay where they are.

        Raises:
            UnavailableError: there has been no source since the start.
        """
        try:
            # Scanning is most of what a service costs that moves nothing.
            stands = self.account.stands
            self.components.sources.watch([] if stands else self.components.tracking.watched(), now)
        except UnavailableError as error:
            if not self.totals.ticks:
                raise
            if not self._blind:
                log.error(logfmt(event="no_source", reason=error.message, hint=error.hint))
            self._blind = True
        else:
            self._blind = False
            if not self._attached and self.components.sources.active is not None:
                self._attached = True
                self.on_attached(self.config)

    def _ingest(self, now: int) -> list[AccessBatch]:
        """Read the sources into heat; the batches that they had."""
        components = self.components
        components.heat.advance(now)
        fast_path = components.fast_path
        if fast_path is not None:
            fast_path.listen()
        active = components.sources.active
        self.sampling_limits.aim(active, self.tiers, self._usage, self.config.policy.high_watermark)
        break_even_s = self.config.policy.break_even_time_ns / 1e9
        self.sampling_limits.bound(active, self.tiers, break_even_s, self.phase_age.seconds(now))
        batches = components.sources.poll(now)
        in_use = components.sources.active
        components.tracking.leave_alone(in_use.unseen if in_use else frozenset())
        self.sampling_limits.follow_unit(active)
        configured_s = self.config.heat.half_life_ns / 1e9
        # The cost policy's loads have heat's half-life, and patterns of their own time.
        follows = components.loads is None
        self.sampling_limits.follow_period(active, configured_s, follows=follows)
        if fast_path is not None and fast_path.restart_epoch(now):
            self.phase_age.restart(now)
        scans = components.sources.event_driven
        self._moved = self.phase_age.see(
            None if scans is None else scans.phase_change_ns, batches, now
        )
        if components.loads is not None:
            if self._moved:
                components.loads.forget()
            components.loads.see(batches, components.sources.active)
        self.totals.scan_phase_changes = self.phase_age.scan_changes
        for batch in batches:
            components.heat.ingest(batch)
            self.totals.samples += len(batch)
            self.totals.lost_samples += batch.lost
        return batches

    def _execute(self, plan: MigrationPlan, worker: ThreadPoolExecutor) -> MigrationResult | None:
        """Have the worker execute the plan; signals are served while this thread waits."""
        if not (len(plan) or len(plan.split)) or self.stopping:
            return None
        components = self.components
        future: Future[MigrationResult] = worker.submit(
            components.mover.execute, plan, components.tracking.pids
        )
        # Sources are read while many pages move, so that their buffers do not overflow.
        while not wait([future], bounds.WAKE_INTERVAL_NS / 1e9).done:
            self._early += self._ingest(self._clock())
        report = future.result()
        split = report.plan.split
        if len(split):
            split = split[np.isin(report.split_fate, IN_PIECES)]
        if len(split):
            # Called before heat gets the moves: up to here all of heat's inputs are the outcome's.
            small = np.zeros(len(split), np.uint8)
            components.heat.place(split, components.heat.where(split), small, insert_on=())
        components.heat.moved(report)
        components.tracking.resident_bytes.moved(report)
        self.decision.spent(components, report)
        self.refusals.see(report, self._clock())
        self.totals.add_report(report)
        if self.undo.active:
            self.undo.carried_out(report)
        else:
            self.origins.moved(report)
            self.account.moved(report, self.tiers, components.heat.half_life_s)
        return report
