# SPDX-License-Identifier: Apache-2.0
"""The mover on a fake kernel: what a plan's pages end as, and what it costs."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fake_kernel
from fake_kernel import Run

from tierd.core.migration import Fate

PAGE = 4096
MS = 10**6


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return fake_kernel.build(tmp_path_factory.mktemp("fake_kernel"))


def test_all_pages_arrive_and_are_counted(native: Any) -> None:
    native.lib.fake_reset(1000)
    run = Run(native, list(range(1000)), [1] * 1000)
    assert run.fates() == {"MOVED": 1000}
    assert run.moved_bytes == 1000 * PAGE
    assert run.errors == {}
    assert (run.node == 1).all()


def test_each_call_is_kept_with_its_time_and_pages(native: Any) -> None:
    native.lib.fake_reset(1000)
    run = Run(native, list(range(1000)), [1] * 1000)
    assert len(run.kept) == run.calls > 1
    assert run.kept[:, 1].sum() == 1000
    assert run.kept[:, 0].max() == run.longest_call_ns
    assert (run.kept > 0).all()
    assert run.dropped == 0


def test_calls_beyond_what_is_kept_are_counted(native: Any) -> None:
    """A page takes so long that soon a call is made for 16 pages, the fewest; each is busy once."""
    most = native.lib.TIERD_MOVE_CALLS
    pages = 9 * most
    native.lib.fake_reset(20 * MS)
    for page in range(pages):
        native.lib.fake_page(page, 0, 1, 0)
    run = Run(native, list(range(pages)), [1] * pages)
    assert len(run.kept) == most < run.calls
    assert run.dropped == run.calls - most


def test_a_page_that_is_there_costs_no_move(native: Any) -> None:
    native.lib.fake_reset(1000)
    run = Run(native, [0, 1, 2], [0, 0, 0])
    assert run.fates() == {"ALREADY_THERE": 3}
    assert run.moved_bytes == 0
    assert run.calls == 0


@pytest.mark.parametrize("source", [1, -1, 2])
def test_a_plan_that_is_out_of_date_moves_nothing_twice(native: Any, source: int) -> None:
    native.lib.fake_reset(1000)
    run = Run(native, list(range(500)), [0] * 500, source=[source] * 500)
    assert run.fates() == {"ALREADY_THERE": 500}
    assert run.moved_bytes == 0


def test_pages_that_are_gone_are_found_without_being_looked_for(native: Any) -> None:
    native.lib.fake_reset(1000)
    for page in range(1, 500, 50):
        native.lib.fake_page(page, 0, 0, errno.ENOENT)
    run = Run(native, list(range(500)), [1] * 500)
    assert run.fates() == {"MOVED": 490, "GONE": 10}
    assert run.moved_bytes == 490 * PAGE


def test_pages_that_khugepaged_joined_stay_and_are_told_of(native: Any) -> None:
    """Moving one would move its 2 MiB; where they are is looked at, not taken from the plan."""
    native.lib.fake_reset(1000)
    for page in range(512, 1024):
        native.lib.fake_page(page, 2, 0, 0)
    native.lib.fake_join(512)
    page = [*range(500, 520), 2000]
    run = Run(native, page, [1] * len(page), source=[0] * len(page))
    assert run.fates() == {"MOVED": 13, "JOINED": 8}
    assert (run.fate[12:20] == Fate.JOINED).all()
    assert run.node.tolist() == [1] * 12 + [2] * 8 + [1]
    assert run.moved_bytes == 13 * PAGE
    assert run.errors == {}
    assert native.lib.fake_scans() == 3


def test_a_kernel_that_cannot_tell_of_joined_pages_moves_as_planned(native: Any) -> None:
    native.lib.fake_reset(1000)
    native.lib.fake_no_scan()
    assert Run(native, list(range(40)), [1] * 40).fates() == {"MOVED": 40}


def test_the_rest_of_a_queue_in_which_a_page_was_busy_has_moved(native: Any) -> None:
    """The kernel leaves all statuses of such a queue untouched."""
    native.lib.fake_reset(1000)
    native.lib.fake_page(500, 0, 1000, 0)
    run = Run(native, list(range(1000)), [1] * 1000, retries=2)
    assert run.fates() == {"MOVED": 999, "BUSY": 1}
    assert run.fate[500] == Fate.BUSY
    assert run.node[500] == 0
    assert run.errors == {errno.EBUSY: 1}
    assert run.retries == 2
    assert run.moved_bytes == 999 * PAGE


def test_a_busy_page_moves_when_it_is_let_go_in_time(native: Any) -> None:
    native.lib.fake_reset(1000)
    native.lib.fake_page(3, 0, 2, 0)
    run = Run(native, list(range(10)), [1] * 10, retries=3)
    assert run.fates() == {"MOVED": 10}
    assert run.errors == {}
    assert run.retries == 2


def test_a_busy_page_behind_a_refused_one_stops_neither(native: Any) -> None:
    native.lib.fake_reset(1000)
    native.lib.fake_page(2, 0, 100, 0)
    native.lib.fake_page(5, 0, 0, errno.EACCES)
    native.lib.fake_page(7, 0, 0, errno.ENOENT)
    run = Run(native, list(range(10)), [1] * 10, retries=1)
    assert run.fates() == {"MOVED": 7, "BUSY": 1, "GONE": 1, "REFUSED": 1}
    assert run.errors == {errno.EBUSY: 1, errno.EACCES: 1, errno.ENOENT: 1}


def test_destinations_that_alternate_each_get_their_pages(native: Any) -> None:
    native.lib.fake_reset(1000)
    native.lib.fake_page(4, 0, 1, 0)
    dest = [1 + each % 3 for each in range(99)]
    run = Run(native, list(range(99)), dest)
    assert run.fates() == {"MOVED": 99}
    assert run.node.tolist() == dest


def test_a_full_node_takes_what_fits(native: Any) -> None:
    native.lib.fake_reset(1000)
    native.lib.fake_room(1, 100)
    run = Run(native, list(range(3000)), [1] * 3000)
    assert run.fates() == {"MOVED": 100, "NO_ROOM": 2900}
    assert run.errors == {errno.ENOMEM: 2900}
    assert run.calls <= 4


def test_a_full_node_is_tried_again_when_something_left_it(native: Any) -> None:
    native.lib.fake_reset(1000)
    native.lib.fake_room(1, 0)
    for page in range(3000, 3100):
        native.lib.fake_page(page, 1, 0, 0)
    pages = [*range(3000), *range(3000, 3100), *range(3100, 3200)]
    dest = [1] * 3000 + [2] * 100 + [1] * 100
    run = Run(native, pages, dest)
    assert (run.fate[3000:3100] == Fate.MOVED).all()
    assert (run.fate[3100:] == Fate.MOVED).all()


def test_a_node_that_does_not_exist_refuses_only_its_pages(native: Any) -> None:
    native.lib.fake_reset(1000)
    run = Run(native, list(range(30)), [1] * 10 + [99] * 10 + [2] * 10)
    assert run.fates() == {"MOVED": 20, "REFUSED": 10}
    assert run.errors == {errno.ENODEV: 10}


def test_a_process_that_ends_takes_its_pages_with_it(native: Any) -> None:
    native.lib.fake_reset(20_000)
    native.lib.fake_exit_at(native.lib.fake_now() + 30 * MS)
    run = Run(native, list(range(10_000)), [1] * 10_000)
    assert set(run.fates()) == {"MOVED", "GONE"}
    assert set(run.errors) <= {errno.ESRCH, errno.EINVAL}


def test_a_call_is_planned_to_be_short(native: Any) -> None:
    """A stop comes through within 100 ms because no call takes nearly that long."""
    native.lib.fake_reset(50_000)
    run = Run(native, list(range(10_000)), [1] * 10_000)
    assert run.longest_call_ns < 60 * MS


@pytest.mark.parametrize("rate", [10**12, 5 << 20])
def test_a_stop_leaves_the_rest_untried(native: Any, rate: int) -> None:
    native.lib.fake_reset(20_000)
    run = Run(native, list(range(10_000)), [1] * 10_000, rate=rate, burst=2 << 20, stop_ns=37 * MS)
    assert set(run.fates()) == {"MOVED", "NOT_TRIED"}
    assert run.duration_ns < 100 * MS
    assert (run.node[run.fate == Fate.NOT_TRIED] == -7).all()


def test_a_stop_ends_the_wait_for_busy_pages(native: Any) -> None:
    native.lib.fake_reset(1000)
    native.lib.fake_page(0, 0, 1000, 0)
    run = Run(native, [0, 1], [1, 1], retries=100, stop_ns=300 * MS)
    assert run.fates() == {"BUSY": 1, "MOVED": 1}
    assert run.errors == {errno.EBUSY: 1}
    assert run.duration_ns < 310 * MS


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rate=st.integers(1 << 20, 1 << 30),
    burst=st.integers(2 << 20, 32 << 20),
    page_ns=st.integers(200, 50_000),
)
def test_no_window_holds_more_than_rate_and_burst_allow(
    native: Any, rate: int, burst: int, page_ns: int
) -> None:
    native.lib.fake_reset(page_ns)
    n = 12_000
    run = Run(native, list(range(n)), [1] * n, rate=rate, burst=burst)
    assert run.fates() == {"MOVED": n}
    when = np.zeros(65536, np.uint64)
    what = np.zeros(65536, np.uint64)
    ffi = native.ffi
    events = native.lib.fake_log(
        ffi.from_buffer("uint64_t[]", when), ffi.from_buffer("uint64_t[]", what)
    )
    time_ns = when[:events].astype(np.float64)
    # bytes in any window [a, b] <= rate * (b - a) + burst  <=>  the excess over the rate
    # never rises by more than burst.
    before = np.arange(events) * float(PAGE) - rate * time_ns / 1e9
    after = before + PAGE
    assert (after - np.minimum.accumulate(before)).max() <= burst + 2 * PAGE


def test_the_rate_is_reached(native: Any) -> None:
    native.lib.fake_reset(1000)
    n = 16_000
    rate, burst = 100 << 20, 4 << 20
    run = Run(native, list(range(n)), [1] * n, rate=rate, burst=burst)
    assert run.duration_ns == pytest.approx((n * PAGE - burst) / rate * 1e9, rel=0.05)


def test_the_cpu_share_is_kept_beyond_what_ten_seconds_leave_over(native: Any) -> None:
    native.lib.fake_reset(10_000)
    share, left_over_s = 0.005, 10.0
    run = Run(native, list(range(10_000)), [1] * 10_000, cpu_share=share)
    assert run.fates() == {"MOVED": 10_000}
    cpu_s, duration_s = run.cpu_ns / 1e9, run.duration_ns / 1e9
    assert cpu_s > share * left_over_s
    assert cpu_s < 1.1 * share * (duration_s + left_over_s)


def test_a_short_job_is_done_at_once_within_the_cpu_share(native: Any) -> None:
    native.lib.fake_reset(10_000)
    run = Run(native, list(range(10_000)), [1] * 10_000, cpu_share=0.2)
    assert run.fates() == {"MOVED": 10_000}
    assert run.duration_ns < 2 * run.cpu_ns


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_is_told_is_what_the_kernel_did(native: Any, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 40))
    native.lib.fake_reset(1000)
    kinds = data.draw(
        st.lists(
            st.sampled_from(["ok", "busy1", "stuck", "shared", "gone"]), min_size=n, max_size=n
        )
    )
    dest = data.draw(st.lists(st.sampled_from([0, 1, 2, 9]), min_size=n, max_size=n))
    native.lib.fake_room(2, data.draw(st.integers(0, 20)))
    traits = {
        "ok": (0, 0),
        "busy1": (1, 0),
        "stuck": (1000, 0),
        "shared": (0, errno.EACCES),
        "gone": (0, errno.ENOENT),
    }
    for page, kind in enumerate(kinds):
        native.lib.fake_page(page, 0, *traits[kind])
    run = Run(native, list(range(n)), dest)
    assert Fate.NOT_TRIED not in run.fate
    assert Fate.FAILED not in run.fate
    for page, kind in enumerate(kinds):
        fate, node = Fate(run.fate[page]), native.lib.fake_node(page)
        assert (fate == Fate.MOVED) == (node != 0)
        if fate == Fate.MOVED:
            assert node == dest[page] == run.node[page]
        if kind == "gone":
            assert fate == Fate.GONE
        elif dest[page] == 0:
            assert fate == Fate.ALREADY_THERE
        elif dest[page] == 9:
            assert fate == Fate.REFUSED
        elif kind == "shared":
            assert fate in (Fate.REFUSED, Fate.NO_ROOM)
        elif kind == "stuck":
            assert fate in (Fate.BUSY, Fate.NO_ROOM)
        elif dest[page] == 1:
            assert fate == Fate.MOVED
        else:
            assert fate in (Fate.MOVED, Fate.NO_ROOM)
    failed = sum(int((run.fate == each).sum()) for each in (3, 4, 5, 6, 7))
    assert sum(run.errors.values()) == failed
    assert run.moved_bytes == int((run.fate == Fate.MOVED).sum()) * PAGE
