# SPDX-License-Identifier: Apache-2.0
"""Made-up processes that are paged out, and the host's swap."""

from __future__ import annotations

import errno
import queue
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import numpy as np

from tierd.config.serving import PageOutConfig
from tierd.core.access import F32Array, WatchedRange, WatchedTarget
from tierd.core.bounds import PAGE_OUT_PAGES
from tierd.core.pagekey import PAGE_SIZE, U64Array, make_keys
from tierd.engine.page_out import PageOut, Swap
from tierd.engine.page_out_known import Known
from tierd.engine.page_out_visits import Memory
from tierd.workloads.content import PageStates

AGE_S = 10
CONFIG = PageOutConfig(
    enabled=True, min_age_ns=AGE_S * 10**9, rate_limit_bytes_per_s=PAGE_SIZE * 100_000
)
TARGET = WatchedTarget(3, 77, (WatchedRange(10, PAGE_OUT_PAGES + 100),))
PAGES = PAGE_OUT_PAGES + 90


@dataclass
class Host:
    """Processes of two chunks each: which pages are out, hot, or cannot go, by page number."""

    hot: set[int] = field(default_factory=set)
    now_s: float = 0.0
    out: dict[int, set[int]] = field(default_factory=dict)
    stuck: set[int] = field(default_factory=set)
    locked: set[int] = field(default_factory=set)
    kept: float = 0.3
    space: tuple[int, str] = (1 << 40, "")
    fault_s: float | None = 1e-5
    faults: int = 0
    half_life_s: float = 5.0
    known: Known = field(default_factory=lambda: Known("", [TARGET]))
    started: int = 42
    stands: bool = False
    stops_after: int = 10**9
    gone: list[int] = field(default_factory=list)
    broken: Exception | None = None
    failing: dict[int, Exception] = field(default_factory=dict)

    def made(self, config: PageOutConfig = CONFIG) -> PageOut:
        memory = Memory(
            self.states, lambda pid, pages: self.kept, self.page_out, lambda pid: self.started
        )
        made = PageOut(
            config,
            memory,
            Swap(lambda compressed_only: self.space, lambda: self.fault_s, lambda: self.faults),
        )
        made.ask = self.ask
        made.gone = lambda keys: self.gone.extend(keys.tolist())
        made.stands = lambda: self.stands
        return made

    def ask(self) -> Future[Known]:
        future: Future[Known] = Future()
        if isinstance(self.broken, queue.Full):
            raise self.broken
        if self.broken is not None:
            future.set_exception(self.broken)
        else:
            future.set_result(
                replace(
                    self.known,
                    started=self.known.started or {each.target: 42 for each in self.known.targets},
                    heat_of=self.heat_of,
                    half_life_s=self.half_life_s,
                )
            )
        return future

    def heat_of(self, keys: U64Array) -> tuple[F32Array, float]:
        """Hot pages were accessed this very moment."""
        hot = make_keys(3, np.array(sorted(self.hot), np.uint64))
        return np.isin(keys, hot).astype(np.float32), self.now_s / self.half_life_s

    def states(self, pid: int, first: int, count: int) -> PageStates:
        if pid in self.failing:
            raise self.failing[pid]
        self.stops_after -= 1
        self.stands = self.stands or self.stops_after < 0
        swapped = np.isin(np.arange(first, first + count), sorted(self.out.get(pid, ())))
        own = ~swapped & ~np.isin(np.arange(first, first + count), sorted(self.locked))
        return PageStates(own, ~swapped, swapped)

    def page_out(self, pid: int, runs: Sequence[tuple[int, int]]) -> int:
        pages = {page for start, end in runs for page in range(start, end)}
        if pages & self.stuck:
            return -errno.EINVAL
        assert self.started == 42
        assert not pages & self.hot
        self.out.setdefault(pid, set()).update(pages)
        return len(pages) * PAGE_SIZE


def run(host: Host, made: PageOut, *seconds: float) -> None:
    for each in seconds:
        host.now_s = each
        made.round(int(each * 1e9) + 1)
