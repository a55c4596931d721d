# SPDX-License-Identifier: Apache-2.0
"""`PageOut`: pages that nobody has accessed for long go to compressed memory or swap.

A thread of its own visits the targets' memory (`page_out_visits`; `policy.page_out` says which
pages go). What faults on swapped memory cost afterwards bounds it. The loop is asked for what it
knows, and told what has gone.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
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
        gone: is told the keys of pages that were paged out in a round, uint64[n].
        stands: whether the service moves nothing now; any thread may ask.
        state: what is known of page-outs, from any thread.
    """

    name = "page_out"

    def __init__(
        self, config: PageOutConfig, memory: Memory | None = None, host: Swap | None = None
    ) -> None:
        self._config = config
        self._swap = Swap() if host is None else host
        self._age = Age(config.min_age_ns / 1e9, config.max_lost_time)
        self._visits = Visits(Memory() if memory is None else memory)
        self._budget: CpuBudget | None = None
        self._swapped_in = self._swap.swapped_in()
        self._unknown = 0
        self._round_ns = 0
        self._fault_s: float | None = None
        self._fault_due_ns = 0
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        self.ask: Callable[[], Future[Known]] = Future
        self.gone: Callable[[U64Array], object] = len
        self.stands: Callable[[], bool] = bool
        self.state = PageOutState("it has just begun", age_s=self._age.seconds)

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

    def explain(self, key: int) -> str:
        """What is known of a page, from any thread."""
        said = self._visits.explain(key, time.monotonic_ns())
        why_not = self.state.why_not
        return f"{said}; nothing is paged out now: {why_not}" if why_not else said

    def _run(self) -> None:
        give_up_all("CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE", "CAP_SYS_NICE")
        self._budget = CpuBudget(time.monotonic_ns(), self._spent_ns(), bounds.CPU_CREDIT_NS)
        pause_ns = 0
        while not self._ends.wait(pause_ns / 1e9):
            try:
                self.round(time.monotonic_ns())
            except Exception:
                log.exception(logfmt(event="page_out_failed"))
            pause_ns = max(bounds.PAGE_OUT_INTERVAL_NS, self._owed_ns())
        self._visits.reads.close()

    def _spent_ns(self) -> int:
        return int(lib.tierd_thread_cpu_ns()) + self._visits.reads.cpu_ns

    def _owed_ns(self) -> int:
        """Time until what was used of a CPU is paid for; 0 if it is."""
        if self._budget is None:
            return 0
        return self._budget.wait_ns(time.monotonic_ns(), self._spent_ns(), self._config.cpu_limit)

    def _goes_on(self) -> bool:
        return not (self._ends.is_set() or self.stands() or self._owed_ns())

    def round(self, now_ns: int) -> None:
        """Have pages go, as far as faults, space, rate and CPU time allow."""
        asked: Future[Known] | None = None
        try:
            asked = self.ask()
            known = asked.result(bounds.PAGE_OUT_ANSWER_S)
        except (queue.Full, TimeoutError, LoopEndedError):
            if asked is not None:
                asked.cancel()
            self._tell("the loop does not answer")
            return
        elapsed_s = (now_ns - self._round_ns) / 1e9 if self._round_ns else 0.0
        self._round_ns = now_ns
        why_not, pages = self._allowed(known, elapsed_s)
        if not why_not:
            age_s = self._age.seconds
            gone = self._visits.round(known, age_s, pages, now_ns, self._goes_on)
            if len(gone):
                self.gone(gone)
            if known.unknown != self._unknown:
                why_not = "heat does not know all: samples are lost, or heat.memory is too small"
            why_not = why_not or self._visits.trouble
            self._unknown = known.unknown
        self._tell(why_not)

    def _allowed(self, known: Known, elapsed_s: float) -> tuple[str, int]:
        """Why nothing may be paged out now, "" if it may, and how many pages."""
        before, self._swapped_in = self._swapped_in, self._swap.swapped_in()
        faults = self._swapped_in - before
        affordable = self._age.update(faults, self._fault_s or 0.0, elapsed_s)
        space, full = self._swap.space(not self._config.any_swap)
        if why_not := known.why_not or full:
            return why_not, 0
        if self._round_ns >= self._fault_due_ns:
            self._fault_s = self._swap.fault_seconds() or self._fault_s
            self._fault_due_ns = self._round_ns + bounds.PAGE_OUT_FAULT_NS
        if self._fault_s is None:
            return "what a fault costs is not known, as own pages were not paged out", 0
        if not affordable:
            return "faults on swapped memory cost too much", 0
        # What an earlier round left over is not made up for.
        most = self._config.rate_limit_bytes_per_s * min(elapsed_s, bounds.PAGE_OUT_MOST_S)
        return "", min(int(most), space) // PAGE_SIZE

    def _tell(self, why_not: str) -> None:
        if why_not != self.state.why_not:
            log.info(logfmt(event="page_out", state=why_not or "pages are paged out"))
        visits, age = self._visits, self._age
        self.state = PageOutState(
            why_not,
            dict(visits.pages),
            visits.left_out,
            max(age.seconds, visits.age_s),
            age.lost,
            self._fault_s or 0.0,
        )
