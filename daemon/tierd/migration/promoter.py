# SPDX-License-Identifier: Apache-2.0
"""`Promoter`: promotes the hot pages that cards report, every few milliseconds, through C.

The C thread reads hot records from the kernel module's ring, compares each page with the coldest
demotion candidate, and moves pages with the `NativeMover` of the control loop, within the same
budget. Whoever executes a plan holds the promoter meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tierd._native import ffi, lib
from tierd.core import bounds
from tierd.core.errors import UnavailableError
from tierd.core.migration import MigrationResult
from tierd.core.pagekey import PAGE_SIZE
from tierd.core.tuning import FAST_PATH, HMU, MIGRATION
from tierd.migration.executor import NativeMover
from tierd.migration.fastpath_update import (
    OUTCOME,
    SPAN,
    VICTIM,
    Orders,
    OutcomeArray,
    PromoterSettings,
    PromoterStats,
    Way,
    join,
)
from tierd.migration.tap import COLUMNS, FastPathLog, Noted, SplitRecord, Steered, copied

NODES: Final = int(lib.TIERD_NODES)
WAYS: Final = int(lib.TIERD_WAYS)
_COUNTERS: Final = tuple(
    name
    for name, _ in ffi.typeof("struct tierd_promoter_stats").fields
    if name not in ("held", "errors")
)
_REASONS: Final = int(lib.TIERD_REASONS)


class _Counters(Mapping[str, int]):
    """A struct tierd_promoter_stats whose fields are converted on access.

    Statistics are read many times a second, mostly for one or two fields.
    """

    __slots__ = ("_stats",)

    def __init__(self, stats: Any) -> None:
        self._stats = stats

    def __getitem__(self, name: str) -> int:
        try:
            return int(getattr(self._stats, name))
        except (AttributeError, TypeError):
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(_COUNTERS)

    def __len__(self) -> int:
        return len(_COUNTERS)


class Promoter:
    """The promoter of the fast path. Methods are for the control loop's thread only.

    Args:
        mover: moves the pages; other users must be inside `held`.

    Raises:
        ValueError: a setting is out of its range.
        MemoryError: no memory for it.
    """

    def __init__(
        self, mover: NativeMover, settings: PromoterSettings, *, root: Path = Path("/")
    ) -> None:
        made = ffi.new("struct tierd_promoter **")
        result = lib.tierd_promoter_new(mover.handle, _settings(settings), made)
        _check(result, settings)
        self._promoter = ffi.gc(made[0], lib.tierd_promoter_free)
        self._mover = mover
        self._root = root
        self._settings = settings
        self._meminfo: dict[int, int] = {}
        self._ring: Any = None
        self._paths: Any = None
        self._reported: list[SplitRecord] | None = None
        self._given: list[Any] = []
        self._space = np.empty(bounds.OUTCOMES_AT_ONCE, OUTCOME)
        self._outcomes = ffi.from_buffer("struct tierd_outcome[]", self._space)
        self.running = False

    def tap(self) -> None:
        """Record its inputs and choices from now on, for `tapped`; before all other calls.

        Raises:
            MemoryError: no memory for it.
        """
        _check(lib.tierd_promoter_tap(self._promoter, True), "tap")
        self._reported = [self._settings]

    def tapped(self) -> FastPathLog | None:
        """The log since the last call; None where nothing is recorded."""
        if self._reported is None:
            return None
        given = ffi.new("struct tierd_tap_column[]", len(COLUMNS))
        dropped = int(lib.tierd_promoter_tapped(self._promoter, given))
        told, self._reported = tuple(self._reported), []
        return FastPathLog(copied(given, ffi), told, dropped)

    def untap(self) -> None:
        """Stop recording."""
        lib.tierd_promoter_tap(self._promoter, False)
        self._reported = None

    def replay(self, given: FastPathLog) -> None:
        """Give the calls until the next `tapped` recorded inputs, and move nothing.

        Make the calls in the recorded order; `tapped` returns what they choose now.

        Raises:
            MemoryError: no memory for it.
        """
        columns = ffi.new("struct tierd_tap_column[]", len(COLUMNS))
        self._given = [columns]
        for column, name in zip(columns, COLUMNS, strict=True):
            column.n = len(given.columns[name])
            data = bytearray(given.columns[name].tobytes() or bytes(COLUMNS[name].itemsize))
            self._given.append(ffi.from_buffer("char[]", data))
            column.item = self._given[-1]
        self._reported = []
        _check(lib.tierd_promoter_replay(self._promoter, columns), "replay")

    def set(self, settings: PromoterSettings, *, always: bool = False) -> None:
        """Change the settings from the next interval on; `always`: even if they are equal.

        Raises:
            ValueError: a setting is out of its range; nothing has changed.
        """
        if always or (settings is not self._settings and settings != self._settings):
            _check(lib.tierd_promoter_set(self._promoter, _settings(settings)), settings)
            self._settings = settings
            if self._reported is not None:
                self._reported.append(settings)

    def start(self, ring: Any) -> None:
        """Start the thread on a mapping of /dev/tierd; nothing else may read that ring.

        Args:
            ring: the whole mapping, a buffer; it is held until `stop`.

        Raises:
            UnavailableError: the mapping is no such ring, or the thread cannot be started.
        """
        self.attach(ring)
        result = lib.tierd_promoter_start(self._promoter)
        if result != 0:
            raise UnavailableError(f"the promoter's thread: {os.strerror(-result)}")
        self.running = True

    def stop(self) -> None:
        """End the thread and release the ring; returns within 100 ms."""
        lib.tierd_promoter_stop(self._promoter)
        lib.tierd_promoter_set_ring(self._promoter, ffi.NULL, 0)
        if self._ring is not None:
            ffi.release(self._ring)
            self._ring = None
        self.running = False

    def step(self) -> int:
        """One interval's work now, without the thread; pages moved (for tests)."""
        return int(lib.tierd_promoter_step(self._promoter))

    def attach(self, ring: Any) -> None:
        """Read from this mapping, without a thread.

        Raises:
            UnavailableError: it is no such ring.
        """
        buffer = ffi.from_buffer("unsigned char[]", ring, require_writable=True)
        if lib.tierd_promoter_set_ring(self._promoter, buffer, len(buffer)) != 0:
            raise UnavailableError("the module's ring is not of this version")
        self._ring = buffer

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """A context in which the promoter moves nothing."""
        lib.tierd_promoter_hold(self._promoter)
        try:
            yield
        finally:
            lib.tierd_promoter_release(self._promoter)

    def steer(self, orders: Orders) -> None:
        """Replace the orders. Raises MemoryError: no memory for them; the old ones stay."""
        given = ffi.new("struct tierd_orders *")
        held = self._mover.processes(orders.pids)
        processes = ffi.new("struct tierd_process[]", held or 1)
        spans = np.ascontiguousarray(orders.spans, SPAN)
        victims = np.ascontiguousarray(orders.victims, VICTIM)
        given.process, given.processes = processes, len(held)
        kept = [
            ffi.from_buffer("struct tierd_span[]", spans) if len(spans) else ffi.NULL,
            ffi.from_buffer("struct tierd_victim[]", victims) if len(victims) else ffi.NULL,
        ]
        given.span, given.spans = kept[0], len(spans)
        given.victim, given.victims = kept[1], len(victims)
        for card, (start, before, scale) in orders.epochs.items():
            given.epoch_ns[card], given.epoch_before_ns[card] = start, before
            given.scale[card] = scale
        self._ways(given, orders.ways)
        _check(lib.tierd_promoter_steer(self._promoter, given), "orders")
        if self._reported is not None:
            readable = frozenset(node for node in orders.ways if given.free_fd[node] >= 0)
            self._reported.append(Steered(orders, readable))
        for node in self._meminfo.keys() - orders.ways.keys():
            # A node that went offline and returns has another file.
            os.close(self._meminfo.pop(node))

    def _ways(self, given: Any, ways: Mapping[int, Way]) -> None:
        paths = [(node, way.up, way.down, self._descriptor(node)) for node, way in ways.items()]
        if self._paths is None or paths != self._paths[0]:
            self._paths = paths, _tables(paths)
        for name, table in self._paths[1].items():
            ffi.memmove(getattr(given, name), table, table.nbytes)
        for node, way in ways.items():
            given.low[node] = max(0, way.low_bytes)
            given.held[node] = max(0, way.held_bytes)

    def _descriptor(self, node: int) -> int:
        """A node's meminfo, open; -1 if it cannot be opened, and then nothing is moved there."""
        if node not in self._meminfo:
            path = self._root / f"sys/devices/system/node/node{node}/meminfo"
            try:
                self._meminfo[node] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return -1
        return self._meminfo[node]

    def take(self) -> OutcomeArray:
        """Results since the last call, `OUTCOME`[n], oldest first."""
        found = []
        while count := lib.tierd_promoter_take(self._promoter, self._outcomes, len(self._space)):
            # As words: NumPy copies records with padding field by field, eight times as slowly.
            found.append(self._space[:count].view(np.uint64).copy().view(OUTCOME))
        return join(found)

    def quota_left(self) -> int:
        """Bytes that may be promoted now within the rate limit of any second."""
        return int(lib.tierd_promoter_quota_left(self._promoter))

    def note(self, report: MigrationResult, time_ns: int) -> None:
        """Take in moves of the control loop, for rate limit, cooldown and ping-pong."""
        if not len(report.plan):
            return
        moves = report.plan.page, report.plan.order, report.fate, report.plan.direction
        columns = [
            ffi.from_buffer(f"{kind}[]", np.ascontiguousarray(column))
            for kind, column in zip(("uint64_t", *3 * ("uint8_t",)), moves, strict=True)
        ]
        lib.tierd_promoter_note(self._promoter, *columns, len(report.plan), time_ns)
        if self._reported is not None:
            self._reported.append(Noted(report, time_ns))

    def stats(self) -> PromoterStats:
        """Counters."""
        stats = ffi.new("struct tierd_promoter_stats *")
        lib.tierd_promoter_get_stats(self._promoter, stats)
        return PromoterStats(_Counters(stats), ffi.unpack(stats.held, _REASONS))

    def errors(self) -> dict[int, int]:
        """4 KiB pages that failed since the promoter was made, by errno."""
        stats = ffi.new("struct tierd_promoter_stats *")
        lib.tierd_promoter_get_stats(self._promoter, stats)
        errors = np.frombuffer(ffi.buffer(stats.errors), np.uint64)
        return {int(code): int(errors[code]) for code in np.flatnonzero(errors)}

    def close(self) -> None:
        """Stop, and close what was opened."""
        self.stop()
        for fd in self._meminfo.values():
            os.close(fd)
        self._meminfo = {}


def _tables(
    paths: Sequence[tuple[int, tuple[int, ...], tuple[int, ...], int]],
) -> dict[str, npt.NDArray[Any]]:
    """The arrays of targets in struct tierd_orders, by name."""
    up, down = np.full((2, NODES, WAYS), -1, np.int16)
    descriptors = np.full(NODES, -1, np.int32)
    for node, above, below, descriptor in paths:
        for table, nodes in ((up, above[:WAYS]), (down, below[:WAYS])):
            table[node, : len(nodes)] = nodes
        descriptors[node] = descriptor
    return {"up": up, "down": down, "free_fd": descriptors}


def _settings(settings: PromoterSettings) -> Any:
    given = ffi.new("struct tierd_promoter_settings *")
    given.interval_ns = settings.interval_ns
    given.quota_bytes_per_s = settings.quota_bytes_per_s
    given.residency_ns = int(settings.residency_s * 1e9)
    given.bounce_ns = int(settings.bounce_s * 1e9)
    given.patience_ns = int(settings.patience_s * 1e9)
    names = ("margin", "confidence", "heat_s", "rate_cap", "visits", "copy_requests")
    for name in (*names, "least_rate", "return_rate", "expected"):
        setattr(given, name, getattr(settings, name))
    given.work_limit_ns = bounds.NATIVE_CALL_NS
    given.slice_ns = bounds.MOVER_SLICE_NS
    given.rest_ns = FAST_PATH.retry_ns
    given.free_read_ns = FAST_PATH.retry_ns
    given.burst_fraction = MIGRATION.burst_s
    given.min_burst_bytes = FAST_PATH.min_batch_pages * PAGE_SIZE
    given.demand_weight = FAST_PATH.demand_weight
    given.min_epoch_age_ns = round(bounds.LEAST_AGE_S * 1e9)
    given.copy_settles_ns = HMU.copy_settles_ns
    return given


def _check(result: int, what: object) -> None:
    if result == -errno.ENOMEM:
        raise MemoryError(f"promoter: {what}")
    if result != 0:
        raise ValueError(f"promoter: {what}: {os.strerror(-result)}")
