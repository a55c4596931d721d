# SPDX-License-Identifier: Apache-2.0
"""Page migrations, whoever makes them: to see ping-pong and conflicts.

It is no `AccessSource`: it says what was moved, not what was touched. Counts by reason
come from the tracepoint migrate:mm_migrate_pages, which fires where the kernel counts
pgmigrate_success and pgmigrate_fail, so that both must agree; what the program did not
see is the difference, and is told.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from tierd.core.access import Availability, WatchedTarget
from tierd.core.errors import UnavailableError
from tierd.core.pagekey import U64Array
from tierd.sources.ebpf import host, loader, syscalls
from tierd.sources.ebpf.perf import EventAttr, Sample, Type
from tierd.sources.ebpf.sampler import Sampler
from tierd.sources.ebpf.table import SamplerSettings, Watched, map_array
from tierd.topology.node_meminfo import read_vmstat

log = logging.getLogger(__name__)


class Layout:
    """Numbers of `ebpf/migrations.bpf.c`."""

    REASONS: Final = 16
    NODES: Final = 64
    NO_TARGET: Final = 0xFFFF
    """The target of pages whose process is not known."""


_MOVED: Final = np.dtype([("calls", "u8"), ("succeeded", "u8"), ("failed", "u8"), ("own", "u8")])
_NODE: Final = np.dtype([("demoted", "u8"), ("spare", "u8")])
DEMOTION: Final = "demotion"
BALANCING: Final = "numa_misplaced"
"""Reasons by the names that the tracepoint's format gives them (trace/events/migrate.h)."""
MIGRATE: Final = "migrate:mm_migrate_pages"
PAGE_MOVED: Final = "migrate:remove_migration_pte"
SHRINK: Final = "vmscan:mm_vmscan_lru_shrink_inactive"
MOVE_NUMA: Final = "sched:sched_move_numa"
_FUNCTIONS: Final = {
    MIGRATE: "on_migrate",
    PAGE_MOVED: "on_page_moved",
    SHRINK: "on_shrink",
    MOVE_NUMA: "on_move_numa",
}
_OFFSETS: Final = (
    (MIGRATE, "succeeded"),
    (MIGRATE, "failed"),
    (MIGRATE, "reason"),
    (PAGE_MOVED, "addr"),
    (PAGE_MOVED, "order"),
    (SHRINK, "nid"),
)
"""Tracepoint fields in the order of ebpf/migrations.bpf.c's `config.offset`."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Pages of one reason: moved, failed, and, of the moved, by this process."""

    succeeded: int = 0
    failed: int = 0
    own: int = 0


@dataclass(frozen=True, slots=True)
class Migrations:
    """What was migrated since the last poll.

    Attributes:
        by_reason: pages by the kernel's name of the reason ("demotion", "numa_misplaced", ...).
        demoted_from: pages that reclaim demoted, by the node that it ran for.
        page: uint64[n] keys of pages that moved: of the owner when the kernel moved them
            on its behalf (NUMA balancing), else of `Layout.NO_TARGET`, with the virtual page.
        moves: uint32[n], how often each moved (failed moves of mapped pages included).
        tasks_moved: tasks that the scheduler moved to another node.
        lost: moves whose page is not among `page`.
        unseen: pages that /proc/vmstat has and the tracepoint did not tell of.
    """

    by_reason: Mapping[str, Moved]
    demoted_from: Mapping[int, int]
    page: U64Array
    moves: npt.NDArray[np.uint32]
    tasks_moved: int
    lost: int
    unseen: int

    @property
    def by_kernel(self) -> int:
        """Pages that the kernel moved by itself, to balance or to demote."""
        return sum(
            self.by_reason[reason].succeeded
            for reason in (DEMOTION, BALANCING)
            if reason in self.by_reason
        )


@dataclass(slots=True)
class _Mark:
    moved: npt.NDArray[np.void] = field(default_factory=lambda: np.zeros(Layout.REASONS, _MOVED))
    demoted: npt.NDArray[np.uint64] = field(
        default_factory=lambda: np.zeros(Layout.NODES, np.uint64)
    )
    tasks: int = 0
    vmstat: int = 0


class MigrationWatch:
    """Watches migrations from `start` to `close`."""

    name = "migrations"

    def __init__(self, settings: SamplerSettings | None = None) -> None:
        self._settings = settings or SamplerSettings(table_bytes=1 << 20)
        self._sampler: Sampler | None = None
        self._points: dict[str, host.Tracepoint] = {}
        self._fds: list[int] = []
        self._moved: npt.NDArray[np.void] | None = None
        self._nodes: npt.NDArray[np.void] | None = None
        self._watched = Watched(())
        self._reasons: dict[int, str] = {}
        self._mark = _Mark()
        self.missing: dict[str, str] = {}
        """Tracepoints that this kernel does not have or refused, with the reason."""

    def available(self) -> Availability:
        """Whether migrations can be watched here."""
        works = host.bpf_works()
        if not works.ok:
            return works
        try:
            host.find_tracepoint(MIGRATE)
        except UnavailableError as error:
            return Availability(False, error.message, error.hint)
        usable, reasons = loader.ways("migrations", self._settings.ways)
        if not usable:
            told = "; ".join(f"{way}: {reason}" for way, reason in reasons.items())
            return Availability(False, f"the program migrations cannot be loaded: {told}")
        return Availability(True, f"{MIGRATE} by {usable[0]}")

    def start(self) -> None:
        """Begin to load; `ready` says when it is done.

        Raises:
            UnavailableError: it cannot be watched here.
        """
        self._points, self.missing = {}, {}
        for name in _FUNCTIONS:
            try:
                self._points[name] = host.find_tracepoint(name)
            except UnavailableError as error:
                if name == MIGRATE:
                    raise
                self.missing[name] = error.message
        functions = [(_FUNCTIONS[name], "tracepoint") for name in self._points]
        self._sampler = Sampler(
            "migrations",
            (),
            self._settings,
            functions=functions,
            maps={"reasons": Layout.REASONS, "nodes": Layout.NODES},
        )
        self._sampler.start()

    def ready(self, *, wait: bool = False) -> bool:
        """Whether migrations are counted; attaches when loading has just finished.

        Raises:
            UnavailableError: loading or attaching failed.
        """
        sampler = self._sampler
        if sampler is None:
            return False
        try:
            if not sampler.ready(wait=wait):
                return False
            if not self._fds:
                self._attach(sampler)
        except (OSError, UnavailableError) as error:
            self.close()
            if isinstance(error, UnavailableError):
                raise
            raise UnavailableError(
                f"the kernel refused the tracepoint {MIGRATE}: {error.strerror}",
                hint="tierd needs CAP_PERFMON and CAP_BPF",
            ) from error
        return True

    def _attach(self, sampler: Sampler) -> None:
        assert sampler.loaded is not None and sampler.table is not None
        migrate = self._points[MIGRATE]
        self._reasons = migrate.symbols("reason")
        numbers = {text: number for number, text in self._reasons.items()}
        offsets = []
        for name, fieldname in _OFFSETS:
            point = self._points.get(name)
            offsets.append(point.fields[fieldname][0] if point else 0)
        sampler.table.configure(own=os.getpid(), demotion=numbers.get(DEMOTION, Layout.REASONS))
        sampler.table.set_offsets(offsets)
        size = sampler.size.cpus
        self._moved = map_array(sampler.loaded.maps["reasons"], size * Layout.REASONS, _MOVED)
        self._nodes = map_array(sampler.loaded.maps["nodes"], size * Layout.NODES, _NODE)
        sampler.set_targets(self._watched.targets)
        for name, point in self._points.items():
            event = EventAttr(Type.TRACEPOINT, point.id, 1, Sample(0))
            try:
                # A program on a tracepoint runs on every CPU, whichever the event is of.
                fd = syscalls.perf_event_open(event.encode(), -1, 0)
                self._fds.append(fd)
                syscalls.event_attach(fd, sampler.loaded.programs[_FUNCTIONS[name]])
            except OSError as error:
                if name == MIGRATE:
                    raise
                self.missing[name] = f"the kernel refused it: {error.strerror}"
        self._mark = self._read()

    def watch(self, targets: Sequence[WatchedTarget]) -> None:
        """Tell whose pages are whose; all migrations are counted in any case."""
        self._watched = Watched(targets)
        if self._sampler is not None and self._sampler.table is not None:
            self._sampler.set_targets(self._watched.targets)

    def _read(self) -> _Mark:
        assert self._moved is not None and self._nodes is not None and self._sampler is not None
        table = self._sampler.table
        assert table is not None
        # vmstat first: a migration in between is then seen, and not taken for unseen.
        stat = read_vmstat()
        moved = np.zeros(Layout.REASONS, _MOVED)
        shaped = self._moved.reshape(-1, Layout.REASONS)
        for name in ("calls", "succeeded", "failed", "own"):
            moved[name] = shaped[name].sum(axis=0)
        demoted = self._nodes["demoted"].reshape(-1, Layout.NODES).sum(axis=0)
        tasks = table.stat("passed")
        return _Mark(moved, demoted, tasks, stat.get("pgmigrate_success", 0))

    def poll(self) -> Migrations | None:
        """What was migrated since the last call; None while the program is loading.

        Raises:
            UnavailableError: loading or attaching failed.
        """
        if not self.ready():
            return None
        assert self._sampler is not None and self._sampler.table is not None
        counts = self._sampler.table.drain()
        before, now = self._mark, self._read()
        self._mark = now
        by_reason = {}
        succeeded = 0
        for number in range(Layout.REASONS):
            new, old = now.moved[number], before.moved[number]
            if new["calls"] != old["calls"]:
                name = self._reasons.get(number, f"reason_{number}")
                by_reason[name] = Moved(
                    int(new["succeeded"] - old["succeeded"]),
                    int(new["failed"] - old["failed"]),
                    int(new["own"] - old["own"]),
                )
                succeeded += by_reason[name].succeeded
        demoted = now.demoted - before.demoted
        page, moves = _merge(counts.key, counts.count)
        return Migrations(
            by_reason=by_reason,
            demoted_from={int(n): int(demoted[n]) for n in np.flatnonzero(demoted)},
            page=page,
            moves=moves,
            tasks_moved=now.tasks - before.tasks,
            lost=counts.lost,
            unseen=max(0, now.vmstat - before.vmstat - succeeded),
        )

    def close(self) -> None:
        """Detach and release everything."""
        for fd in self._fds:
            with contextlib.suppress(OSError):
                os.close(fd)
        self._fds = []
        self._moved = self._nodes = None
        if self._sampler is not None:
            self._sampler.close()
            self._sampler = None


def _merge(key: U64Array, count: npt.NDArray[np.uint32]) -> tuple[U64Array, npt.NDArray[np.uint32]]:
    """Pages once each, with the counts of all CPUs."""
    page, at = np.unique(key, return_inverse=True)
    moves = np.zeros(len(page), np.uint32)
    np.add.at(moves, at, count)
    return page, moves
