# SPDX-License-Identifier: Apache-2.0
"""The control loop: sources to heat, heat to policy, policy to mover, once a tick.

Owns: time, signals, shutdown, and the order in which the rooms are called.
Must not touch: how any of them works inside.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from tierd.access import AccessBatch
from tierd.config import Config
from tierd.errors import ExitCode, UnavailableError
from tierd.hangup import HungUp
from tierd.moves import MovePlan, MoveReport
from tierd.policy.fairness import Groups
from tierd.policy.guards import LEAST_STRAINED, BudgetKeeper, GuardSettings
from tierd.policy.inputs import Budget, Inputs, NodeUsage, Pressure
from tierd.policy.traffic import Traffic
from tierd.service.companion import beside
from tierd.service.notify import Manager
from tierd.service.reload import Applied, Reloader, ReloadResult, prepare
from tierd.service.rooms import Makers, Rooms
from tierd.service.shares import Shares
from tierd.service.summary import Totals, logfmt
from tierd.service.tick import Calls, Laps, Observer, TickRecord
from tierd.service.wake import Wake
from tierd.tiermap import TierMap

log = logging.getLogger(__name__)

SUMMARY_NS = 10 * 10**9
WATCH_NS = 2 * 10**9
"""What sources watch is brought up to date at most this often."""
LISTEN_NS = 250 * 10**6
"""A sleeping loop wakes this often to show that it is alive, and takes in process events:
waking for each would cost a host that starts many more than all the rest of an idle loop."""
INGEST_S = 0.25
"""While the mover works, sources are read this often."""
LOCATE_SHARE = 0.5
"""Share of the residency budget that goes to hot pages of unknown node first."""


class Service:
    """One run of the loop.

    Args:
        config: settings in force.
        rooms: the parts.
        tiers: the first topology snapshot.
        wait: wait for a second tier instead of ending when there is one only.
        observers: told of every tick.
        makers: make parts anew for `reconfigure`.
        clock: CLOCK_MONOTONIC in ns.
    """

    def __init__(
        self,
        config: Config,
        rooms: Rooms,
        tiers: TierMap,
        *,
        wait: bool = False,
        observers: Sequence[Observer] = (),
        makers: Makers | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._config = config
        self._rooms = rooms
        self._tiers = tiers
        self._wait = wait
        self._clock = clock
        self._observers = list(observers)
        self._makers = makers
        self._budget = BudgetKeeper(_guards(config))
        self._shares = Shares(config.rules)
        self._groups: Groups | None = None
        self._traffic: Traffic | None = None
        self._stopping = False
        self._hurry = False
        self._last: MoveReport | None = None
        self._last_tick_ns = 0
        self._first_sample_ns = 0
        self._usage: Mapping[int, NodeUsage] = {}
        self._blind = False
        self._attached = False
        self._early: list[AccessBatch] = []
        self._moved = False
        self._granted: Budget | None = None
        self._next = dict.fromkeys(("targets", "watch", "summary", "events"), 0)
        self.totals = Totals()
        self.companions = tuple(rooms.companions)
        self.calls = Calls()
        self.paused = False
        """While true pages are watched and none is moved; set it through `calls`."""
        self.reloader: Reloader | None = None
        """What SIGHUP sets to work."""
        self.hung_up = HungUp()
        """Whether a SIGHUP waits to be served; one may have come before the loop was there."""
        self.manager = Manager({})
        """The service manager, told that the loop is alive."""
        self.on_attached: Callable[[Config], None] = lambda config: None
        """Called once, in the loop's thread, when a source is at work."""
        self.on_decided: Callable[[], None] = lambda: None
        """Called after each decision, before anything follows from it."""

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self._config

    def reconfigure(self, config: Config) -> Applied:
        """Use another configuration from the next tick on; call it through `calls`.

        Raises:
            TierdError: it cannot be used here; nothing has changed.
        """
        if self._makers is None:
            raise UnavailableError("this service cannot be configured anew")
        change = prepare(self._config, config, self._rooms, self._makers, wait=self._wait)
        if change.config.rules != self._config.rules:
            self._shares = Shares(change.config.rules)
        old, self._rooms, self._config = self._rooms, change.rooms, change.config
        change.apply(old)
        self._budget.configure(_guards(change.config))
        self._tiers = change.tiers or self._tiers
        self._next["targets"] = self._next["watch"] = 0
        self._hurry = True
        return change.applied

    @property
    def rooms(self) -> Rooms:
        """The parts in use."""
        return self._rooms

    @property
    def tiers(self) -> TierMap:
        """The latest topology snapshot."""
        return self._tiers

    @property
    def budget_share(self) -> float:
        """Share of the configured rate that is in force."""
        return self._budget.in_force

    def observe(self, observer: Observer) -> None:
        """Tell `observer` of every tick from now on; before `run`, or through `calls`."""
        self._observers.append(observer)

    def run(self, *, once: bool = False, on_summary: Callable[[], None] | None = None) -> int:
        """Loop until SIGTERM or SIGINT, or with `once` until one plan was carried out.

        Returns the exit code: OK, or NOTHING_TO_DO where there is one tier only.
        """
        with (
            Wake(self._rooms.hotplug.fileno(), on_stop=self._stop, on_hang_up=self.hung_up) as wake,
            ThreadPoolExecutor(1, "tierd-mover") as worker,
            beside(self._rooms.companions),
        ):
            self.calls.wakes(wake.interrupt)
            try:
                return self._loop(wake, worker, once=once, on_summary=on_summary)
            finally:
                self.manager.stopping()
                self.calls.wakes(None)
                self.calls.refuse("the service is stopping")
                if self._rooms.steering is not None:
                    self._rooms.steering.close()
                self._rooms.sources.close()
                self._rooms.tracking.close()
                self._rooms.hotplug.close()
                self._rooms.mover.close()

    def _stop(self, name: str) -> None:
        """SIGTERM or SIGINT: the mover ends after the call in hand, the loop after its pass."""
        self._stopping = True
        self._rooms.mover.stop()
        log.info(logfmt(event="stopping", signal=name))

    def _loop(
        self,
        wake: Wake,
        worker: ThreadPoolExecutor,
        *,
        once: bool,
        on_summary: Callable[[], None] | None,
    ) -> int:
        self._last_tick_ns = self._clock()
        self._next["summary"] = self._last_tick_ns + SUMMARY_NS
        while not self._stopping:
            start, spent = self._clock(), time.thread_time_ns()
            self._between()
            self._hurry = False
            if self._rooms.hotplug.changed():
                self._tiers = self._rooms.read_tiers()
                log.info(logfmt(event="topology_changed", tiers=len(self._tiers.tiers)))
            if len(self._tiers.tiers) > 1:
                acted = self._tick(start, worker, gather=once)
                if once and acted:
                    break
            elif not self._wait:
                return int(ExitCode.NOTHING_TO_DO)
            else:
                self.manager.ready("one tier only: waiting for a second")
            if start >= self._next["summary"] and on_summary is not None:
                self._next["summary"] = start + SUMMARY_NS
                on_summary()
            spent = time.thread_time_ns() - spent
            pause = max(self._config.loop.tick_ns, int(spent / self._config.loop.cpu_share))
            self._sleep(start + pause, wake)
        return int(ExitCode.OK)

    def reload(self) -> ReloadResult:
        """Use what the files say now, or keep what is in force; call it through `calls`."""
        if self.reloader is None:
            return ReloadResult(False, "this service was given no files to read again")
        self.manager.reloading()
        return self.reloader.reload()

    def _between(self) -> None:
        """What others asked for, between two ticks."""
        self.calls.serve()
        if self.hung_up.waits:
            self.hung_up.waits = False
            self.reload()
        self.manager.beat()

    def _sleep(self, until_ns: int, wake: Wake) -> None:
        while not (self._stopping or self._hurry) and (left := until_ns - self._clock()) > 0:
            self.manager.beat()
            asked, hotplug = wake.wait(min(left, LISTEN_NS) / 1e9)
            if asked:
                self._between()
            if hotplug:
                return  # look at once
            if (now := self._clock()) >= self._next["events"]:
                self._next["events"] = now + LISTEN_NS
                if self._rooms.tracking.collect():
                    self._next["targets"] = 0
                    return

    def _tick(self, now: int, worker: ThreadPoolExecutor, *, gather: bool) -> bool:
        """One pass; true if it decided.

        With `gather` it does so only when it knows enough: all pages were looked up, and
        samples came in for a half-life of heat.
        """
        rooms, config = self._rooms, self._config
        laps = Laps(self._clock)
        changed = False
        if now >= self._next["targets"]:
            self._next["targets"] = now + config.loop.targets_refresh_ns
            changed = rooms.tracking.refresh(now)
        laps.mark("targets")
        if changed or now >= self._next["watch"] or rooms.sources.active is None:
            self._next["watch"] = now + WATCH_NS
            self._watch(now)
        laps.mark("watch")
        batches = [*self._early, *self._ingest(now)]
        self._early = []
        # Before the first decision nobody knows what groups may still bring in.
        unknown = bool(self._config.rules) and self._groups is None
        if rooms.steering is not None and not (self.paused or gather or unknown):
            rooms.steering.prepare(self._tiers, rooms.read_usage)
        laps.mark("ingest")
        budget = config.loop.residency_pages
        located = rooms.tracking.locate(int(budget * LOCATE_SHARE))
        walked = rooms.tracking.walk(now, budget - located, self._demoting_nodes())
        laps.mark("residency")
        between = None if rooms.steering is None else rooms.steering.begin(now)
        if between is not None:
            self.totals.add_report(between)
            rooms.tracking.residents.moved(between)
            self._shares.spent(rooms.tracking.rules, between)
            rooms.cgroup_strain.note_moves(between)
        self._usage = rooms.read_usage(self._tiers)
        decides = not self.paused and (not gather or self._knows_enough(now))
        if decides:
            plan = self._decide(now)
            self.on_decided()
        else:
            self._last_tick_ns, self._granted, self._groups = now, None, None
            self._traffic = None
            plan = MovePlan.empty({"paused": 1} if self.paused else None)
        laps.mark("decide")
        self.totals.ticks += 1
        self.totals.add_plan(plan)
        allowed = plan if rooms.steering is None else rooms.steering.allow(plan)
        self._last = self._execute(allowed, worker)
        if rooms.steering is not None:
            stands = self.paused or self._stopping or gather
            stands = stands or bool(getattr(rooms.policy, "holds", False))
            rooms.steering.end(
                self._clock(),
                self._tiers,
                self._usage,
                self._last,
                paused=stands,
                groups=self._groups,
            )
            rooms.steering.tell(self.totals)
        laps.mark("move")
        self._tell(
            TickRecord(
                number=self.totals.ticks,
                time_ns=now,
                end_ns=self._clock(),
                source="" if rooms.sources.active is None else rooms.sources.active.name,
                batches=tuple(batches),
                located=located,
                walked=walked,
                targets=len(rooms.tracking.pids),
                tiers=self._tiers,
                usage=self._usage,
                budget=self._granted,
                plan=plan,
                report=self._last,
                ms=laps.ms,
                config=config,
                groups=self._groups,
                between=between,
                hot_set_moved=self._moved,
                traffic=self._traffic,
            )
        )
        return decides

    def _tell(self, tick: TickRecord) -> None:
        """Tell the observers; one that fails is told no more, the loop goes on."""
        for observer in list(self._observers):
            try:
                observer.on_tick(tick)
            except Exception:
                log.exception(logfmt(event="observer_failed", observer=type(observer).__name__))
                self._observers.remove(observer)

    def _knows_enough(self, now: int) -> bool:
        sampled_ns = now - self._first_sample_ns if self._first_sample_ns else 0
        return sampled_ns >= self._config.heat.half_life_ns and self._rooms.tracking.all_walked

    def _watch(self, now: int) -> None:
        """Tell sources what to watch; without any, pages stay where they are.

        Raises:
            UnavailableError: there has been no source since the start.
        """
        try:
            self._rooms.sources.watch(self._rooms.tracking.watched(), now)
        except UnavailableError as error:
            if not self.totals.ticks:
                raise
            if not self._blind:
                log.error(logfmt(event="no_source", reason=error.message, hint=error.hint))
            self._blind = True
        else:
            self._blind = False
            if not self._attached and self._rooms.sources.active is not None:
                self._attached = True
                self.on_attached(self._config)

    def _ingest(self, now: int) -> list[AccessBatch]:
        """Sources to heat; what they had seen."""
        self._rooms.heat.advance(now)
        steering = self._rooms.steering
        if steering is not None:
            steering.listen()
        batches = self._rooms.sources.poll(now)
        self._moved = steering is not None and steering.see(batches, now)
        if self._rooms.loads is not None:
            if self._moved:
                self._rooms.loads.forget()
            self._rooms.loads.see(batches, self._rooms.sources.active)
        for batch in batches:
            self._rooms.heat.ingest(batch)
            self._first_sample_ns = self._first_sample_ns or now
            self.totals.samples += len(batch)
            self.totals.lost_samples += batch.lost
        return batches

    def _demoting_nodes(self) -> list[int]:
        """Nodes whose cold pages must be known."""
        return [
            node
            for tier in self._tiers.tiers
            if self._tiers.demotion_tier(tier.rank) is not None
            for node in tier.nodes
        ]

    def _decide(self, now: int) -> MovePlan:
        tick_s = self._config.loop.tick_ns / 1e9
        elapsed = (now - self._last_tick_ns) / 1e9 if self.totals.ticks else tick_s
        self._last_tick_ns = now
        # A tick that came late may not spend what it missed all at once.
        elapsed = min(elapsed, 2 * tick_s)
        pressure = self._rooms.strain.read(now, getattr(self.totals, "migrations", None))
        self._granted = self._budget.next(elapsed, self._last, pressure)
        tracking = self._rooms.tracking
        self._groups = self._shares.groups(
            tracking.rules,
            tracking.residents,
            elapsed,
            self._strained(now),
            int(self._granted.move_bytes * LEAST_STRAINED),
        )
        loads = self._rooms.loads
        self._traffic = (
            None
            if loads is None
            else loads.read(now, sorted(self._tiers.nodes), self._rooms.sources.active)
        )
        return self._rooms.policy.decide(
            Inputs(
                heat=self._rooms.heat,
                tiers=self._tiers,
                usage=self._usage,
                budget=self._granted,
                last=self._last,
                groups=self._groups,
                traffic=self._traffic,
            )
        )

    def _strained(self, now: int) -> set[int]:
        """Targets whose control groups wait for memory or a CPU."""
        rooms, budget = self._rooms, self._config.budget
        strain, tracking = rooms.cgroup_strain, rooms.tracking
        if self._last is not None:
            strain.note_moves(self._last)

        def group_of() -> dict[int, str]:
            return {number: target.cgroup for number, target in tracking.targets.items()}

        groups = strain.read(now, group_of, budget.memory_pressure, budget.cpu_pressure)
        return {n for n, group in group_of().items() if group in groups} if groups else set()

    def _execute(self, plan: MovePlan, worker: ThreadPoolExecutor) -> MoveReport | None:
        """Let the worker carry the plan out; signals are served while this thread waits."""
        if not len(plan) or self._stopping:
            return None
        future: Future[MoveReport] = worker.submit(
            self._rooms.mover.execute, plan, self._rooms.tracking.pids
        )
        # Sources must not overflow while many pages move; heat may be fed meanwhile.
        while not wait([future], INGEST_S).done:
            self._early += self._ingest(self._clock())
        report = future.result()
        self._rooms.heat.moved(report)
        self._rooms.tracking.residents.moved(report)
        self._shares.spent(self._rooms.tracking.rules, report)
        self.totals.add_report(report)
        return report


def _guards(config: Config) -> GuardSettings:
    budget = config.budget
    most = Pressure(budget.memory_pressure, budget.cpu_pressure, budget.bounced_share)
    return GuardSettings(budget.rate_bytes_per_s, budget.failure_share, most)
