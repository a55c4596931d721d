# SPDX-License-Identifier: Apache-2.0
"""`Recorder`: takes ticks in the loop's thread, writes them in a thread of its own."""

from __future__ import annotations

import logging
import os
import platform
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

import numpy as np

from tierd import __version__
from tierd.config.model import Config
from tierd.config.whole import dumps
from tierd.core.logfmt import logfmt
from tierd.migration.promoter import Promoter
from tierd.observe.recording.records import (
    DECIDED,
    Call,
    HeatOp,
    Meta,
    RecordedCalls,
    RecordedTarget,
    RecordedTick,
)
from tierd.observe.recording.writer import RecordingWriter
from tierd.observe.tick_record import TickRecord

log = logging.getLogger(__name__)

MAX_PENDING_BYTES: Final = 64 << 20
"""Memory that ticks on their way to the file may hold."""
MAX_PENDING_TICKS: Final = 256
MAX_CALLS: Final = 50_000
"""Calls of deciding components that a tick may have."""
CALL_BYTES: Final = 400
"""Memory that one takes, about."""
TIME_IS_UP: Final = "the time was up"
_SHARED: Final = (
    {each.name for each in fields(RecordedTick)} & {each.name for each in fields(TickRecord)}
) - {"config"}
"""What a recording takes over of a tick as it is."""


@dataclass(frozen=True, slots=True)
class RecorderStats:
    """Counters of a recorder since it was made.

    Attributes:
        dropped_ticks: ticks not written, because the writer could not keep up, a tick
            was too large for a frame, or the recording had ended.
        dropped_calls: calls of deciding components, the fast path's among them, that found no
            room: from there on these decisions cannot be replayed.
        ended: why the recording takes in no more, "" while it does.
    """

    ticks: int
    bytes: int
    dropped_ticks: int
    ended: str
    dropped_calls: int = 0


@dataclass(frozen=True, slots=True)
class _Item:
    """A tick on its way to the file; its configuration becomes text in the writer's thread."""

    tick: RecordedTick
    config: Config
    targets: tuple[RecordedTarget, ...]
    gap: int
    size: int


class Recorder:
    """An observer of the loop, and the tap of its heat table.

    Args:
        path: a file that must not exist yet.
        limit_bytes: the file does not grow beyond this; recording ends there.
        duration_ns: the recording ends so long after its first tick.
        on_end: called once in the loop's thread when a recording ended by itself.
        dry_run: whether pages are moved, for whoever reads the file.

    Raises:
        UnavailableError: the file cannot be made.
    """

    def __init__(
        self,
        path: Path,
        limit_bytes: int,
        *,
        duration_ns: int | None = None,
        on_end: Callable[[], None] | None = None,
        dry_run: bool = False,
    ) -> None:
        self.path = path
        self.targets: Callable[[], Iterable[RecordedTarget]] = tuple
        """Who is watched; asked once a tick."""
        self.fast_path: Promoter | None = None
        """Gives what the fast path was given and chose; asked once a tick."""
        self._calls: list[Call] = []
        self._journals = False
        self._dropped_calls = self._dropped_steps = 0
        self._writer = RecordingWriter(path, limit_bytes, _meta(dry_run))
        self._queue: queue.Queue[_Item | None] = queue.Queue(MAX_PENDING_TICKS)
        self._lock = threading.Lock()
        self._pending_bytes = 0
        self._ops: list[HeatOp] = []
        self._ops_bytes = 0
        self._lossy = False
        self._decided: int | None = None
        self._gap = 0
        self._dropped = 0
        self._ended = ""
        self._duration_ns = duration_ns
        self._first_ns: int | None = None
        self._on_end = on_end
        self._thread = threading.Thread(target=self._write, name="tierd-recorder", daemon=True)
        self._thread.start()

    def take(self, op: HeatOp) -> None:
        """Heat was changed; in the loop's thread."""
        if self._ended or self._lossy:
            return
        self._ops_bytes += _op_bytes(op)
        self._ops.append(op)
        if self._ops_bytes > MAX_PENDING_BYTES:
            self._ops, self._lossy = [], True

    def decided(self) -> None:
        """A decision was made: heat's changes from now on come after it; in the loop's thread."""
        self._decided = len(self._ops)
        if self._journals:
            self.journal(DECIDED, (), ())

    def journal(self, kind: str, given: Sequence[object], decided: Sequence[object]) -> None:
        """A component was given something, and decided; in the loop's thread."""
        if self._ended:
            return
        self._journals = True
        if len(self._calls) < MAX_CALLS:
            self._calls.append(Call(kind, given, decided))
        else:
            self._dropped_calls += 1

    def on_tick(self, tick: TickRecord) -> None:
        """A tick ended; in the loop's thread."""
        ops, size, lossy = self._ops, self._ops_bytes, self._lossy
        self._ops, self._ops_bytes, self._lossy = [], 0, False
        calls, self._calls = RecordedCalls(tuple(self._calls), self._dropped_calls), []
        log = None if self.fast_path is None else self.fast_path.tapped()
        self._dropped_steps = self._dropped_steps if log is None else log.dropped
        if self._time_is_up(tick.time_ns):
            self._end(TIME_IS_UP)
        if self._ended:
            self._after_end()
            return
        before, late, moved = self._divided(ops, tick)
        recorded = RecordedTick(
            **{name: getattr(tick, name) for name in _SHARED},
            config="",
            ops=before,
            late=late,
            moved=moved,
            calls=calls,
            fast_path=log,
        )
        size += 32 * (len(tick.plan) + len(tick.plan.split)) + 4096
        size += CALL_BYTES * len(calls.calls) + (0 if log is None else log.nbytes)
        item = _Item(recorded, tick.config, tuple(self.targets()), self._gap, size)
        self._gap = 0 if not lossy and self._put(item) else self._gap + 1
        if self._gap:
            self._drop(1)

    def _time_is_up(self, now_ns: int) -> bool:
        if self._first_ns is None:
            self._first_ns = now_ns
        return self._duration_ns is not None and now_ns - self._first_ns >= self._duration_ns

    def _after_end(self) -> None:
        """A tick came that is not recorded any more."""
        self._drop(int(self._ended != TIME_IS_UP))
        if self.fast_path is not None:
            self.fast_path.untap()
            self.fast_path = None
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()

    def _divided(
        self, ops: list[HeatOp], tick: TickRecord
    ) -> tuple[tuple[HeatOp, ...], tuple[HeatOp, ...], bool]:
        """Changes of heat before the decision and while pages moved; whether they were its own.

        What heat was given after the decision's outcome comes before the next decision.
        """
        outcomes = (
            i
            for i, (method, given) in enumerate(ops)
            if method == "moved" and given[0] is tick.report
        )
        outcome = next(outcomes, None)
        decided, self._decided = self._decided, None
        if outcome is None:
            decided = len(ops) if decided is None else decided
            self._ops = ops[decided:]
            return tuple(ops[:decided]), (), False
        decided = outcome if decided is None else min(decided, outcome)
        self._ops = ops[outcome + 1 :]
        return tuple(ops[:decided]), tuple(ops[decided:outcome]), True

    def _put(self, item: _Item) -> bool:
        """Hand a tick to the writer; false where there is no room for it."""
        with self._lock:
            if self._ended or self._pending_bytes + item.size > MAX_PENDING_BYTES:
                return False
            try:
                self._queue.put_nowait(item)
            except queue.Full:
                return False
            self._pending_bytes += item.size
            return True

    def _drop(self, ticks: int) -> None:
        with self._lock:
            self._dropped += ticks

    def stats(self) -> RecorderStats:
        """Counters; from any thread."""
        writer = self._writer
        dropped = self._dropped + writer.too_large
        calls = self._all_dropped_calls
        return RecorderStats(writer.ticks, writer.bytes, dropped, self._ended, calls)

    @property
    def _all_dropped_calls(self) -> int:
        return self._dropped_calls + self._dropped_steps

    def close(self) -> RecorderStats:
        """Write what waits, end the file; the last counters."""
        self._end("closed")
        while self._thread.is_alive():
            try:
                self._queue.put(None, timeout=0.1)
                break
            except queue.Full:
                continue
        self._thread.join()
        return self.stats()

    def _end(self, reason: str) -> None:
        with self._lock:
            self._ended = self._ended or reason

    def _write(self) -> None:
        reason, config, text = "", None, ""
        while (item := self._queue.get()) is not None:
            try:
                if item.config is not config:
                    config, text = item.config, dumps(item.config)
                if item.gap:
                    self._writer.gap(item.gap)
                reason = self._writer.tick(replace(item.tick, config=text), item.targets)
            except Exception as error:  # a full disk, or a mistake of ours: the loop goes on
                reason = f"{type(error).__name__}: {error}"
                level = logging.WARNING if isinstance(error, OSError) else logging.ERROR
                log.log(level, logfmt(event="recording_failed", file=self.path, reason=reason))
            with self._lock:
                self._pending_bytes -= item.size
            if reason:
                self._drop(1)
                break
        self._end(reason or "closed")
        self._drop(self._discard())
        if reason:
            log.warning(logfmt(event="recording_ended", file=self.path, reason=reason))
        self._writer.close(self._ended, self._dropped, self._all_dropped_calls)

    def _discard(self) -> int:
        """Take what still waits out of the queue; the number of ticks."""
        left = 0
        while True:
            try:
                left += self._queue.get_nowait() is not None
            except queue.Empty:
                return left


def _op_bytes(op: HeatOp) -> int:
    match op:
        case HeatOp("ingest", (batch,)):
            return 13 * len(batch) + 200
        case HeatOp("place", (page, *_)):
            return 11 * len(page) + 200
        case HeatOp("keep_ranges", (_, ranges)):
            return 100 * len(ranges) + 200
        case HeatOp("moved", (report,)):
            return 32 * len(report.plan) + 200
    return 100


def _meta(dry_run: bool) -> Meta:
    return Meta(
        version=__version__,
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        clock_ns=time.monotonic_ns(),
        dry_run=dry_run,
        host={
            "machine": platform.machine(),
            "kernel": os.uname().release,
            "python": ".".join(map(str, sys.version_info[:3])),
            "numpy": np.__version__,
        },
    )
