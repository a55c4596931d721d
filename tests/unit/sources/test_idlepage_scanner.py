# SPDX-License-Identifier: Apache-2.0
"""The scanner by idle page tracking, step by step: a played kernel, and clocks that a test sets."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from idle_kernel import BITMAP, FLAGS, IdleKernel, Process

from tierd.core.errors import (
    NotAnsweringError,
    SecondMmuError,
    TargetGoneError,
    UnavailableError,
)
from tierd.core.tuning import SCAN
from tierd.sources.idlepage.native import IdlePages
from tierd.sources.idlepage.ring import MemoryRing, RingWriter
from tierd.sources.idlepage.scanner import IdleScanner
from tierd.sources.kmod.uapi import Kind
from tierd.sources.scan_records import summaries
from tierd.workloads.bounded_reads import BoundedReads

FIRST, PAGES = 0x4000, 1000
MS = 1_000_000
WALK_NS = 2000
"""CPU time that the kernel takes here for each page whose mappings it walks."""
STEP_NS = PAGES * WALK_NS
"""That of a step over a whole process, none of which was accessed."""


class Bench:
    """A scanner of processes that have `PAGES` pages each."""

    def __init__(self, wait_s: float = 60) -> None:
        self.kernel = IdleKernel()
        pages = IdlePages(BITMAP, FLAGS, self.kernel.frames, 1 << 20, self.kernel.calls)
        self.writer = RingWriter(1 << 13)
        self.ring: MemoryRing = self.writer.reader()
        self._slept = 10**9
        self.scanner = IdleScanner(
            pages, self.writer, root=Path("/nowhere"), open_pagemap=self.open,
            clock=lambda: self.now, cpu=lambda: self.used,
            bounded=lambda: BoundedReads(wait_s),
        )  # fmt: skip
        self.steps: list[tuple[int, int]] = []
        self.scanner.scan_set(
            period_us=100_000, budget_ppm=1_000_000, hot_scans=1, cold_scans=0, report_scans=1,
            sampling_interval_us=0, flags=8, hot_nodes=range(4),
        )  # fmt: skip

    def open(self, pid: int) -> int:
        return self.kernel.open(pid)

    def process(self, pid: int) -> Process:
        process = self.kernel.process(pid)
        first = 1 + 2000 * len(self.kernel.processes)
        self.kernel.map(process, FIRST, *range(first, first + PAGES))
        return process

    def add(self, number: int, pid: int) -> Process:
        process = self.process(pid)
        self.scanner.target_add(number, pid, [(FIRST, FIRST + PAGES)])
        return process

    @property
    def used(self) -> int:
        """CPU time of the thread, which nothing else takes."""
        return self.kernel.walks * WALK_NS

    @property
    def now(self) -> int:
        return self._slept + self.used

    def until(self, now: int) -> None:
        """Let the thread run until a time; `steps` has when each step began, and its CPU time."""
        while self.now < now:
            begun, used = self.now, self.used
            wait = self.scanner.advance()
            if self.used > used:
                self.steps.append((begun, self.used - used))
            self._slept += max(0, min(now - self.now, wait))

    def stats(self, number: int) -> dict[str, int]:
        (found,) = [dict(t.stats) for t in self.scanner.targets() if t.target == number]
        return found

    def read(self) -> np.ndarray:
        found = np.concatenate([*self.ring.views(), self.ring.views()[0][:0]])
        self.ring.consume(len(found))
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_each_target_is_scanned_once_a_period(bench: Bench) -> None:
    bench.add(1, 10)
    bench.add(2, 11)
    bench.until(bench.now + 950 * MS)
    for number in (1, 2):
        assert bench.stats(number)["rounds"] == 10
        assert bench.stats(number)["period_ns"] == pytest.approx(100 * MS, rel=0.05)
        assert bench.stats(number)["round_pages"] == PAGES


def test_records_and_the_end_of_a_scan_come_through_the_ring(bench: Bench) -> None:
    process = bench.add(3, 10)
    bench.until(bench.now + 50 * MS)
    process.touch(*range(FIRST, FIRST + 40))
    bench.until(bench.now + 100 * MS)
    records = bench.read()
    pages = records[records["kind"] == Kind.PAGE]
    assert sorted(pages["page"]) == [3 << 48 | vpn for vpn in range(FIRST, FIRST + 40)]
    assert [summary.accessed for summary in summaries(records)] == [0, 40]
    assert bench.stats(3)["round_accessed"] == 40


def test_the_descriptor_is_readable_from_the_end_of_a_scan_until_it_is_read(bench: Bench) -> None:
    import select

    def readable() -> bool:
        return bool(select.select([bench.ring.fileno()], [], [], 0)[0])

    bench.add(1, 10)
    assert not readable()
    bench.until(bench.now + 50 * MS)
    assert readable()
    bench.read()
    assert not readable()


def test_the_budget_is_kept_in_every_second(bench: Bench) -> None:
    for number in range(4):
        bench.add(number, 10 + number)
    bench.scanner.scan_set(period_us=1000, budget_ppm=50_000)
    bench.until(bench.now + 20_000 * MS)
    begun, used = np.array(bench.steps).T
    for start in range(bench.steps[0][0], bench.now - 10**9, 10**8):
        inside = used[(begun >= start) & (begun < start + 10**9)].sum()
        assert inside <= 0.05 * 10**9 + 2 * STEP_NS
    assert used.sum() > 0.045 * 20 * 10**9


def test_what_is_marked_is_checked_in_time_whatever_the_budget_has_left(bench: Bench) -> None:
    bench.add(1, 10)
    bench.scanner.scan_set(budget_ppm=1000, sampling_interval_us=20_000)
    bench.until(bench.now + 5000 * MS)
    assert bench.stats(1)["rounds"] >= 1
    assert bench.stats(1)["sampling_interval_ns"] == pytest.approx(20 * MS, rel=0.2)


def test_only_accesses_of_the_sampling_interval_are_seen(bench: Bench) -> None:
    process = bench.add(1, 10)
    bench.scanner.scan_set(sampling_interval_us=20_000)
    process.touch(*range(FIRST, FIRST + 100))
    bench.until(bench.now + 10 * MS)  # marked
    process.touch(*range(FIRST + 200, FIRST + 230))
    bench.until(bench.now + 60 * MS)
    process.touch(*range(FIRST + 300, FIRST + 400))
    bench.until(bench.now + 100 * MS)
    counted = [summary.accessed for summary in summaries(bench.read())]
    assert counted[:2] == [30, 0]


def test_a_quite_different_interval_begins_new_histories(bench: Bench) -> None:
    process = bench.add(1, 10)
    for _ in range(4):
        process.touch(FIRST)
        bench.until(bench.now + 100 * MS)
    bench.read()
    bench.scanner.scan_set(sampling_interval_us=20_000)
    bench.until(bench.now + 150 * MS)
    records = bench.read()
    assert not len(records[records["kind"] == Kind.PAGE])


def test_a_process_that_ended_is_dropped_and_counted(bench: Bench) -> None:
    process = bench.add(1, 10)
    bench.add(2, 11)
    bench.until(bench.now + 50 * MS)
    process.alive = False
    del bench.kernel.processes[10]
    bench.until(bench.now + 300 * MS)
    assert [target.target for target in bench.scanner.targets()] == [2]
    assert bench.scanner.scan_get().stats["targets_gone"] == 1
    with pytest.raises(TargetGoneError):
        bench.scanner.target_set(1, [])
    bench.scanner.target_del(1)


def test_a_program_that_executes_another_is_dropped_and_may_come_again(bench: Bench) -> None:
    old = bench.add(1, 10)
    for _ in range(3):
        old.touch(FIRST)
        bench.until(bench.now + 100 * MS)
    old.alive = False
    bench.until(bench.now + 150 * MS)
    assert bench.scanner.targets() == []
    new = bench.add(1, 10)
    bench.read()
    new.touch(*range(FIRST, FIRST + PAGES))
    bench.until(bench.now + 50 * MS)
    records = bench.read()
    assert not len(records[records["kind"] == Kind.PAGE])
    assert bench.stats(1)["round_pages"] == PAGES


def test_processes_that_are_gone_or_may_not_be_looked_at_are_refused(bench: Bench) -> None:
    with pytest.raises(TargetGoneError):
        bench.scanner.target_add(1, 99, [])
    bench.process(10).readable = False
    with pytest.raises(SecondMmuError, match="Permission denied"):
        bench.scanner.target_add(1, 10, [])
    bench.add(2, 11)
    with pytest.raises(FileExistsError):
        bench.scanner.target_add(2, 11, [])


def test_hidden_frames_end_the_scanner_and_the_reader_is_told(bench: Bench) -> None:
    bench.add(1, 10)
    bench.kernel.hidden = True
    bench.until(bench.now + 50 * MS)
    assert bench.ring.closing
    with pytest.raises(UnavailableError, match="hides page frames"):
        bench.scanner.scan_set(period_us=1000)


def test_a_bitmap_that_cannot_be_read_ends_the_scanner(bench: Bench) -> None:
    bench.add(1, 10)
    bench.kernel.broken = errno.EIO
    bench.until(bench.now + 50 * MS)
    assert bench.ring.closing
    with pytest.raises(UnavailableError, match="idle page tracking: Input/output error"):
        bench.scanner.scan_set(period_us=1000)


def test_a_process_whose_pagemap_fails_is_passed_over_until_it_does_not(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are scanned as ever; its scans begin anew, with new histories."""
    caplog.set_level(logging.INFO)
    failing = bench.add(1, 10)
    bench.add(2, 11)
    failing.touch(FIRST)
    bench.until(bench.now + 250 * MS)
    before, period_ns = bench.stats(1), bench.stats(1)["period_ns"]
    assert before["passed_over"] == 0
    failing.error = errno.ENOMEM
    bench.until(bench.now + 5000 * MS)
    assert bench.scanner.failure is None
    assert bench.stats(1) == before | {"passed_over": 1}
    assert bench.stats(2)["rounds"] == 53
    assert bench.scanner.scan_get().stats["passed_over"] == 1
    reason = "/proc/10/pagemap: Cannot allocate memory"
    assert [record.message for record in caplog.records] == [
        f'event=not_scanned source=idlepage pid=10 reason="{reason}"'
    ]
    bench.read()
    failing.error = 0
    failing.touch(FIRST, FIRST + 1)
    bench.until(bench.now + 1050 * MS)
    assert bench.stats(1)["rounds"] > before["rounds"]
    assert bench.stats(1)["passed_over"] == 0
    # Accesses of the time without scans say nothing, and that time is no scan interval.
    assert Kind.PAGE not in bench.read()["kind"]
    assert bench.stats(1)["period_ns"] == pytest.approx(period_ns, rel=0.1)
    assert caplog.records[-1].message == "event=scanned_again source=idlepage pid=10"


def test_a_process_that_does_not_answer_is_passed_over_until_it_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench(wait_s=0.25)
    stuck = bench.add(1, 10)
    bench.add(2, 11)
    bench.until(bench.now + 250 * MS)
    stuck.answers.clear()
    bench.until(bench.now + 5000 * MS)
    assert bench.stats(1)["passed_over"] == 1
    assert bench.stats(2)["rounds"] == 53
    assert bench.scanner.scan_get().stats["passed_over"] == 1
    assert "event=not_scanned source=idlepage pid=10" in caplog.text
    stuck.answers.set()
    rounds = bench.stats(1)["rounds"]
    while bench.stats(1)["rounds"] == rounds:
        bench.until(bench.now + 1000 * MS)
    assert "event=scanned_again source=idlepage pid=10" in caplog.text


def test_the_number_of_a_process_that_does_not_answer_may_be_anothers(bench: Bench) -> None:
    bench = Bench(wait_s=0.25)
    stuck = bench.add(1, 10)
    stuck.answers.clear()
    bench.until(bench.now + 50 * MS)
    assert bench.stats(1)["passed_over"] == 1
    bench.scanner.target_del(1)
    bench.add(1, 11)
    bench.until(bench.now + 950 * MS)
    assert bench.stats(1)["rounds"] == 10
    stuck.answers.set()


def test_a_pagemap_that_cannot_be_opened_now_is_told_from_one_that_may_not(bench: Bench) -> None:
    bench.process(10)
    bench.kernel.open_error = errno.EMFILE
    with pytest.raises(NotAnsweringError, match="Too many open files"):
        bench.scanner.target_add(1, 10, [])
    bench.kernel.open_error = errno.EPERM
    with pytest.raises(SecondMmuError, match="Operation not permitted"):
        bench.scanner.target_add(1, 10, [])


def test_a_pagemap_whose_opening_waits_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, goes_on = Bench(wait_s=0.25), threading.Event()
    bench.process(10)
    opens = bench.kernel.open
    monkeypatch.setattr(bench.kernel, "open", lambda pid: opens(pid) if goes_on.wait() else -1)
    with pytest.raises(NotAnsweringError):
        bench.scanner.target_add(1, 10, [])
    goes_on.set()
    while not bench.scanner.targets():
        try:
            bench.scanner.target_add(1, 10, [(FIRST, FIRST + PAGES)])
        except NotAnsweringError:
            continue
    bench.until(bench.now + 50 * MS)
    assert bench.stats(1)["round_pages"] == PAGES


def test_a_pagemap_is_closed_when_its_target_is_deleted(bench: Bench) -> None:
    bench.add(1, 10)
    bench.until(bench.now + 50 * MS)
    (pagemap,) = bench.kernel.opened
    os.fstat(pagemap)
    bench.scanner.target_del(1)
    bench.until(bench.now + 50 * MS)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(pagemap)


def asked(bench: Bench, spare: Process) -> list[Callable[[], object]]:
    """All that the loop asks of a scanner."""
    scanner = bench.scanner
    return [
        lambda: scanner.target_set(1, [(FIRST, FIRST + 1)]),
        lambda: scanner.target_add(2, spare.pid, [(FIRST, FIRST + 1)]),
        scanner.targets,
        scanner.scan_get,
        lambda: scanner.scan_set(period_us=1000),
        lambda: scanner.target_del(1),
        scanner.close,
    ]


def test_nothing_that_the_loop_asks_waits_for_a_step(bench: Bench) -> None:
    """And what a step finds of a target that was deleted meanwhile is not reported."""
    process, spare = bench.add(1, 10), bench.process(11)
    process.answers.clear()
    scans = threading.Thread(target=bench.scanner.run)
    scans.start()
    assert process.asked.wait(60)
    for ask in asked(bench, spare):
        loop = threading.Thread(target=ask, daemon=True)
        loop.start()
        loop.join(60)
        assert not loop.is_alive()
    assert scans.is_alive()
    process.answers.set()
    scans.join(60)
    assert not scans.is_alive()
    assert bench.scanner.targets() == []
    assert bench.ring.waiting == 0


def test_a_thread_that_ends_by_an_error_of_ours_tells_the_reader(bench: Bench) -> None:
    bench.add(1, 10)
    bench.scanner.scan_set(report_scans="nonsense")
    with pytest.raises(TypeError):
        bench.scanner.run()
    assert bench.ring.closing
    assert bench.scanner.failure is not None


def test_records_that_find_no_space_are_counted(bench: Bench) -> None:
    process = bench.add(1, 10)
    for _ in range(30):
        process.touch(*range(FIRST, FIRST + PAGES))
        bench.until(bench.now + 100 * MS)
    made = 29 * PAGES + 30
    assert bench.ring.waiting == bench.ring.capacity
    assert bench.ring.dropped == made - bench.ring.capacity
    assert bench.scanner.scan_get().stats["dropped"] == bench.ring.dropped


def test_the_ring_goes_round(bench: Bench) -> None:
    process = bench.add(1, 10)
    for scan in range(40):
        process.touch(*range(FIRST, FIRST + PAGES))
        bench.until(bench.now + 100 * MS)
        assert len(bench.read()) == (PAGES + 1 if scan else 1)
    assert bench.ring.dropped == 0


def test_a_part_takes_no_more_than_a_quarter_of_its_interval_to_mark(bench: Bench) -> None:
    bench.add(1, 10)
    bench.scanner.scan_set(sampling_interval_us=400)
    bench.until(bench.now + 400 * MS)
    # Two steps a part: for a hundred pages at first, as long as nothing is known of what they cost.
    marking_ns = 400_000 * SCAN.idle_marking_fraction
    assert len(bench.steps) >= 2 * PAGES * SCAN.idle_first_ns_per_unit / marking_ns
