# SPDX-License-Identifier: Apache-2.0
"""Movers: `NativeMover` executes plans with move_pages(2), through C; `DryMover` moves nothing."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tierd._native import ffi, lib
from tierd.core import bounds
from tierd.core.linux import NO_PIDFD
from tierd.core.migration import Fate, MigrationPlan, MigrationResult, SplitFate, U8Array, filled
from tierd.core.pagekey import HUGE_BYTES, I64Array, U64Array
from tierd.core.tuning import MIGRATION, VALUE


class DryMover:
    """A mover that reports every move as not tried, and holds nothing."""

    def execute(self, plan: MigrationPlan, pids: Mapping[int, int]) -> MigrationResult:
        """No page moves."""
        del pids
        return MigrationResult.not_tried(plan)

    def take_calls(self) -> tuple[I64Array, int]:
        """No call was made."""
        return np.empty((0, 2), np.int64), 0

    def set_rate(self, rate_bytes_per_s: int) -> None:
        """Nothing is limited."""

    def stop(self) -> None:
        """Nothing runs."""

    def resume(self) -> None:
        """Nothing was stopped."""

    def set_limits(self, *, busy_retries: int, cpu_share: float) -> None:
        """Nothing is limited."""

    def forget(self, pid: int) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is held."""


@dataclass(slots=True)
class _Held:
    pid: int
    pidfd: int


class Processes:
    """Pidfds by target number, opened when a target is first seen with a pid."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}

    def hold(self, pids: Mapping[int, int]) -> list[tuple[int, int, int]]:
        """(target, pid, pidfd) ascending by target; the pidfd is -1 if the process is gone.

        A target keeps its first process. After that has ended the target stays gone, even if
        the pid is used again, until it gets another pid, is left out, or is forgotten.
        """
        for target in self._held.keys() - pids.keys():
            self._close(self._held.pop(target))
        for target, pid in pids.items():
            held = self._held.get(target)
            if held is None or held.pid != pid:
                if held is not None:
                    self._close(held)
                self._held[target] = _Held(pid, _open(pid))
        return [(target, held.pid, held.pidfd) for target, held in sorted(self._held.items())]

    def forget(self, pid: int) -> None:
        """Close the pidfd of a process."""
        for target in [each for each, held in self._held.items() if held.pid == pid]:
            self._close(self._held.pop(target))

    def close(self) -> None:
        """Close everything."""
        self.hold({})

    @staticmethod
    def _close(held: _Held) -> None:
        if held.pidfd != NO_PIDFD:
            os.close(held.pidfd)


def _open(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except (ProcessLookupError, ValueError, OverflowError):
        return NO_PIDFD
    except OSError as error:
        # EINVAL: the number of a thread, or of no process.
        import errno

        if error.errno in (errno.EINVAL, errno.ENOENT):
            return NO_PIDFD
        raise


def tuning_of_mover(native: Any) -> Any:
    """The library's tuning constants as a struct, in memory of `native`, a cffi.FFI."""
    given = native.new("struct tierd_mover_tuning *")
    given.call_target_ns = bounds.MOVE_CALL_NS
    given.cpu_credit_ns = bounds.CPU_CREDIT_NS
    given.backoff_ns = MIGRATION.busy_backoff_ns
    given.backoff_factor = MIGRATION.busy_backoff_factor
    given.max_backoff_ns = bounds.MAX_BUSY_BACKOFF_NS
    # As much as an exchange, so that the first calls are short.
    given.first_ns_per_page = 2 * VALUE.move_s * 1e9
    return given


class NativeMover:
    """Moves pages of other processes between nodes.

    `stop`, `resume` and `set_rate` may be called from any thread and from a signal
    handler; `execute` from one thread at a time (another one waits).

    Args:
        rate_bytes_per_s: bytes that may change node in a second. In any window of t
            seconds at most rate * t + burst bytes are moved. If a page shares a folio of
            another size than planned, the kernel moves its neighbours too, which are not
            counted. Pages planned as 4 KiB that are now part of a 2 MiB folio are not
            moved (`Fate.JOINED`), if the kernel has PAGEMAP_SCAN (Linux 6.7).
        burst_bytes: see above; at least 2 MiB (a huge folio) are always allowed.
            None: what the rate allows in 0.1 s.
        busy_retries: how often a busy page is tried again, after 2, 8, 32, 128,
            then always 200 ms.
        cpu_share: fraction of one CPU that moving may take, above 0; None: no limit.

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        *,
        rate_bytes_per_s: int,
        burst_bytes: int | None = None,
        busy_retries: int = 3,
        cpu_share: float | None = None,
    ) -> None:
        self._burst_bytes = burst_bytes
        made = ffi.new("struct tierd_mover **")
        if rate_bytes_per_s <= 0 or not 0 <= busy_retries <= 100:
            raise ValueError(f"mover: {rate_bytes_per_s=}, {busy_retries=}")
        result = lib.tierd_mover_new(
            rate_bytes_per_s,
            self._burst(rate_bytes_per_s),
            busy_retries,
            1.0 if cpu_share is None else cpu_share,
            tuning_of_mover(ffi),
            made,
        )
        if result != 0:
            raise ValueError(
                f"mover: {rate_bytes_per_s=}, {burst_bytes=}, {busy_retries=}, {cpu_share=}"
            )
        self._mover = ffi.gc(made[0], lib.tierd_mover_free)
        self._processes = Processes()
        self._lock = threading.Lock()
        self.longest_call_ns = 0
        """The longest move_pages call so far."""
        self.calls = 0
        """move_pages calls that the last plan took."""

    def execute(self, plan: MigrationPlan, pids: Mapping[int, int]) -> MigrationResult:
        """Execute `plan` in its order; blocks, without the interpreter's lock.

        Its splits follow after the moves, about half a millisecond each.

        The plan's `source` is checked by samples only, because a query of every page
        costs a tenth of moving it. So a page that something else has moved to its
        destination may count as MOVED. Where `source` is negative or equals `dest`,
        every page is queried.

        Args:
            pids: target number → process id; the pages of a target that is not in it,
                or whose process ended, are GONE.

        Returns:
            The result of every page. After `stop` the rest is NOT_TRIED.
        """
        with self._lock:
            return self._execute(plan, pids)

    def take_calls(self) -> tuple[I64Array, int]:
        """The move_pages calls since the last time, the fast path's too; not while that moves.

        Returns:
            int64[n, 2], ns that each took and the 4 KiB pages that it was made for, of which some
            may not have moved (waiting for the rate or a busy page is in no call); and how many
            calls since the start it lacks, as more than `TIERD_MOVE_CALLS` came between two times.
        """
        calls: I64Array = np.empty((lib.TIERD_MOVE_CALLS, 2), np.int64)
        dropped = ffi.new("uint64_t *")
        with self._lock:
            buffer = ffi.from_buffer("struct tierd_move_call[]", calls)
            n = lib.tierd_mover_take_calls(self._mover, buffer, dropped)
        return calls[:n], int(dropped[0])

    def stop(self) -> None:
        """Make a running and every later `execute` return, within 100 ms."""
        lib.tierd_mover_stop(self._mover, True)

    def resume(self) -> None:
        """Undo `stop`."""
        lib.tierd_mover_stop(self._mover, False)

    def set_rate(self, rate_bytes_per_s: int) -> None:
        """Change the byte rate, also of an `execute` that runs.

        Raises:
            ValueError: not above 0; `stop` is how to move nothing.
        """
        if rate_bytes_per_s <= 0:
            raise ValueError(f"{rate_bytes_per_s=} is not above 0; stop() moves nothing")
        lib.tierd_mover_set_rate(self._mover, rate_bytes_per_s, self._burst(rate_bytes_per_s))

    def set_limits(self, *, busy_retries: int, cpu_share: float) -> None:
        """Change both limits from the next `execute` on; waits for a running one.

        Raises:
            ValueError: an argument is out of its range; nothing has changed.
        """
        with self._lock:
            if not 0 <= busy_retries <= 100 or (
                lib.tierd_mover_set_limits(self._mover, busy_retries, cpu_share) != 0
            ):
                raise ValueError(f"mover: {busy_retries=}, {cpu_share=}")

    def forget(self, pid: int) -> None:
        """Close the pidfd held for a process; waits for a running `execute`."""
        with self._lock:
            self._processes.forget(pid)

    def close(self) -> None:
        """Stop, and close all pidfds. The mover moves nothing afterwards."""
        self.stop()
        with self._lock:
            self._processes.close()

    @property
    def handle(self) -> Any:
        """The C object, with which the promoter moves; it is valid as long as this object."""
        return self._mover

    def processes(self, pids: Mapping[int, int]) -> list[tuple[int, int, int]]:
        """(target, pid, pidfd) ascending by target, as `execute` would find them."""
        with self._lock:
            return self._processes.hold(pids)

    def _burst(self, rate_bytes_per_s: int) -> int:
        wanted = self._burst_bytes
        if wanted is None:
            wanted = round(rate_bytes_per_s * MIGRATION.burst_s)
        return max(wanted, HUGE_BYTES)

    def _execute(self, plan: MigrationPlan, pids: Mapping[int, int]) -> MigrationResult:
        start = time.monotonic_ns()
        n = len(plan)
        fate = filled(n, Fate.NOT_TRIED, np.uint8)
        node = plan.source.astype(np.int16, copy=True)
        held = self._processes.hold(pids)
        processes = ffi.new("struct tierd_process[]", held or 1)
        job = ffi.new("struct tierd_job *")
        arrays = {
            "page": ("uint64_t[]", np.ascontiguousarray(plan.page, np.uint64)),
            "order": ("uint8_t[]", np.ascontiguousarray(plan.order, np.uint8)),
            "source": ("int16_t[]", np.ascontiguousarray(plan.source, np.int16)),
            "dest": ("int16_t[]", np.ascontiguousarray(plan.dest, np.int16)),
            "fate": ("uint8_t[]", fate),
            "node": ("int16_t[]", node),
            "tries": ("uint8_t[]", np.zeros(n, np.uint8)),
        }
        views: list[Any] = []
        for name, (kind, values) in arrays.items():
            views.append(ffi.from_buffer(kind, values) if n else ffi.NULL)
            setattr(job, name, views[-1])
        job.n = n
        job.process = processes
        job.processes = len(held)
        # In parts, so that Python's signal handlers run even on the main thread.
        while lib.tierd_mover_run(self._mover, job, bounds.NATIVE_CALL_NS) == 1:
            pass
        duration_ns = time.monotonic_ns() - start
        errors = np.frombuffer(ffi.buffer(job.errors), np.uint64)
        self.calls = job.calls
        self.longest_call_ns = max(self.longest_call_ns, job.longest_call_ns)
        return MigrationResult(
            plan=plan,
            fate=fate,
            node=node,
            errors={int(each): int(errors[each]) for each in np.flatnonzero(errors)},
            moved_bytes=job.moved_bytes,
            duration_ns=duration_ns,
            cpu_ns=job.cpu_ns,
            retries=job.retries,
            split_fate=self._split(plan.split, processes, len(held)),
        )

    def _split(self, split: U64Array, processes: Any, count: int) -> U8Array:
        """Split folios; uint8[m] of `SplitFate`."""
        fate: U8Array = filled(len(split), SplitFate.NOT_TRIED, np.uint8)
        if len(split):
            pages = np.ascontiguousarray(split, np.uint64)
            lib.tierd_mover_split(
                self._mover,
                ffi.from_buffer("uint64_t[]", pages),
                len(pages),
                processes,
                count,
                ffi.from_buffer("uint8_t[]", fate),
            )
        return fate


Mover: TypeAlias = DryMover | NativeMover
"""Executes plans; `NativeMover` documents the methods."""
