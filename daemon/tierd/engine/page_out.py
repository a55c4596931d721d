# SPDX-License-Identifier: Apache-2.0
"""`PageOut`: pages that nobody has accessed for long go to compressed memory or swap.

A thread of its own visits the targets' memory (`page_out_visits`; `policy.page_out` says which
pages go). What the faults of targets cost afterwards bounds it. The loop is asked for what it
knows, and told what has gone.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from tierd._native import lib
from tierd.config.serving import PageOutConfig
from tierd.core import bounds
from tierd.core.cpu_budget import CpuBudget
from tierd.core.logfmt import logfmt
from tierd.core.pagekey import PAGE_SIZE, U64Array
from tierd.core.process import give_up_all
from tierd.engine.page_out_known import Known
from tierd.engine.page_out_visits import Memory, Visits
from tierd.engine.wakeups import LoopEndedError
from tierd.policy.page_out import Age, PageOutState
from tierd.topology import swap

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Swap:
    """What is asked of the host's swap; a test has its own."""

    space: Callable[[bool], tuple[int, str]] = swap.space
    fault_seconds: Callable[[], float | None] = swap.fault_seconds
    swapped_in: Callable[[], int] = swap.swapped_in


class PageOut:
    """A `BackgroundService`.

    Attributes:
        ask: has the loop tell what it knows; set before `start`.
        state: what is known of it, from any thread.
    """

    name = "page_out"

    def __init__(
        self, config: PageOutConfig, memory: Memory | None = None, host: Swap | None = None
    ) -> None:
        self._config = config
        self._swap = Swap() if host is None else host
        self._age = Age(config.min_age_ns / 1e9, config.max_lost_time)
        self._visits = Visits(Memory() if memory is None else memory)
        self._faults: Mapping[int, int] = {}
        self._swapped_in = self._swap.swapped_in()
        self._round_ns = 0
        self._fault_s = 0.0
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        self.ask: Callable[[], Future[Known]] = Future
        self.state = PageOutState("it has just begun")

    def on_gone(self, gone: Callable[[U64Array], object]) -> None:
        """Tell the keys of pages that were paged out, uint64[n]."""
        self._visits.gone = gone

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="tierd-page-out", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._ends.set()
        self._visits.reads.stop()
        if self._thread is not None:
            self._thread.join(bounds.PROBE_END_S)

    def _run(self) -> None:
        give_up_all("CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE", "CAP_SYS_NICE")
        budget = CpuBudget(time.monotonic_ns(), self._spent_ns(), bounds.CPU_CREDIT_NS)
        pause_s = 0.0
        while not self._ends.wait(pause_s):
            try:
                self.round(time.monotonic_ns())
            except Exception:
                log.exception(logfmt(event="page_out_failed"))
            limit = self._config.cpu_limit
            wait_ns = budget.wait_ns(time.monotonic_ns(), self._spent_ns(), limit)
            pause_s = max(bounds.PAGE_OUT_INTERVAL_NS, wait_ns) / 1e9
        self._visits.reads.close()

    def _spent_ns(self) -> int:
        return int(lib.tierd_thread_cpu_ns()) + self._visits.reads.cpu_ns

    def round(self, now_ns: int) -> None:
        """Have pages go, as far as faults, space and rate allow."""
        try:
            known = self.ask().result(bounds.PAGE_OUT_ANSWER_S)
        except (queue.Full, TimeoutError, LoopEndedError):
            self._tell("the loop does not answer")
            return
        elapsed_s = (now_ns - self._round_ns) / 1e9 if self._round_ns else 0.0
        self._round_ns = now_ns
        affordable = self._age.update(self._new_faults(known), self._fault_s, elapsed_s)
        space, full = self._swap.space(not self._config.any_swap)
        why_not = known.why_not or full or ("" if affordable else "faults cost too much")
        if not why_not and not self._fault_s:
            self._fault_s = self._swap.fault_seconds() or 0.0
            why_not = (
                "" if self._fault_s else "own pages were not paged out: a fault's cost is unknown"
            )
        if not why_not:
            # What an earlier round left over is not made up for.
            most = self._config.rate_limit_bytes_per_s * min(elapsed_s, bounds.PAGE_OUT_MOST_S)
            self._visits.round(known, self._age.seconds, min(int(most), space) // PAGE_SIZE, now_ns)
        self._tell(why_not)

    def _new_faults(self, known: Known) -> int:
        """Faults of targets on swapped memory since the last round, at most."""
        before, self._faults = self._faults, known.faults
        counted = sum(max(0, n - before.get(each, n)) for each, n in known.faults.items())
        # Faults on files are left out by this, and those of other processes by that.
        swapped_in, self._swapped_in = self._swapped_in, self._swap.swapped_in()
        return min(counted, self._swapped_in - swapped_in)

    def _tell(self, why_not: str) -> None:
        if why_not != self.state.why_not:
            log.info(logfmt(event="page_out", state=why_not or "pages are paged out"))
        visits, age = self._visits, self._age
        self.state = PageOutState(
            why_not, dict(visits.pages), visits.left_out, age.seconds, age.lost, self._fault_s
        )
