# SPDX-License-Identifier: Apache-2.0
"""What stands beside the loop of `tierd run`: figures, control socket, the kept pause.

Neither may keep the service from its work: where one cannot be had (a port that is taken,
a folder that may not be written), that is an error in the log, and the loop runs.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tierd.config.model import Config
from tierd.control.commands import ControlContext
from tierd.control.events import EventFeed
from tierd.control.kept import PauseFile
from tierd.core.errors import TierdError, UnavailableError
from tierd.core.logfmt import logfmt
from tierd.core.process import give_up_all
from tierd.engine.loop import Service
from tierd.engine.tier_health import TierHealth
from tierd.observe.metrics import families as f
from tierd.observe.metrics.background import (
    Figures,
    of_errors,
    of_gpu,
    of_health,
    of_page_out,
    of_recorder,
)
from tierd.observe.metrics.state import MetricsState
from tierd.observe.metrics.values import Extra
from tierd.observe.recording.recorder import Recorder

log = logging.getLogger("tierd.run")

RENEWING = ("CAP_DAC_READ_SEARCH",)
STUCK_TICKS = 20
LEAST_STUCK_S = 30.0
"""The loop counts as stuck after so many ticks' time, and no sooner than this."""


def _health_of(watch: TierHealth, service: Service) -> Extra:
    def figures() -> Figures:
        found = of_health(watch.health, watch.results.copy(), watch.probe_cpu_ns)
        if watch.errors is None:
            return found
        return {**found, **of_errors(watch.errors.totals, service.tiers.nodes)}

    return figures


class Endpoints:
    """Figures, socket and pause of one service that does not run yet; a context around its run."""

    def __init__(
        self,
        config: Config,
        service: Service,
        *,
        dry_run: bool,
        recorder: Recorder | None = None,
    ) -> None:
        self._config = config
        self._service = service
        self.state = MetricsState(service, dry_run=dry_run)
        self.desk = ControlContext(
            service,
            self.state,
            EventFeed(lambda: service.components.tracking.targets),
            PauseFile(Path(config.control.state)),
            timeout_s=config.control.timeout_ns / 1e9,
        )
        self._extras: list[Extra] = [self.desk.figures]
        if recorder is not None:
            self._extras.append(lambda: of_recorder(recorder.stats()))
        for each in service.background:
            if each.name == "gpu":
                self._extras.append(lambda gpu=each: of_gpu(gpu.figures))  # type: ignore[misc]
            elif each.name == "page_out":
                self._extras.append(lambda out=each: of_page_out(out.state))  # type: ignore[misc]
            elif isinstance(each, TierHealth):
                self._extras.append(_health_of(each, service))
        if config.control.enabled or config.metrics.enabled:
            # Nobody else can ask for what they keep; both wait for a restart when they change.
            service.observe(self.state)
            service.observe(self.desk.feed)
        self.desk.restore()

    @contextlib.contextmanager
    def open(self, *, once: bool = False) -> Iterator[None]:
        """Serve until the block ends; with `once`, which ends by itself, serve nobody.

        Raises:
            UnavailableError: `once` can do nothing, for moving is paused.
        """
        if once:
            if self.desk.pause is not None:
                raise UnavailableError(
                    "moving is paused, so a single pass would move nothing", hint="tierd resume"
                )
            yield
            return
        with contextlib.ExitStack() as stack:
            # Beside the loop's first pass: what is imported takes longer than listening.
            opening = threading.Thread(target=self._open, args=(stack,), name="tierd-front")
            opening.start()
            try:
                yield
            finally:
                opening.join()

    def _open(self, stack: contextlib.ExitStack) -> None:
        from tierd.observe.metrics.background import Conflicts

        conflicts = Conflicts(self._source)
        self.desk.conflicts = conflicts.reported
        self._extras.append(conflicts.figures)
        starts: dict[str, Callable[[], None]] = {}
        for name, wanted, open_one in (
            ("control", self._config.control.enabled, self._open_control),
            ("metrics", self._config.metrics.enabled, self._open_metrics),
        ):
            if not wanted:
                continue
            try:
                starts[name] = open_one(stack)
            except TierdError as error:
                log.error(
                    logfmt(event=f"{name}_unavailable", reason=error.message, hint=error.hint)
                )
                if name == "metrics":
                    self.desk.metrics_url = f"not served: {error.message}"
            except Exception:
                log.exception(logfmt(event=f"{name}_unavailable", reason="a defect of tierd"))
        # Threads start with what their starter has. A renewed certificate must be readable.
        if "metrics" in starts:
            give_up_all(*(RENEWING if self._config.metrics.tls_cert else ()))
            starts["metrics"]()
        give_up_all()
        if "control" in starts:
            starts["control"]()

    def _open_control(self, stack: contextlib.ExitStack) -> Callable[[], None]:
        from tierd.control.protocol import group_number
        from tierd.control.server import ControlServer

        control = self._config.control
        server = ControlServer(
            Path(control.socket),
            self.desk,
            readers=group_number(control.group),
            connections=control.connections,
        )
        stack.callback(server.close)
        self._extras.append(server.counts)

        def start() -> None:
            server.start()
            log.info(logfmt(event="control_listening", socket=control.socket))

        return start

    def _open_metrics(self, stack: contextlib.ExitStack) -> Callable[[], None]:
        from tierd.observe.metrics.server import MetricsServer

        server = MetricsServer(
            self._config.metrics,
            lambda: self.state.values.snapshot,
            extras=self._extras,
            healthy=self.healthy,
        )
        stack.callback(server.close)
        self.desk.metrics_url = server.url

        def start() -> None:
            server.start()
            log.info(logfmt(event="metrics_listening", url=server.url))

        return start

    def _source(self) -> str:
        active = self.state.values.snapshot.values[f.SOURCE_ACTIVE]
        return next((labels[0] for labels, value in active.items() if value), "")

    def healthy(self) -> bool:
        """Whether the loop ended a pass lately; true before the first."""
        last = self.state.values.snapshot.values[f.LAST_TICK].get((), 0.0)
        limit = max(LEAST_STUCK_S, STUCK_TICKS * self._service.config.loop.interval_ns / 1e9)
        return not last or time.time() - last < limit
