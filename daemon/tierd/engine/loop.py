# SPDX-License-Identifier: Apache-2.0
"""`Service`: the control loop. It runs a tick, sleeps, and begins again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tierd._native import lib
from tierd.config.model import Config
from tierd.core import bounds
from tierd.core.errors import ExitCode, UnavailableError
from tierd.core.logfmt import logfmt
from tierd.core.tiermap import TierMap
from tierd.engine.components import ComponentFactory, Components, beside
from tierd.engine.pacing import TickPacer
from tierd.engine.reload import Applied, Reloader, ReloadResult, prepare
from tierd.engine.systemd import SystemdNotifier
from tierd.engine.tick import Tick
from tierd.engine.wakeups import EventPoller, LoopExecutor, SighupFlag
from tierd.hotness.view import PageSet
from tierd.observe.tick_record import Observer
from tierd.observe.totals import Totals
from tierd.policy.rule import Verdict

log = logging.getLogger(__name__)

ONE_TIER: Final = "one tier only: waiting for a second"


class Service:
    """One run of the loop.

    Args:
        wait: wait for a second tier instead of ending when there is one only at the start; when
            there has been a second one, it is waited for in any case.
    """

    def __init__(
        self,
        config: Config,
        components: Components,
        tiers: TierMap,
        *,
        wait: bool = False,
        observers: Sequence[Observer] = (),
        factory: ComponentFactory | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.work = Tick(config, components, tiers, observers=observers, clock=clock)
        """Runs the ticks, and holds their state."""
        self.pacer = TickPacer()
        self._wait = wait
        self._clock = clock
        self._factory = factory
        self._hurry = self._waits = False
        self._signal = ""
        self._signal_ns = self._given_up = 0
        self._summary_ns = self._events_ns = 0
        self.background = tuple(components.background)
        self.calls = LoopExecutor()
        self.reloader: Reloader | None = None
        """Reads the files again after SIGHUP."""
        self.sighup = SighupFlag()
        """Set by SIGHUP, which may come before the loop runs."""
        self.manager = SystemdNotifier({})
        """Reports to the service manager that the loop is alive."""

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.work.config

    @property
    def components(self) -> Components:
        """The parts in use."""
        return self.work.components

    @property
    def tiers(self) -> TierMap:
        """The latest topology snapshot."""
        return self.work.tiers

    @property
    def totals(self) -> Totals:
        """Counters since the start."""
        return self.work.totals

    @property
    def paused(self) -> bool:
        """While true pages are watched, and not moved; set it through `calls`; a tick follows."""
        return self.work.paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self.work.paused = paused
        self._hurry = True

    def undo(self) -> None:
        """Have the next tick begin to put pages back, while the service is paused.

        It may be called from any thread, and works where the loop is stuck.
        """
        self.work.paused = self.work.undo.wanted = self._hurry = True

    def explain(self, page: PageSet) -> Verdict | str:
        """The next decision about a page; call it through `calls`."""
        for key in page.page.tolist():
            if why := self.work.refusals.why(key, self._clock()):
                return f"it stays: {why}"
        return self.work.decision.explain(self.components.policy, page)

    def read_tiers(self) -> None:
        """Let the next tick know the tiers as they are now; call it through `calls`."""
        self.work.tiers = self.components.read_tiers()

    def observe(self, observer: Observer) -> None:
        """Give `observer` the record of every tick; before `run`, or through `calls`."""
        self.work.observers.append(observer)

    def reconfigure(self, config: Config) -> Applied:
        """Use another configuration from the next tick on; call it through `calls`.

        Raises:
            TierdError: the configuration cannot be used here; nothing has changed.
        """
        if self._factory is None:
            raise UnavailableError("this service cannot be configured anew")
        work = self.work
        change = prepare(work.config, config, work.components, self._factory, wait=self._wait)
        old, work.components, work.config = work.components, change.components, change.config
        change.apply(old)
        work.decision.configure(change.config)
        work.tiers = change.tiers or work.tiers
        work.renew()
        self._hurry = True
        return change.applied

    def run(self, *, once: bool = False, on_summary: Callable[[], None] | None = None) -> int:
        """Loop until SIGTERM or SIGINT, or with `once` until one plan was carried out.

        Returns the exit code: OK, or NOTHING_TO_DO where there is one tier only.
        """
        try:
            return self._run(once=once, on_summary=on_summary)
        finally:
            if self._signal:
                self._tell_end()

    def _run(self, *, once: bool, on_summary: Callable[[], None] | None) -> int:
        with (
            EventPoller(
                self.components.hotplug.fileno(), on_stop=self._stop, on_hang_up=self.sighup
            ) as wake,
            ThreadPoolExecutor(1, "tierd-mover") as worker,
            beside(self.components.background),
        ):
            self.calls.wakes(wake.interrupt)
            try:
                return self._loop(wake, worker, once=once, on_summary=on_summary)
            finally:
                if self._signal:
                    log.info(logfmt(event="stopping", signal=self._signal))
                self.manager.stopping()
                self.calls.wakes(None)
                self.calls.refuse("the service is stopping")
                if self.components.fast_path is not None:
                    self.components.fast_path.close()
                self.components.sources.close()
                self.components.tracking.close()
                self.components.hotplug.close()
                self.components.mover.close()

    def _stop(self, name: str) -> None:
        """SIGTERM or SIGINT: the mover ends after its present call, the loop after its tick.

        Logs nothing: it may interrupt a write to stderr, which is not reentrant.
        """
        if not self._signal:
            self._signal_ns, self._given_up = self._clock(), self.components.tracking.given_up
        self._signal = name
        self.work.stopping = True
        self.components.tracking.reads.stop()
        self.components.mover.stop()

    def _tell_end(self) -> None:
        """Log what the end took: waits for answers that were given up after the signal."""
        given_up = self.components.tracking.given_up - self._given_up
        seconds = (self._clock() - self._signal_ns) / 1e9
        log.info(logfmt(event="stopped", given_up=given_up, seconds=seconds))

    def _loop(
        self,
        wake: EventPoller,
        worker: ThreadPoolExecutor,
        *,
        once: bool,
        on_summary: Callable[[], None] | None,
    ) -> int:
        paid_ns = self._clock()
        self._summary_ns = paid_ns + bounds.SUMMARY_INTERVAL_NS
        while not self.work.stopping:
            start, spent = self._clock(), lib.tierd_thread_cpu_ns()
            self._between()
            self._hurry = False
            if self.components.hotplug.changed():
                self.read_tiers()
                log.info(logfmt(event="topology_changed", tiers=len(self.tiers.tiers)))
            if len(self.tiers.tiers) > 1:
                # Memory that goes now may come back, as hotplug has it.
                self._wait, self._waits = True, False
                acted = self.work.run(start, worker, gather=once)
                if once and acted:
                    break
            elif not self._wait:
                return int(ExitCode.NOTHING_TO_DO)
            else:
                self._stand_by()
            if start >= self._summary_ns and on_summary is not None:
                self._summary_ns = start + bounds.SUMMARY_INTERVAL_NS
                on_summary()
            spent = lib.tierd_thread_cpu_ns() - spent + self.work.take_aside_cpu_ns()
            loop = self.config.loop
            paid_ns = max(paid_ns, start) + int(spent / loop.cpu_limit)
            allowed = paid_ns - bounds.CPU_CREDIT_NS
            pause = self.pacer.pause_ns(loop, self.components, self.work.last)
            pause = loop.interval_ns if self.work.undo.active else pause
            least = max(start + min(loop.interval_ns, pause), allowed)
            self._sleep(allowed, least, max(least, start + pause), wake)
        return int(ExitCode.OK)

    def _stand_by(self) -> None:
        """There is one tier: wait for another to come."""
        if not self._waits:
            log.warning(logfmt(event="waiting", reason="all memory is in one tier now"))
        self._waits = True
        self.manager.ready(ONE_TIER)
        self.manager.tell(ONE_TIER)
        self.work.undo.cancel()

    def reload(self) -> ReloadResult:
        """Apply the files, or keep the configuration in force; call it through `calls`."""
        if self.reloader is None:
            return ReloadResult(False, "this service was given no files to read again")
        self.manager.reloading()
        return self.reloader.reload()

    def _between(self) -> None:
        """Serve calls of other threads and SIGHUP, between two ticks."""
        self.calls.serve()
        if self.sighup.waits:
            self.sighup.waits = False
            self.reload()
        self.manager.beat()

    def _sleep(self, allowed_ns: int, least_ns: int, until_ns: int, wake: EventPoller) -> None:
        """Sleep until `until_ns`, and no longer than `least_ns` when there is something to do.

        A phase change, or changed targets, end the sleep as soon as the CPU budget allows a tick,
        at `allowed_ns`.
        """
        source = self.components.sources.event_driven
        wake.listen(-1 if source is None else source.phase_change_fd)
        while not (self.work.stopping or self._hurry) and (left := until_ns - self._clock()) > 0:
            self.manager.beat()
            asked, hotplug, ended = wake.wait(min(left, bounds.WAKE_INTERVAL_NS) / 1e9)
            # Nothing that may wait for an answer begins after a signal.
            if self.work.stopping or (ended and self._phase_changed(allowed_ns)):
                return
            if asked:
                self._between()
            if hotplug:
                return  # the tick reads the new topology
            now = self._clock()
            self._collect(now)
            if now >= allowed_ns and self.work.targets_changed(now):
                return
            if now >= least_ns and until_ns > least_ns and self._must_tick(now):
                return

    def _collect(self, now: int) -> None:
        """Take in process events, a few times a second."""
        if now >= self._events_ns:
            self._events_ns = now + bounds.WAKE_INTERVAL_NS
            if self.components.tracking.collect():
                self.work.refresh()

    def _phase_changed(self, allowed_ns: int) -> bool:
        """Whether a phase change ends the sleep."""
        source = self.components.sources.event_driven
        return source is not None and self._clock() >= allowed_ns and source.phase_changed()

    def _must_tick(self, now: int) -> bool:
        """Whether the pacer ends the interval early."""
        return self.pacer.must_tick(self.components, self.work.last, now)
