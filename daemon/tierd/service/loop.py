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
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import FrameType

from tierd.config import Config
from tierd.errors import ExitCode, UnavailableError
from tierd.heat.table import HeatTable
from tierd.mover import Mover
from tierd.moves import MovePlan, MoveReport
from tierd.policy.guards import BudgetKeeper, GuardSettings
from tierd.policy.inputs import Inputs, NodeUsage, Policy
from tierd.service.selection import SourceSelector
from tierd.service.summary import Totals, logfmt
from tierd.service.tracking import Tracking
from tierd.tiermap import TierMap
from tierd.topology import HotplugWatcher

log = logging.getLogger(__name__)

SUMMARY_NS = 10 * 10**9
WATCH_NS = 2 * 10**9
"""What sources watch is brought up to date at most this often."""
LOCATE_SHARE = 0.5
"""Share of the residency budget that goes to hot pages of unknown node first."""


class _Laps:
    """Milliseconds that the parts of a tick took."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._last = clock()
        self.ms: dict[str, int] = {}

    def mark(self, part: str) -> None:
        now = self._clock()
        self.ms[part] = (now - self._last) // 1_000_000
        self._last = now


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
        clock: CLOCK_MONOTONIC in ns.
    """

    def __init__(
        self,
        config: Config,
        rooms: Rooms,
        tiers: TierMap,
        *,
        wait: bool = False,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._config = config
        self._rooms = rooms
        self._tiers = tiers
        self._wait = wait
        self._clock = clock
        self._budget = BudgetKeeper(
            GuardSettings(config.budget.rate_bytes_per_s, config.budget.failure_share)
        )
        self._stopping = False
        self._last: MoveReport | None = None
        self._last_tick_ns = 0
        self._first_sample_ns = 0
        self._usage: Mapping[int, NodeUsage] = {}
        self._blind = False
        self._next = dict.fromkeys(("targets", "watch", "summary"), 0)
        self.totals = Totals()

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
        laps = _Laps(self._clock)
        changed = False
        if now >= self._next["targets"]:
            self._next["targets"] = now + config.loop.targets_refresh_ns
            changed = rooms.tracking.refresh(now)
        laps.mark("targets")
        if changed or now >= self._next["watch"] or rooms.sources.active is None:
            self._next["watch"] = now + WATCH_NS
            self._watch(now)
        laps.mark("watch")
        samples = self._ingest(now)
        laps.mark("ingest")
        budget = config.loop.residency_pages
        located = rooms.tracking.locate(int(budget * LOCATE_SHARE))
        walked = rooms.tracking.walk(now, budget - located, self._demoting_nodes())
        laps.mark("residency")
        if gather and not self._knows_enough(now):
            self._last_tick_ns = now
            self.totals.ticks += 1
            return False
        plan = self._decide(now)
        laps.mark("decide")
        self.totals.ticks += 1
        self.totals.add_plan(plan)
        self._last = self._execute(plan, worker)
        laps.mark("move")
        if log.isEnabledFor(logging.DEBUG):
            log.debug(
                logfmt(
                    event="tick",
                    targets=len(rooms.tracking.pids),
                    samples=samples,
                    located=located,
                    walked=walked,
                    planned=len(plan),
                    moved_bytes=self._last.moved_bytes if self._last else 0,
                    held_back=plan.notes,
                    free_mib={n: u.free_bytes >> 20 for n, u in self._usage.items()},
                    reserve_mib={n: u.reserve_bytes >> 20 for n, u in self._usage.items()},
                    ms=laps.ms,
                )
            )
        return True

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

    def _ingest(self, now: int) -> int:
        """Sources to heat; the number of page records."""
        samples = 0
        self._rooms.heat.advance(now)
        for batch in self._rooms.sources.poll(now):
            self._rooms.heat.ingest(batch)
            samples += len(batch)
            self._first_sample_ns = self._first_sample_ns or now
            self.totals.lost_samples += batch.lost
        self.totals.samples += samples
        return samples

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
        return self._rooms.policy.decide(
            Inputs(
                heat=self._rooms.heat,
                tiers=self._tiers,
                usage=self._usage,
                # A tick that came late may not spend what it missed all at once.
                budget=self._budget.next(min(elapsed, 2 * tick_s), self._last),
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
