# SPDX-License-Identifier: Apache-2.0
"""Page-outs of made-up processes: what goes, what bounds it, and what stops it."""

from __future__ import annotations

import errno
import queue
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from page_out_host import AGE_S, CONFIG, PAGES, TARGET, Host, run

from tierd.config.whole import loads
from tierd.core import bounds
from tierd.core.access import WatchedRange, WatchedTarget
from tierd.core.bounds import PAGE_OUT_PAGES
from tierd.core.errors import NotAnsweringError, TargetGoneError, UnavailableError
from tierd.core.pagekey import PAGE_SIZE, make_keys
from tierd.core.tuning import PAGE_OUT
from tierd.engine.build import build
from tierd.engine.page_out import PageOut
from tierd.engine.page_out_known import Known
from tierd.engine.wakeups import LoopEndedError


def test_cold_pages_of_a_targets_ranges_go_after_an_age() -> None:
    host = Host(hot={20, 21}, locked={30})
    made = host.made()
    run(host, made, 1, 2, 10)
    assert not host.out
    run(host, made, 12)
    assert host.out[77] == set(range(10, PAGE_OUT_PAGES + 100)) - {20, 21, 30}
    assert made.state.pages["out"] == PAGES - 3
    assert made.state.why_not == ""
    assert sorted(host.gone) == make_keys(3, np.array(sorted(host.out[77]), np.uint64)).tolist()
    run(host, made, 22, 33)
    assert made.state.pages == {"out": PAGES - 3, "back": 0, "refused": 0}


@pytest.mark.parametrize("counted", [1.0, 0.4, 0.02])
@pytest.mark.parametrize("age_s", [AGE_S, 120, 3600])
def test_pages_go_however_little_the_source_sees_and_however_long_an_age(
    counted: float, age_s: int
) -> None:
    host = Host(hot={20}, known=Known("", [TARGET], counted=counted))
    made = host.made(replace(CONFIG, min_age_ns=age_s * 10**9))
    longer = min(1 / counted, PAGE_OUT.most_longer)
    after = age_s * longer
    run(host, made, *range(1, int(after)))
    assert not host.out
    run(host, made, *range(int(after), int(1.5 * after) + 3))
    assert len(host.out[77]) == PAGES - 1
    assert made.state.age_s == pytest.approx(after)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_dry_run_pages_nothing_out(dry_run: bool) -> None:
    service, _ = build(loads("[page_out]\nenabled = true\n"), dry_run=dry_run)
    found = [each for each in service.background if isinstance(each, PageOut)]
    assert len(found) == (0 if dry_run else 1)
    for each in found:
        assert not each.stands()
        service.work.paused = True
        assert each.stands()


def test_an_age_has_some_scans() -> None:
    host = Host(known=Known("", [TARGET], scan_s=20.0))
    made = host.made()
    run(host, made, *range(1, 320))
    assert not host.out
    run(host, made, *range(320, 400))
    assert len(host.out[77]) == PAGES


def test_the_rate_bounds_a_round_and_the_rest_follows() -> None:
    host = Host()
    made = host.made(replace(CONFIG, rate_limit_bytes_per_s=PAGE_SIZE * 1000))
    run(host, made, 1, 2, 12)
    assert made.state.pages["out"] == 1000 * bounds.PAGE_OUT_MOST_S
    run(host, made, 13, 14)
    assert made.state.pages["out"] == 1000 * bounds.PAGE_OUT_MOST_S + 2000
    run(host, made, *range(15, 40))
    assert made.state.pages["out"] == PAGES


def test_space_in_swap_bounds_it_too() -> None:
    host = Host(space=(50 * PAGE_SIZE, ""))
    made = host.made()
    run(host, made, 1, 2, 12)
    assert len(host.out[77]) == 50


@pytest.mark.parametrize(
    ("changes", "why_not"),
    [
        ({"space": (0, "there is no swap")}, "there is no swap"),
        ({"known": Known("the service is paused")}, "the service is paused"),
        ({"fault_s": None}, "what a fault costs is not known, as own pages were not paged out"),
        ({"broken": queue.Full()}, "the loop does not answer"),
        ({"broken": TimeoutError()}, "the loop does not answer"),
        ({"broken": LoopEndedError("it ended")}, "the loop does not answer"),
    ],
)
def test_what_stands_against_it_is_told(changes: dict[str, object], why_not: str) -> None:
    host = Host(**changes)  # type: ignore[arg-type]
    made = host.made()
    run(host, made, 1, 2, 12, 23)
    assert not host.out
    assert made.state.why_not == why_not


def test_faults_that_cost_too_much_stop_it_and_it_goes_on_later() -> None:
    host = Host()
    made = host.made()
    run(host, made, 1, 2)
    host.faults += 10_000
    run(host, made, 3)
    assert made.state.why_not == "faults on swapped memory cost too much"
    assert made.state.lost > CONFIG.max_lost_time
    assert made.state.age_s > AGE_S
    run(host, made, *range(4, 60))
    assert made.state.why_not == ""
    run(host, made, *range(60, 100))
    assert len(host.out[77]) == PAGES


def test_a_faults_cost_is_measured_again() -> None:
    host = Host(fault_s=1e-5)
    made = host.made()
    run(host, made, 1, 2)
    host.fault_s = 1e-2
    run(host, made, 3)
    assert made.state.fault_s == 1e-5
    run(host, made, 2 + bounds.PAGE_OUT_FAULT_NS / 1e9)
    assert made.state.fault_s == 1e-2
    host.fault_s = None
    run(host, made, 4 + 2 * bounds.PAGE_OUT_FAULT_NS / 1e9)
    assert made.state.fault_s == 1e-2


def test_a_service_that_stands_still_in_the_middle_of_a_round_ends_it() -> None:
    host = Host()
    made = host.made()
    run(host, made, 1, 2)
    host.stops_after = 1  # of the first chunk, before and after
    run(host, made, 12)
    assert len(host.out[77]) in (PAGE_OUT_PAGES - 10, 100)
    host.stands, host.stops_after = False, 10**9
    run(host, made, 13)
    assert len(host.out[77]) == PAGES


def test_what_a_cpu_is_owed_ends_a_round_and_what_was_begun_comes_first() -> None:
    targets = [WatchedTarget(3, 77, (WatchedRange(0, 40 * PAGE_OUT_PAGES),))]
    host = Host(known=Known("", targets))
    made = host.made()
    owed = 0

    def owes() -> int:
        nonlocal owed
        owed += 1
        return int(owed % 4 == 0)

    made._owed_ns = owes  # type: ignore[method-assign]
    run(host, made, *range(1, 30))
    out = sorted({page // PAGE_OUT_PAGES for page in host.out[77]})
    assert len(out) > 20
    assert len(host.out[77]) == len(out) * PAGE_OUT_PAGES


def test_pages_that_do_not_compress_stay_and_are_seldom_tried() -> None:
    host = Host(kept=0.95)
    made = host.made()
    run(host, made, *range(1, 3 * AGE_S))
    assert not host.out
    assert made.state.pages["incompressible"] == PAGES
    host.kept = 0.3
    run(host, made, *range(3 * AGE_S, 20 * AGE_S))
    assert not host.out
    run(host, made, *range(20 * AGE_S, (PAGE_OUT.dense_ages + 4 * PAGE_OUT.most_waits) * AGE_S))
    assert len(host.out[77]) == PAGES


def test_refused_pages_are_counted_and_the_rest_goes_on() -> None:
    host = Host(stuck={PAGE_OUT_PAGES + 1})
    made = host.made()
    run(host, made, 1, 2, 12)
    assert host.out[77] == set(range(10, PAGE_OUT_PAGES))
    assert made.state.pages["refused"] == 100


def test_memory_that_is_always_refused_is_left_alone_for_longer() -> None:
    """A control group without swap, for instance."""
    host = Host(stuck=set(range(2 * PAGE_OUT_PAGES)))
    made = host.made()
    run(host, made, *range(1, 200 * AGE_S))
    assert not host.out
    # Of 200 ages these.
    assert made.state.pages["refused"] <= 7 * PAGES


def test_calls_are_short() -> None:
    host = Host()
    calls, page_out = [], host.page_out

    def counted(pid: int, runs: Sequence[tuple[int, int]]) -> int:
        calls.append(sum(end - start for start, end in runs))
        return page_out(pid, runs)

    made = host.made()
    made._visits._memory = replace(made._visits._memory, page_out=counted)
    run(host, made, 1, 2, 12)
    assert max(calls) == bounds.PAGE_OUT_CALL_PAGES
    assert sum(calls) == PAGES == len(host.out[77])


def test_a_reservation_of_terabytes_makes_no_more_keys_than_are_remembered() -> None:
    many = (WatchedRange(0, 16 << 28), WatchedRange(1 << 33, (1 << 33) + (16 << 28)))
    host = Host(known=Known("", [TARGET, WatchedTarget(4, 78, many)]))
    made = host.made()
    made._owed_ns = lambda: 1  # type: ignore[method-assign]
    run(host, made, 1, 2)
    assert len(made._visits._chunks) == bounds.PAGE_OUT_CHUNKS
    assert made.state.left_out == 2 + 2 * (1 << 20) - bounds.PAGE_OUT_CHUNKS


def test_a_cpu_that_is_always_owed_for_makes_one_visit_a_round() -> None:
    host = Host()
    made = host.made()
    made._owed_ns = lambda: 1  # type: ignore[method-assign]
    run(host, made, *range(1, 60))
    assert len(host.out[77]) == PAGES


def test_a_target_that_is_left_out_for_a_round_keeps_its_past() -> None:
    host = Host()
    made = host.made()
    run(host, made, 1, 2, 12)
    assert len(host.out[77]) == PAGES
    host.known = Known("", [], started={3: 42})
    run(host, made, 13)
    host.known, host.out[77] = Known("", [TARGET]), set()
    run(host, made, 23, 34)
    assert made.state.pages["back"] == PAGES


def test_what_comes_back_is_counted_and_its_chunk_left_alone_for_longer() -> None:
    host = Host()
    made = host.made()
    run(host, made, 1, 2, 12)
    host.out[77] = set()
    run(host, made, 23, 34)
    assert made.state.pages["back"] == PAGES
    assert not host.out[77]
    run(host, made, *range(35, 80))
    assert made.state.pages["out"] == 2 * PAGES


def test_an_agent_that_goes_on_is_neither_refused_nor_forgotten() -> None:
    host = Host()
    made = host.made()
    late, page_out = -errno.ETIMEDOUT, host.page_out

    def slow(pid: int, runs: Sequence[tuple[int, int]]) -> int:
        page_out(pid, runs)
        return late

    made._visits._memory = replace(made._visits._memory, page_out=slow)
    run(host, made, 1, 2, 12)
    assert made.state.pages == {"back": 0}
    # One call of each chunk.
    assert len(host.out[77]) == bounds.PAGE_OUT_CALL_PAGES + 100
    host.out[77] = {page for page in host.out[77] if page >= PAGE_OUT_PAGES}
    run(host, made, *range(13, 50))
    assert made.state.pages["back"] == 0
    host.out[77] = set()
    run(host, made, *range(50, 100))
    assert made.state.pages["back"] > 0


def test_a_process_that_does_not_answer_stops_no_other_and_one_that_ended_is_forgotten() -> None:
    other = WatchedTarget(4, 78, (WatchedRange(0, 50),))
    host = Host(known=Known("", [TARGET, other]), failing={77: NotAnsweringError("it is stuck")})
    made = host.made()
    run(host, made, 1, 2, 12)
    assert host.out.keys() == {78}
    host.failing = {77: TargetGoneError("it ended")}
    host.known = Known("", [other])
    run(host, made, 13, 24)
    host.failing, host.known = {}, Known("", [TARGET, other])
    run(host, made, 25, 36)
    assert len(host.out[77]) == PAGES


def test_a_pid_that_is_another_process_now_is_neither_read_nor_paged_out() -> None:
    host = Host(started=43)
    made = host.made()
    read: list[int] = []
    made._visits._memory = replace(
        made._visits._memory, compressed=lambda pid, pages: read.append(pid) or 0.3
    )
    run(host, made, *range(1, 40))
    assert not host.out
    assert not read


def test_a_page_that_cannot_be_read_now_is_no_end_of_its_process() -> None:
    host = Host()
    made = host.made()
    run(host, made, 1, 2)
    host.failing = {77: UnavailableError("input/output error")}
    run(host, made, 12)
    assert made.state.why_not == "input/output error"
    host.failing = {}
    run(host, made, 23)
    assert len(host.out[77]) == PAGES


def test_a_table_that_evicts_between_visits_stops_it_and_status_says_so() -> None:
    host = Host()
    made = host.made()
    for second in range(1, 60):
        host.known = Known("", [TARGET], unknown=second)
        run(host, made, second)
        assert made.state.why_not.startswith("heat does not know all")
    assert not host.out
    run(host, made, *range(60, 90))
    assert made.state.why_not == ""
    assert host.out


def test_ranges_that_are_gone_are_forgotten_unless_their_pages_are_out() -> None:
    host = Host()
    made = host.made()
    for second in range(1, 200):
        moved = WatchedRange(second * PAGE_OUT_PAGES, second * PAGE_OUT_PAGES + 100)
        host.known = Known("", [WatchedTarget(3, 77, (moved,))])
        run(host, made, second)
    assert len(made._visits._chunks) == 1
    run(host, made, 300, 311)
    assert len(host.out[77]) == 100
    host.known = Known("", [TARGET])
    run(host, made, 312)
    assert len(made._visits._chunks) == 3


def test_chunks_beyond_the_bound_are_left_alone_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "PAGE_OUT_CHUNKS", 1)
    host = Host()
    made = host.made()
    run(host, made, 1, 2, 12)
    assert host.out[77] == set(range(10, PAGE_OUT_PAGES))
    assert made.state.left_out == 1
