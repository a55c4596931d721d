# SPDX-License-Identifier: Apache-2.0
"""The control loop: sources to heat, heat to policy, policy to mover, once a tick.

Owns: time, signals, shutdown, and the order in which the rooms are called.
Must not touch: how any of them works inside.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import FrameType

from tierd.access import AccessBatch
from tierd.config import Config
from tierd.errors import ExitCode, UnavailableError
from tierd.heat.table import HeatTable
from tierd.mover import Mover
from tierd.moves import MovePlan, MoveReport
from tierd.policy.guards import BudgetKeeper, GuardSettings
from tierd.policy.inputs import Budget, Inputs, NodeUsage, Policy
from tierd.service.selection import SourceSelector
from tierd.service.summary import Totals, logfmt
from tierd.service.tick import Calls, Laps, Observer, TickRecord
from tierd.service.tracking import Tracking
from tierd.tiermap import TierMap
from tierd.topology import HotplugWatcher

log = logging.getLogger(__name__)

SUMMARY_NS = 10 * 10**9
WATCH_NS = 2 * 10**9
"""What sources watch is brought up to date at most this often."""
LOCATE_SHARE = 0.5
"""Share of the residency budget that goes to hot pages of unknown node first."""


@dataclass(frozen=True)
class Rooms:
    """The parts the loop wires together."""

    sources: SourceSelector
    tracking: Tracking
    heat: HeatTable
    policy: Policy
    mover: Mover
    read_tiers: Callable[[], TierMap]
    read_usage: Callable[[TierMap], Mapping[int, NodeUsage]]
    hotplug: HotplugWatcher


class Service:
    """One run of the loop.

    Args:
        config: settings in force.
        rooms: the parts.
        tiers: the first topology snapshot.
        wait: wait for a second tier instead of ending when there is one only.
        observers: told of every tick.
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
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._config = config
        self._rooms = rooms
        self._tiers = tiers
        self._wait = wait
        self._clock = clock
        self._observers = list(observers)
        self._budget = BudgetKeeper(
            GuardSettings(config.budget.rate_bytes_per_s, config.budget.failure_share)
        )
        self._stopping = False
        self._last: MoveReport | None = None
        self._last_tick_ns = 0
        self._first_sample_ns = 0
        self._usage: Mapping[int, NodeUsage] = {}
        self._blind = False
        self._granted: Budget | None = None
        self._next = dict.fromkeys(("targets", "watch", "summary"), 0)
        self.totals = Totals()
        self.calls = Calls()
        self.paused = False
        """While true pages are watched and none is moved; set it through `calls`."""

    def run(self, *, once: bool = False, on_summary: Callable[[], None] | None = None) -> int:
        """Loop until SIGTERM or SIGINT, or with `once` until one plan was carried out.

        Returns the exit code: OK, or NOTHING_TO_DO where there is one tier only.
        """
        wake, interrupt = socket.socketpair()
        with (
            contextlib.closing(wake),
            contextlib.closing(interrupt),
            selectors.DefaultSelector() as selector,
            ThreadPoolExecutor(1, "tierd-mover") as worker,
            self._signals(interrupt),
        ):
            wake.setblocking(False)
            self.calls.wakes(interrupt)
            selector.register(wake, selectors.EVENT_READ)
            for fd, what in (
                (self._rooms.hotplug.fileno(), "hotplug"),
                (self._rooms.tracking.event_fd, "processes"),
            ):
                if fd >= 0:
                    selector.register(fd, selectors.EVENT_READ, what)
            try:
                return self._loop(selector, wake, worker, once=once, on_summary=on_summary)
            finally:
                self.calls.wakes(None)
                self.calls.refuse("the service is stopping")
                self._rooms.sources.close()
                self._rooms.tracking.close()
                self._rooms.hotplug.close()
                self._rooms.mover.close()

    @contextlib.contextmanager
    def _signals(self, interrupt: socket.socket) -> Iterator[None]:
        """SIGTERM and SIGINT stop the mover at once and wake the loop."""

        def stop(number: int, frame: FrameType | None) -> None:
            del frame
            self._stopping = True
            self._rooms.mover.stop()
            log.info(logfmt(event="stopping", signal=signal.Signals(number).name))
            with contextlib.suppress(OSError):
                interrupt.send(b"s")

        old = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    def _loop(
        self,
        selector: selectors.BaseSelector,
        wake: socket.socket,
        worker: ThreadPoolExecutor,
        *,
        once: bool,
        on_summary: Callable[[], None] | None,
    ) -> int:
        self._last_tick_ns = self._clock()
        self._next["summary"] = self._last_tick_ns + SUMMARY_NS
        while not self._stopping:
            start, spent = self._clock(), time.thread_time_ns()
            self.calls.serve()
            if self._rooms.hotplug.changed():
                self._tiers = self._rooms.read_tiers()
                log.info(logfmt(event="topology_changed", tiers=len(self._tiers.tiers)))
            if len(self._tiers.tiers) > 1:
                acted = self._tick(start, worker, gather=once)
                if once and acted:
                    break
            elif not self._wait:
                return int(ExitCode.NOTHING_TO_DO)
            if start >= self._next["summary"] and on_summary is not None:
                self._next["summary"] = start + SUMMARY_NS
                on_summary()
            spent = time.thread_time_ns() - spent
            pause = max(self._config.loop.tick_ns, int(spent / self._config.loop.cpu_share))
            self._sleep(start + pause, selector, wake)
        return int(ExitCode.OK)

    def _sleep(self, until_ns: int, selector: selectors.BaseSelector, wake: socket.socket) -> None:
        while not self._stopping and (left := until_ns - self._clock()) > 0:
            for key, _ in selector.select(left / 1e9):
                if key.fileobj is wake:
                    with contextlib.suppress(BlockingIOError):
                        wake.recv(64)
                    self.calls.serve()
                elif key.data == "hotplug":
                    return  # look at once
                elif self._rooms.tracking.collect():
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
        batches = self._ingest(now)
        laps.mark("ingest")
        budget = config.loop.residency_pages
        located = rooms.tracking.locate(int(budget * LOCATE_SHARE))
        walked = rooms.tracking.walk(now, budget - located, self._demoting_nodes())
        laps.mark("residency")
        decides = not self.paused and (not gather or self._knows_enough(now))
        if decides:
            plan = self._decide(now)
        else:
            self._last_tick_ns, self._granted = now, None
            plan = MovePlan.empty({"paused": 1} if self.paused else None)
        laps.mark("decide")
        self.totals.ticks += 1
        self.totals.add_plan(plan)
        self._last = self._execute(plan, worker)
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

    def _ingest(self, now: int) -> list[AccessBatch]:
        """Sources to heat; what they had seen."""
        self._rooms.heat.advance(now)
        batches = self._rooms.sources.poll(now)
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
        self._usage = self._rooms.read_usage(self._tiers)
        # A tick that came late may not spend what it missed all at once.
        self._granted = self._budget.next(min(elapsed, 2 * tick_s), self._last)
        return self._rooms.policy.decide(
            Inputs(
                heat=self._rooms.heat,
                tiers=self._tiers,
                usage=self._usage,
                budget=self._granted,
                last=self._last,
            )
        )

    def _execute(self, plan: MovePlan, worker: ThreadPoolExecutor) -> MoveReport | None:
        """Let the worker carry the plan out; signals are served while this thread waits."""
        if not len(plan) or self._stopping:
            return None
        future: Future[MoveReport] = worker.submit(
            self._rooms.mover.execute, plan, self._rooms.tracking.pids
        )
        report = future.result()
        self._rooms.heat.moved(report)
        self.totals.add_report(report)
        return report
