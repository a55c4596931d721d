# SPDX-License-Identifier: Apache-2.0
"""`IdleScanner`: a thread that scans targets by idle page tracking, within a CPU budget.

It takes the place of the kernel module's scanner: its methods are those of
`tierd.sources.kmod.netlink.Control`, and its records go into a ring laid out as the module's.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tierd.core import bounds
from tierd.core.errors import SecondMmuError, TargetGoneError, UnavailableError
from tierd.core.logfmt import logfmt
from tierd.sources.idlepage import host
from tierd.sources.idlepage.native import IdlePages
from tierd.sources.idlepage.ring import RingWriter
from tierd.sources.idlepage.rounds import Settings, Speed, TargetScan
from tierd.sources.kmod.netlink import ScanState, TargetState
from tierd.sources.kmod.uapi import MAX_NODES, ScanFlags
from tierd.sources.memory_blocks import node_frames

log = logging.getLogger(__name__)


class CpuBudget:
    """CPU time as a token bucket: it comes in at a rate, and is taken for what a thread used."""

    def __init__(self, now_ns: int, cpu_ns: int) -> None:
        self._seen_ns, self._cpu_ns, self._tokens_ns = now_ns, cpu_ns, 0.0

    def wait_ns(self, now_ns: int, cpu_ns: int, ppm: int) -> int:
        """How long to sleep until what was used is paid for; 0 if it is."""
        share = ppm / 1e6
        self._tokens_ns += (now_ns - self._seen_ns) * share
        self._tokens_ns = min(self._tokens_ns, bounds.IDLE_CREDIT_NS * share)
        self._tokens_ns -= cpu_ns - self._cpu_ns
        self._seen_ns, self._cpu_ns = now_ns, cpu_ns
        return 0 if self._tokens_ns >= 0 else int(-self._tokens_ns / share)


class IdleScanner:
    """Scans targets; all but `advance` may be called from another thread than the scanner's.

    Args:
        pages: the kernel's flags.
        writer: where records go.
        root: where the host's files are.
        open_pagemap: opens a process's pagemap.
        clock, cpu: CLOCK_MONOTONIC, and the thread's CPU time, in ns.

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
    ) -> None:
        self._pages, self._writer, self._root = pages, writer, root
        self._open, self._clock, self._cpu = open_pagemap, clock, cpu
        self._targets: dict[int, TargetScan] = {}
        self._settings = Settings(500_000, 50_000, 2, 1, 1, 0)
        self._speed = Speed()
        self._budget: CpuBudget | None = None
        self._nodes_ns = 0
        self._stats = dict.fromkeys(("cpu_ns", "rounds", "slices", "targets_gone"), 0)
        self._changed = threading.Condition()
        self._ends = False
        self.failure: UnavailableError | None = None

    # What Control does.
    def target_add(self, target: int, pid: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Scan process `pid` as `target`, in `ranges` of page numbers.

        Raises:
            TargetGoneError: there is no such process.
            FileExistsError: the number is taken.
            SecondMmuError: it may not be looked at, so that its accesses cannot be seen.
        """
        with self._changed:
            if target in self._targets:
                raise FileExistsError(target)
            try:
                made = TargetScan(
                    self._pages,
                    target,
                    pid,
                    ranges,
                    open_pagemap=self._open,
                    clock=self._clock,
                    cpu=self._cpu,
                )
            except UnavailableError as error:
                raise SecondMmuError(error.message) from error
            self._targets[target] = made
            self._changed.notify()

    def target_set(self, target: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Replace the ranges of a target.

        Raises:
            TargetGoneError: it has been dropped.
        """
        with self._changed:
            if target not in self._targets:
                raise TargetGoneError(f"target {target} is not scanned")
            self._targets[target].set_ranges(ranges)

    def target_del(self, target: int) -> None:
        """Stop scanning a target."""
        with self._changed:
            if target in self._targets:
                self._targets.pop(target).close()

    def targets(self) -> list[TargetState]:
        """All targets that are scanned."""
        with self._changed:
            return [
                TargetState(number, each.pid, dict(each.stats))
                for number, each in self._targets.items()
            ]

    def scan_set(self, *args: Any, **given: Any) -> None:
        """Change what is given: fields of `Settings`; others are the module's alone.

        Raises:
            UnavailableError: scanning has ended.
        """
        known = {name: given[name] for name in given if name in Settings.__slots__}
        with self._changed:
            if self.failure is not None:
                raise self.failure
            self._settings = replace(self._settings, **known)
            self._changed.notify()

    def scan_get(self) -> ScanState:
        """The settings in force, and counters."""
        with self._changed:
            settings = {name: getattr(self._settings, name) for name in Settings.__slots__}
            stats = self._stats | self._pages.stats
            stats |= {"targets": len(self._targets), "dropped": self._writer.dropped}
        nodes = frozenset(range(MAX_NODES))
        return ScanState(
            **settings, flags=ScanFlags.BRIEF, hot_nodes=nodes, cold_nodes=frozenset(), stats=stats
        )

    @property
    def page_stats(self) -> dict[str, int]:
        """The counters of pages, without waiting for a step that is under way."""
        return self._pages.stats

    def close(self) -> None:
        """End the thread's work and let go of all targets."""
        with self._changed:
            self._ends = True
            while self._targets:
                self._targets.popitem()[1].close()
            self._changed.notify()

    # The thread.
    def run(self) -> None:
        """Scan until `close`; whatever else ends it, the reader of the ring is told."""
        with self._changed:
            try:
                while not self._ends:
                    # Whoever waits for the lock gets it between two steps.
                    self._changed.wait(max(self.advance(), bounds.IDLE_PAUSE_NS) / 1e9)
            finally:
                if not self._ends:
                    self._fail(UnavailableError("the scanner's thread has ended"))

    def advance(self) -> int:
        """Make a step if one is due; the time until the next one in ns, 0: now."""
        now, used = self._clock(), self._cpu()
        if self._budget is None:
            self._budget = CpuBudget(now, used)
        self._stats["cpu_ns"] = used
        wait_ns = self._budget.wait_ns(now, used, self._settings.budget_ppm)
        due = [(each.due_ns(self._settings), each) for each in self._targets.values()]
        # What is marked is checked in time, and paid for later: it would be sampled for longer.
        if wait_ns:
            due = [(at, each) for at, each in due if each.part is not None]
        if self.failure is not None or not due:
            return min(wait_ns or bounds.IDLE_WAIT_NS, bounds.IDLE_WAIT_NS)
        at, chosen = min(due, key=lambda each: each[0])
        if at > now:
            rest = min(wait_ns, at - now) if wait_ns else at - now
            return min(rest, bounds.IDLE_WAIT_NS)
        self._step(chosen, now)
        return 0

    def _step(self, target: TargetScan, now: int) -> None:
        if now >= self._nodes_ns:
            self._pages.place(node_frames(self._root))
            self._nodes_ns = now + bounds.IDLE_NODES_NS
        rounds = target.stats["rounds"]
        self._stats["slices"] += 1
        try:
            for records in target.step(self._settings, self._speed):
                self._writer.put(records)
        except TargetGoneError:
            self._drop(target)
        except UnavailableError as error:
            self._fail(error)
        else:
            if target.stats["rounds"] != rounds:
                self._stats["rounds"] += 1
                self._writer.wake()

    def _fail(self, error: UnavailableError) -> None:
        log.warning(logfmt(event="scanner_failed", source="idlepage", reason=error.message))
        self.failure = error
        self._writer.shut()

    def _drop(self, target: TargetScan) -> None:
        """Its process has ended."""
        self._stats["targets_gone"] += 1
        with contextlib.suppress(KeyError):
            del self._targets[target.number]
        target.close()
