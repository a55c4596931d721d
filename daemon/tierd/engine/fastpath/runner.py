# SPDX-License-Identifier: Apache-2.0
"""`FastPathRunner`: the promoter with its ring; starts, holds and stops its thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from pathlib import Path

from tierd.core.errors import UnavailableError
from tierd.core.migration import MigrationResult
from tierd.migration import NativeMover
from tierd.migration.fastpath_update import (
    Orders,
    OutcomeArray,
    PromoterSettings,
    PromoterStats,
    join,
)
from tierd.migration.promoter import Promoter
from tierd.migration.results import report_of
from tierd.sources.kmod.ring import Ring
from tierd.sources.kmod.uapi import Kind

log = logging.getLogger(__name__)


class FastPathRunner:
    """Runs the promoter. It records recent moves whether its thread runs or not."""

    def __init__(
        self,
        mover: NativeMover,
        settings: PromoterSettings,
        *,
        open_ring: Callable[[Path, Collection[Kind]], Ring] = Ring.open,
        root: Path = Path("/"),
    ) -> None:
        self._promoter = Promoter(mover, settings, root=root)
        self._open_ring = open_ring
        self._root = root
        self._ring: Ring | None = None
        self._held: AbstractContextManager[None] | None = None
        self._seen: list[OutcomeArray] = []
        self._before = self._promoter.stats().counters
        self._errors: dict[int, int] = {}
        self._before_ns = 0

    def tap(self) -> Promoter:
        """Record the inputs and choices of the promoter; call it first.

        Raises:
            MemoryError: no memory for it.
        """
        self._promoter.tap()
        return self._promoter

    @property
    def running(self) -> bool:
        """Whether its thread exists; it may be on hold."""
        return self._promoter.running

    def hold(self) -> None:
        """Move nothing until `run`, or `stop`."""
        if self._held is None:
            self._held = self._promoter.held()
            self._held.__enter__()

    def run(self, settings: PromoterSettings, orders: Orders) -> None:
        """Go on with these orders; starts the thread if there is none.

        Raises:
            ValueError: a setting is out of its range.
            MemoryError: no memory for the orders.
        """
        self.hold()
        self._promoter.set(settings)
        self._promoter.steer(orders)
        if not self._promoter.running:
            self._start(settings)
        self._release()

    def stop(self) -> bool:
        """End the thread; true if there was one."""
        ran = self._promoter.running
        if ran:
            self._promoter.stop()
            log.info("event=fast_path_stopped")
        self._close_ring()
        self._release()
        return ran

    def collect(self) -> OutcomeArray:
        """Results since the last call; `take` returns them too."""
        fresh = self._promoter.take()
        if len(fresh):
            self._seen.append(fresh)
        return fresh

    def silent(self, now_ns: int) -> bool:
        """Whether `take` would return nothing; then this call counts as one of `take`."""
        self.collect()
        if self._seen:
            return False
        self._before_ns = now_ns
        return True

    def take(self, now_ns: int) -> tuple[OutcomeArray, MigrationResult]:
        """Results since the last call, and the moves among them as a report."""
        self.collect()
        outcomes, stats = join(self._seen), self._promoter.stats().counters
        self._seen = []
        before, since = self._before, self._before_ns
        self._before, self._before_ns = stats, now_ns
        errors, known = self._promoter.errors() if len(outcomes) else self._errors, self._errors
        self._errors = errors
        report = report_of(
            outcomes,
            moved_bytes=stats["moved_bytes"] - before["moved_bytes"],
            duration_ns=now_ns - since if since else 0,
            cpu_ns=stats["cpu_ns"] - before["cpu_ns"],
            retries=stats["retries"] - before["retries"],
            errors={
                code: count - known.get(code, 0)
                for code, count in errors.items()
                if count > known.get(code, 0)
            },
        )
        return outcomes, report

    def quota_left(self) -> int:
        """Bytes that may be promoted now; it includes the moves given to `note`."""
        return self._promoter.quota_left()

    def note(self, report: MigrationResult, now_ns: int) -> None:
        """Take in the moves of a tick."""
        self._promoter.note(report, now_ns)

    def stats(self) -> PromoterStats:
        """The promoter's counters."""
        return self._promoter.stats()

    def close(self) -> None:
        """Stop, and release everything."""
        self.stop()
        self._promoter.close()

    def _start(self, settings: PromoterSettings) -> None:
        try:
            self._ring = self._open_ring(self._root, (Kind.HOT,))
            self._promoter.start(self._ring.memory)
        except UnavailableError as error:
            log.warning('event=no_fast_path reason="%s"', error)
            self._close_ring()
        else:
            log.info("event=fast_path_started interval_ns=%d", settings.interval_ns)

    def _close_ring(self) -> None:
        if self._ring is not None:
            self._ring.close()
            self._ring = None

    def _release(self) -> None:
        if self._held is not None:
            self._held.__exit__(None, None, None)
            self._held = None
