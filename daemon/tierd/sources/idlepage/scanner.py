# SPDX-License-Identifier: Apache-2.0
"""`IdleScanner`: a thread that scans targets by idle page tracking, within a CPU budget.

It takes the place of the kernel module's scanner: its methods are those of
`tierd.sources.kmod.netlink.Control`, and its records go into a ring laid out as the module's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tierd.core import bounds
from tierd.core.cpu_budget import CpuBudget
from tierd.core.errors import NotAnsweringError, TargetGoneError, UnavailableError
from tierd.core.logfmt import logfmt
from tierd.sources.idlepage import host
from tierd.sources.idlepage.host import PagemapReads, open_bounded
from tierd.sources.idlepage.native import IdlePages
from tierd.sources.idlepage.ring import RingWriter
from tierd.sources.idlepage.rounds import Settings, Speed, TargetScan
from tierd.sources.kmod.netlink import ScanState, TargetState
from tierd.sources.kmod.ring import RecordArray
from tierd.sources.kmod.uapi import MAX_NODES, ScanFlags
from tierd.topology.node_meminfo import node_frames
from tierd.workloads.bounded_reads import BoundedReads

log = logging.getLogger(__name__)


class IdleScanner:
    """Scans targets; all but `advance` and `run` may be called from another thread.

    No call waits for a step: the scanner's thread alone uses histories and the kernel's flags, and
    what others ask for it finds before its next step.

    Args:
        clock, cpu: CLOCK_MONOTONIC, and the calling thread's CPU time, in ns.
        bounded: makes what opens or reads pagemaps, for one thread.

    Attributes:
        failure: why scanning has ended; None: it has not.
    """

    def __init__(
        self,
        pages: IdlePages,
        writer: RingWriter,
        *,
        root: Path = Path("/"),
        open_pagemap: Callable[[int], int] = host.open_pagemap,
        clock: Callable[[], int] = time.monotonic_ns,
        cpu: Callable[[], int] = time.thread_time_ns,
        bounded: Callable[[], BoundedReads] = BoundedReads,
    ) -> None:
        self._pages, self._writer, self._root = pages, writer, root
        self._open, self._clock, self._cpu = open_pagemap, clock, cpu
        self._opens, self._reads = bounded(), PagemapReads(pages, cpu, bounded())
        self._speed = Speed()
        self._budget: CpuBudget | None = None
        self._nodes_ns = 0
        counters = "cpu_ns", "rounds", "slices", "targets_gone", "passed_over"
        self._stats = dict.fromkeys(counters, 0)
        # These are shared between the threads.
        self._lock, self._asked = threading.Lock(), threading.Event()
        self._targets: dict[int, TargetScan] = {}
        self._deleted: list[TargetScan] = []
        self._settings = Settings(500_000, 50_000, 2, 1, 1, 0)
        self._ends = False
        self.failure: UnavailableError | None = None

    # What Control does.
    def target_add(self, target: int, pid: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Scan process `pid` as `target`, in `ranges` of page numbers.

        Raises:
            TargetGoneError: there is no such process, or its pagemap cannot be opened for now.
            FileExistsError: the number is taken.
            SecondMmuError: it may not be looked at, so that its accesses cannot be seen.
        """
        if target in self._targets:  # Nobody else adds any.
            raise FileExistsError(target)
        pagemap = open_bounded(self._opens, pid, self._open)
        given = self._pages, target, pagemap, ranges
        made = TargetScan(*given, clock=self._clock, cpu=self._spent_ns)
        with self._lock:
            self._targets[target] = made
        self._asked.set()

    def target_set(self, target: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Replace the ranges of a target. Raises TargetGoneError: it has been dropped."""
        with self._lock:
            if target not in self._targets:
                raise TargetGoneError(f"target {target} is not scanned")
            self._targets[target].set_ranges(ranges)

    def target_del(self, target: int) -> None:
        """Stop scanning a target."""
        with self._lock:
            if target in self._targets:
                self._deleted.append(self._targets.pop(target))
        self._asked.set()

    def targets(self) -> list[TargetState]:
        """All targets that are scanned, and those that are passed over for now."""
        with self._lock:
            targets = list(self._targets.values())
        return [TargetState(each.number, each.pid, each.stats) for each in targets]

    def scan_set(self, *args: Any, **given: Any) -> None:
        """Change what is given: fields of `Settings`; others are the module's alone.

        Raises:
            UnavailableError: scanning has ended.
        """
        known = {name: given[name] for name in given if name in Settings.__slots__}
        if self.failure is not None:
            raise self.failure
        self._settings = replace(self._settings, **known)
        self._asked.set()

    def scan_get(self) -> ScanState:
        """The settings in force, and counters."""
        settings = {name: getattr(self._settings, name) for name in Settings.__slots__}
        stats = self._stats | self._pages.stats
        stats |= {"targets": len(self._targets), "dropped": self._writer.dropped}
        nodes = frozenset(range(MAX_NODES))
        return ScanState(**settings, flags=ScanFlags.BRIEF, hot_nodes=nodes, stats=stats)

    def close(self) -> None:
        """Have the thread end after its step, and let go of all targets."""
        self._ends = True
        self._asked.set()
        self._opens.close()

    # The thread.
    def run(self) -> None:
        """Scan until `close`; whatever else ends it, the reader of the ring is told."""
        try:
            while not self._ends:
                self._asked.wait(self.advance() / 1e9)
                self._asked.clear()
        finally:
            if not self._ends:
                self._fail(UnavailableError("the scanner's thread has ended"))
            self._reads.close()
            with self._lock:
                self._deleted += self._targets.values()
                self._targets.clear()
            self._free_deleted()

    def _free_deleted(self) -> None:
        with self._lock:
            deleted, self._deleted = self._deleted, []
        for each in deleted:
            each.close()

    def _spent_ns(self) -> int:
        return self._cpu() + self._reads.cpu_ns

    def advance(self) -> int:
        """Make a step if one is due; the time until the next one in ns, 0: now."""
        self._free_deleted()
        now, used, settings = self._clock(), self._spent_ns(), self._settings
        if self._budget is None:
            self._budget = CpuBudget(now, used, bounds.IDLE_CREDIT_NS)
        self._stats["cpu_ns"] = used
        wait_ns = self._budget.wait_ns(now, used, settings.budget_ppm / 1e6)
        with self._lock:
            targets = list(self._targets.values())
        due = [(each.due_ns(settings), each) for each in targets]
        # What is marked is checked in time, and paid for later: it would be sampled for longer.
        if wait_ns:
            due = [(at, each) for at, each in due if each.part is not None]
        if self.failure is not None or not due:
            return min(wait_ns or bounds.IDLE_WAIT_NS, bounds.IDLE_WAIT_NS)
        at, chosen = min(due, key=lambda each: each[0])
        if at > now:
            rest = min(wait_ns, at - now) if wait_ns else at - now
            return min(rest, bounds.IDLE_WAIT_NS)
        self._step(chosen, settings, now)
        return 0

    def _step(self, target: TargetScan, settings: Settings, now: int) -> None:
        if now >= self._nodes_ns:
            self._pages.place(node_frames(self._root))
            self._nodes_ns = now + bounds.IDLE_NODES_NS
        before = target.stats
        self._stats["slices"] += 1
        try:
            records = target.step(settings, self._speed, self._reads)
        except NotAnsweringError as error:
            self._pass_over(target, error)
        except TargetGoneError:
            self._drop(target)
        except UnavailableError as error:
            self._fail(error)
        else:
            if before["passed_over"]:
                log.info(logfmt(event="scanned_again", source="idlepage", pid=target.pid))
            self._put(target, records, ended=target.stats["rounds"] != before["rounds"])

    def _put(self, target: TargetScan, records: Sequence[RecordArray], *, ended: bool) -> None:
        """Records of a target that was deleted meanwhile would count for the next of its number."""
        with self._lock:
            if self._targets.get(target.number) is not target:
                return
            for each in records:
                self._writer.put(each)
        if ended:
            self._stats["rounds"] += 1
            self._writer.wake()

    def _pass_over(self, target: TargetScan, error: NotAnsweringError) -> None:
        """Its pages cannot be read for now; others' can."""
        if not target.stats["passed_over"]:
            self._stats["passed_over"] += 1
            given = {"event": "not_scanned", "source": "idlepage", "pid": target.pid}
            log.warning(logfmt(**given, reason=error.message))
        target.pass_over(self._clock() + bounds.IDLE_RETRY_NS)

    def _fail(self, error: UnavailableError) -> None:
        log.warning(logfmt(event="scanner_failed", source="idlepage", reason=error.message))
        self.failure = error
        self._writer.shut()

    def _drop(self, target: TargetScan) -> None:
        """Its process has ended."""
        self._stats["targets_gone"] += 1
        with self._lock:
            if self._targets.get(target.number) is target:
                self._deleted.append(self._targets.pop(target.number))
