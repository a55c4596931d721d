# SPDX-License-Identifier: Apache-2.0
"""The Python side of the mover: codes, bounds, and processes that are not there."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tierd._native import ffi, lib
from tierd.core.linux import NO_PIDFD
from tierd.core.migration import Fate, MigrationPlan, SplitFate
from tierd.core.pagekey import HUGE_BYTES
from tierd.migration import DryMover, Mover, NativeMover
from tierd.migration.executor import Processes, tuning_of_mover


def plan(n: int, target: int = 1) -> MigrationPlan:
    """Pages that nobody has: up to 15 are below the lowest address that may be mapped, more are at
    70 TB, between programs and their libraries."""
    first = 1 if n < 16 else 1 << 34
    return MigrationPlan(
        page=np.arange(n, dtype=np.uint64) + np.uint64((target << 48) + first),
        order=np.zeros(n, np.uint8),
        source=np.ones(n, np.int16),
        dest=np.zeros(n, np.int16),
        direction=np.zeros(n, np.uint8),
        heat=np.zeros(n, np.float32),
    )


def test_fates_have_the_same_numbers_in_c() -> None:
    for fate in Fate:
        assert getattr(lib, f"TIERD_{fate.name}") == fate


def test_fates_of_splits_have_the_same_numbers_in_c() -> None:
    for fate in SplitFate:
        assert getattr(lib, f"TIERD_SPLIT_{fate.name}") == fate


def test_both_movers_are_movers() -> None:
    movers: list[Mover] = [DryMover(), NativeMover(rate_bytes_per_s=1)]
    for each in movers:
        each.set_rate(5)
        each.stop()
        each.resume()
        each.forget(1)
        report = each.execute(MigrationPlan.empty(), {})
        assert report.moved_bytes == 0
        each.close()


def test_a_dry_mover_tries_nothing() -> None:
    report = DryMover().execute(plan(5), {1: os.getpid()})
    assert (report.fate == Fate.NOT_TRIED).all()
    assert (report.node == 1).all()
    wanted = replace(MigrationPlan.empty(), split=np.array([512, 1024], np.uint64))
    split = DryMover().execute(wanted, {1: os.getpid()}).split_fate
    assert split.tolist() == [SplitFate.NOT_TRIED] * 2


@pytest.mark.parametrize(
    "options",
    [
        {"rate_bytes_per_s": 0},
        {"rate_bytes_per_s": -5},
        {"rate_bytes_per_s": 1, "busy_retries": -1},
        {"rate_bytes_per_s": 1, "cpu_share": 0.0},
        {"rate_bytes_per_s": 1, "cpu_share": 1.5},
    ],
)
def test_bounds_are_checked(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="mover"):
        NativeMover(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("retries", "share"), [(101, 0.5), (-1, 0.5), (3, 0.0), (3, 1.5)])
def test_limits_are_checked_when_they_change(retries: int, share: float) -> None:
    mover = NativeMover(rate_bytes_per_s=1)
    mover.set_limits(busy_retries=100, cpu_share=1.0)
    with pytest.raises(ValueError, match="mover"):
        mover.set_limits(busy_retries=retries, cpu_share=share)


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="stop"):
        NativeMover(rate_bytes_per_s=1).set_rate(0)


def test_a_huge_folio_always_fits_the_burst() -> None:
    burst, tuning = HUGE_BYTES - 1, tuning_of_mover(ffi)
    assert lib.tierd_mover_new(1, burst, 0, 1.0, tuning, _out()) == -errno.EINVAL
    NativeMover(rate_bytes_per_s=1, burst_bytes=1).close()


def _out() -> object:
    return ffi.new("struct tierd_mover **")


def test_pages_of_an_unknown_target_are_gone() -> None:
    report = NativeMover(rate_bytes_per_s=10**9).execute(plan(10, target=2), {1: os.getpid()})
    assert (report.fate == Fate.GONE).all()
    assert report.errors == {errno.ESRCH: 10}


def test_pages_of_an_ended_process_are_gone() -> None:
    child = subprocess.Popen(["true"])
    mover = NativeMover(rate_bytes_per_s=10**9)
    child.wait()
    report = mover.execute(plan(10), {1: child.pid})
    assert (report.fate == Fate.GONE).all()


def test_a_stopped_mover_tries_nothing_until_resumed() -> None:
    mover = NativeMover(rate_bytes_per_s=10**9)
    mover.stop()
    assert (mover.execute(plan(10), {1: os.getpid()}).fate == Fate.NOT_TRIED).all()
    mover.resume()
    assert (mover.execute(plan(10), {1: os.getpid()}).fate == Fate.GONE).all()


def test_a_target_keeps_its_process_although_the_number_lives_again() -> None:
    processes = Processes()
    child = subprocess.Popen(["true"])
    first = processes.hold({1: child.pid})
    child.wait()
    # The number is free now; what is held still names the process that ended.
    assert processes.hold({1: child.pid}) == first
    processes.forget(child.pid)
    assert processes.hold({1: child.pid}) == [(1, child.pid, NO_PIDFD)]
    processes.close()


def test_no_pidfd_is_left_behind() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    processes = Processes()
    processes.hold({1: os.getpid(), 2: os.getppid()})
    processes.hold({2: os.getppid()})
    processes.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_execute_may_run_on_a_thread_and_be_stopped_from_another() -> None:
    mover = NativeMover(rate_bytes_per_s=10**9)
    results = []
    thread = threading.Thread(
        target=lambda: results.append(mover.execute(plan(100_000), {1: os.getpid()}))
    )
    thread.start()
    mover.stop()
    thread.join(30)
    assert len(results) == 1
    assert set(np.unique(results[0].fate)) <= {Fate.NOT_TRIED, Fate.GONE}
