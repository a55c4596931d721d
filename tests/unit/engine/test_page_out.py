# SPDX-License-Identifier: Apache-2.0
"""Page-outs of made-up processes: what goes, what bounds it, and what stops it."""

from __future__ import annotations

import errno
import queue
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from tierd.config.serving import PageOutConfig
from tierd.core import bounds
from tierd.core.access import WatchedRange, WatchedTarget
from tierd.core.bounds import PAGE_OUT_PAGES
from tierd.core.errors import NotAnsweringError, TargetGoneError
from tierd.core.pagekey import PAGE_SIZE, U64Array, make_keys
from tierd.core.tuning import PAGE_OUT
from tierd.engine.page_out import PageOut, Swap
from tierd.engine.page_out_known import Known
from tierd.engine.page_out_visits import Memory
from tierd.engine.wakeups import LoopEndedError
from tierd.policy.page_out import HeatAge
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
    out: dict[int, set[int]] = field(default_factory=dict)
    stuck: set[int] = field(default_factory=set)
    locked: set[int] = field(default_factory=set)
    kept: float = 0.3
    space: tuple[int, str] = (1 << 40, "")
    fault_s: float | None = 1e-5
    faults: int = 0
    known: Known = field(default_factory=lambda: Known("", [TARGET]))
    gone: list[int] = field(default_factory=list)
    broken: Exception | None = None
    failing: dict[int, Exception] = field(default_factory=dict)

    def made(self, config: PageOutConfig = CONFIG) -> PageOut:
        memory = Memory(self.states, lambda pid, pages: self.kept, self.page_out)
        made = PageOut(
            config,
            memory,
            Swap(lambda compressed_only: self.space, lambda: self.fault_s, lambda: self.faults),
        )
        made.ask = self.ask
        made.on_gone(lambda keys: self.gone.extend(keys.tolist()))
        return made

    def ask(self) -> Future[Known]:
        future: Future[Known] = Future()
        if isinstance(self.broken, queue.Full):
            raise self.broken
        if self.broken is not None:
            future.set_exception(self.broken)
        else:
            future.set_result(replace(self.known, faults={3: self.faults}, heat_of=self.heat_of))
        return future

    def heat_of(self, keys: U64Array) -> np.ndarray:
        hot = make_keys(3, np.array(sorted(self.hot), np.uint64))
        return np.isin(keys, hot).astype(np.float32)

    def states(self, pid: int, first: int, count: int) -> PageStates:
        if pid in self.failing:
            raise self.failing[pid]
        swapped = np.isin(np.arange(first, first + count), sorted(self.out.get(pid, ())))
        own = ~swapped & ~np.isin(np.arange(first, first + count), sorted(self.locked))
        return PageStates(own, ~swapped, swapped)

    def page_out(self, pid: int, runs: Sequence[tuple[int, int]]) -> int:
        pages = {page for start, end in runs for page in range(start, end)}
        if pages & self.stuck:
            return -errno.EINVAL
        assert not pages & self.hot
        self.out.setdefault(pid, set()).update(pages)
        return len(pages) * PAGE_SIZE


def run(made: PageOut, *seconds: float) -> None:
    for each in seconds:
        made.round(int(each * 1e9) + 1)


def test_cold_pages_of_a_targets_ranges_go_after_an_age() -> None:
    host = Host(hot={20, 21}, locked={30})
    made = host.made()
    run(made, 1, 2, 10)
    assert not host.out
    run(made, 12)
    assert host.out[77] == set(range(10, PAGE_OUT_PAGES + 100)) - {20, 21, 30}
    assert made.state.pages["out"] == PAGES - 3
    assert made.state.why_not == ""
    assert sorted(host.gone) == make_keys(3, np.array(sorted(host.out[77]), np.uint64)).tolist()
    run(made, 22, 33)
    assert made.state.pages == {"out": PAGES - 3, "back": 0, "refused": 0}


def test_the_rate_bounds_a_round_and_the_rest_follows() -> None:
    host = Host()
    made = host.made(replace(CONFIG, rate_limit_bytes_per_s=PAGE_SIZE * 1000))
    run(made, 1, 2, 12)
    assert made.state.pages["out"] == 1000 * bounds.PAGE_OUT_MOST_S
    run(made, 13, 14)
    assert made.state.pages["out"] == 1000 * bounds.PAGE_OUT_MOST_S + 2000
    run(made, *range(15, 40))
    assert made.state.pages["out"] == PAGES


def test_space_in_swap_bounds_it_too() -> None:
    host = Host(space=(50 * PAGE_SIZE, ""))
    made = host.made()
    run(made, 1, 2, 12)
    assert len(host.out[77]) == 50


@pytest.mark.parametrize(
    ("changes", "why_not"),
    [
        ({"space": (0, "there is no swap")}, "there is no swap"),
        ({"known": Known("the service is paused")}, "the service is paused"),
        ({"fault_s": None}, "own pages were not paged out: a fault's cost is unknown"),
        ({"broken": queue.Full()}, "the loop does not answer"),
        ({"broken": TimeoutError()}, "the loop does not answer"),
        ({"broken": LoopEndedError("it ended")}, "the loop does not answer"),
    ],
)
def test_what_stands_against_it_is_told(changes: dict[str, object], why_not: str) -> None:
    host = Host(**changes)  # type: ignore[arg-type]
    made = host.made()
    run(made, 1, 2, 12, 23)
    assert not host.out
    assert made.state.why_not == why_not


def test_faults_that_cost_too_much_stop_it_and_it_goes_on_later() -> None:
    host = Host()
    made = host.made()
    run(made, 1, 2)
    host.faults += 10_000
    run(made, 3)
    assert made.state.why_not == "faults cost too much"
    assert made.state.lost > CONFIG.max_lost_time
    assert made.state.age_s > AGE_S
    run(made, *range(4, 60))
    assert made.state.why_not == ""
    run(made, *range(60, 100))
    assert len(host.out[77]) == PAGES


def test_faults_of_files_and_of_other_processes_do_not_count() -> None:
    host = Host()
    made = host.made()
    made._swap = replace(made._swap, swapped_in=lambda: 0)
    made._swapped_in = 0
    run(made, 1, 2)
    host.faults += 10_000
    run(made, 3)
    assert made.state.lost == 0


def test_pages_that_do_not_compress_stay_and_are_seldom_tried() -> None:
    host = Host(kept=0.95)
    made = host.made()
    run(made, *range(1, 3 * AGE_S))
    assert not host.out
    assert made.state.pages["incompressible"] == PAGES
    host.kept = 0.3
    run(made, *range(3 * AGE_S, 20 * AGE_S))
    assert not host.out
    run(made, *range(20 * AGE_S, (PAGE_OUT.dense_visits + 20) * AGE_S))
    assert len(host.out[77]) == PAGES


def test_refused_pages_are_counted_and_the_rest_goes_on() -> None:
    host = Host(stuck={PAGE_OUT_PAGES + 1})
    made = host.made()
    run(made, 1, 2, 12)
    assert host.out[77] == set(range(10, PAGE_OUT_PAGES))
    assert made.state.pages["refused"] == 100


def test_what_comes_back_is_counted_and_its_chunk_left_alone_for_longer() -> None:
    host = Host()
    made = host.made()
    run(made, 1, 2, 12)
    host.out[77] = set()
    run(made, 23, 34)
    assert made.state.pages["back"] == PAGES
    assert not host.out[77]
    run(made, *range(35, 80))
    assert made.state.pages["out"] == 2 * PAGES


def test_a_process_that_does_not_answer_stops_no_other_and_one_that_ended_is_forgotten() -> None:
    other = WatchedTarget(4, 78, (WatchedRange(0, 50),))
    host = Host(known=Known("", [TARGET, other]), failing={77: NotAnsweringError("it is stuck")})
    made = host.made()
    run(made, 1, 2, 12)
    assert host.out.keys() == {78}
    host.failing = {77: TargetGoneError("it ended")}
    host.known = Known("", [other])
    run(made, 13, 24)
    host.failing, host.known = {}, Known("", [TARGET, other])
    run(made, 25, 36)
    assert len(host.out[77]) == PAGES


def test_a_table_that_evicts_between_visits_stops_it() -> None:
    host = Host()
    made = host.made()
    for second in range(1, 60):
        host.known = Known("", [TARGET], heat=HeatAge(second, 0.0))
        run(made, second)
    assert not host.out


def test_chunks_beyond_the_bound_are_left_alone_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "PAGE_OUT_CHUNKS", 1)
    host = Host()
    made = host.made()
    run(made, 1, 2, 12)
    assert host.out[77] == set(range(10, PAGE_OUT_PAGES))
    assert made.state.left_out == 1
