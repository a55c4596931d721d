# SPDX-License-Identifier: Apache-2.0
"""Steps of scans by idle page tracking, over a kernel that the test plays."""

from __future__ import annotations

import errno
import time
from typing import Any

import numpy as np
import pytest
from idle_kernel import BITMAP, FLAGS, HUGE, IdleKernel, Process

from tierd._native import ffi, lib
from tierd.core.errors import NotAnsweringError
from tierd.sources.idlepage.host import Pagemap, PagemapReads
from tierd.sources.idlepage.native import END, IdleHistories, IdlePages, spans_of
from tierd.sources.kmod.uapi import PageFlags
from tierd.workloads.bounded_reads import BoundedReads

FIRST = 0x4000
BOTH, MARK, CHECK = lib.TIERD_IDLE_BOTH, lib.TIERD_IDLE_MARK, lib.TIERD_IDLE_CHECK


class Scans:
    """Scans of one process of a played kernel."""

    def __init__(
        self,
        kernel: IdleKernel,
        process: Process,
        *ranges: tuple[int, int],
        pages: IdlePages | None = None,
        target: int = 0,
    ) -> None:
        self.pages = pages or IdlePages(BITMAP, FLAGS, kernel.frames, 1 << 20, kernel.calls)
        self.histories, self.reader = IdleHistories(self.pages), self.pages.reader()
        self.spans = spans_of(ranges or [(FIRST, FIRST + 4 * HUGE)])
        self.histories.set_ranges(self.spans)
        self.step = ffi.new("struct tierd_idle_step *")
        self.step.key, self.pagemap = target << 48, kernel.open(process.pid)
        self.step.hot_scans, self.step.cold_scans, self.step.report_scans = 1, 0, 1
        self.scans = self.age = 0

    def read(self, start: int = 0, most: int = 8192) -> int:
        """Read the process's pagemap from a page on."""
        return self.reader.read(self.pagemap, self.spans, start, END, most)

    def one(self, mode: int = BOTH, most: int = 8192) -> dict[int, int]:
        """A whole scan; page number → history of the pages that it reported."""
        step, found = self.step, {}
        step.mode, step.next, step.done = mode, 0, 0
        step.age, step.round = self.age, self.scans + 1
        self.sums = dict.fromkeys(("pages", "accessed", "units", "steady", "newly_idle"), 0)
        self.steps = 0
        while not step.done:
            self.steps += 1
            assert self.read(step.next, most) == 0
            assert self.pages.scan(self.histories, self.reader, step) == 0
            self.records = self.pages.record[: step.records].copy()
            found |= {int(r["page"]) & (1 << 48) - 1: int(r["history"]) for r in self.records}
            self.sums = {name: had + getattr(step, name) for name, had in self.sums.items()}
        if mode != MARK:
            self.histories.sweep(self.scans + 1)
            self.scans += 1
            self.age = min(8, self.age + 1)
        return found


@pytest.fixture(params=[True, False], ids=["pagemap-scan", "pagemap"])
def kernel(request: pytest.FixtureRequest) -> IdleKernel:
    """Linux from 6.7 on, and before."""
    return IdleKernel(scan=request.param)


def scattered(kernel: IdleKernel, count: int, seed: int = 1) -> tuple[Process, np.ndarray]:
    """A process whose pages lie anywhere in memory, and their frames."""
    process = kernel.process(10)
    frames = np.random.default_rng(seed).choice(kernel.frames - 1, count, replace=False) + 1
    kernel.map(process, FIRST, *frames.tolist())
    return process, frames


def test_exactly_the_pages_are_found_that_were_accessed(kernel: IdleKernel) -> None:
    process, frames = scattered(kernel, 700)
    scans = Scans(kernel, process)
    process.touch(*range(FIRST, FIRST + 700))
    assert scans.one() == {}  # of any time before
    for seed in range(4):
        chosen = np.random.default_rng(seed).choice(700, 90, replace=False) + FIRST
        process.touch(*chosen.tolist())
        found = scans.one(most=200)
        assert {page for page, history in found.items() if history & 0x80} == set(chosen)
        assert (scans.sums["pages"], scans.sums["accessed"]) == (700, 90)
    # Reclaim knows of all accesses that were cleared.
    assert kernel.young[frames].all()


def test_a_scan_walks_each_page_once_and_again_if_it_was_accessed(kernel: IdleKernel) -> None:
    process, _ = scattered(kernel, 700)
    scans = Scans(kernel, process)
    scans.one()
    process.touch(*range(FIRST, FIRST + 100))
    before = kernel.walks
    scans.one()
    assert kernel.walks - before == 700 + 100


def test_words_of_the_bitmap_without_pages_of_the_process_are_not_read() -> None:
    kernel = IdleKernel(1 << 18)
    process = kernel.process(10)
    kernel.map(process, FIRST, *range(64 * 3, 64 * 3 + 640), *range(200_000, 200_064))
    scans = Scans(kernel, process)
    scans.one()
    assert scans.pages.stats["read_words"] == 10 + 1
    # Of the bitmap, and of the flags of what was clear, 512 at most a call.
    assert scans.pages.stats["reads"] == 2 + 3
    assert scans.pages.stats["writes"] == 2


def test_nobody_elses_pages_are_marked(kernel: IdleKernel) -> None:
    process, _ = scattered(kernel, 300)
    other = kernel.process(11)
    free = np.setdiff1d(np.arange(1, kernel.frames), list(process.frames.values()))
    kernel.map(other, FIRST, *free[:3000].tolist())
    scans = Scans(kernel, process)
    for _ in range(3):
        scans.one()
    assert not kernel.idle[free].any()


def test_what_is_mapped_as_two_mib_is_one_unit() -> None:
    kernel = IdleKernel()
    process = kernel.process(10)
    kernel.map_huge(process, FIRST, 1024)
    kernel.map_huge(process, FIRST + HUGE, 4096)
    scans = Scans(kernel, process)
    scans.one()
    process.touch(FIRST + 77)
    assert scans.one() == {FIRST: 0x80}
    assert scans.records["flags"][0] == PageFlags.HOT | PageFlags.CHANGED | PageFlags.PMD
    assert scans.records["order"][0] == 9
    assert scans.sums == {
        "pages": 2 * HUGE, "accessed": HUGE, "units": 2, "steady": 0, "newly_idle": 0
    }  # fmt: skip


def test_two_mib_that_are_mapped_as_a_whole_have_a_sampling_interval() -> None:
    kernel = IdleKernel()
    process = kernel.process(10)
    kernel.map_huge(process, FIRST, 1024)
    kernel.map_huge(process, FIRST + HUGE, 4096)
    scans = Scans(kernel, process)
    scans.age = 1
    for turn in range(3):
        process.touch(FIRST)
        scans.one(MARK)
        process.touch(FIRST + HUGE + turn)
        found = scans.one(CHECK)
        assert {page for page, h in found.items() if h & 0x80} == {FIRST + HUGE}
        assert scans.sums["pages"] == 2 * HUGE


def test_a_range_within_two_mib_that_are_mapped_as_a_whole_counts_them_once() -> None:
    kernel = IdleKernel()
    process = kernel.process(10)
    kernel.map_huge(process, FIRST, 1024)
    scans = Scans(kernel, process, (FIRST, FIRST + 100), (FIRST + 200, FIRST + 300))
    scans.one()
    process.touch(FIRST)
    assert scans.one() == {FIRST: 0x80}
    assert scans.sums["pages"] == HUGE


def test_walks_of_the_address_space_are_bounded() -> None:
    """A walk holds its lock. One that ends inside of 2 MiB loses none of it, and sees it once."""
    kernel = IdleKernel(1 << 14)
    process = kernel.process(10)
    kernel.map(process, FIRST, *range(1, 101))
    for block in range(1, 18):
        kernel.map_huge(process, FIRST + block * HUGE, block * HUGE)
    scans = Scans(kernel, process, (FIRST, FIRST + 18 * HUGE))
    scans.one()
    process.touch(*range(FIRST, FIRST + 18 * HUGE, HUGE))
    assert len(scans.one()) == 18
    assert scans.sums["units"] == 100 + 17
    assert scans.sums["pages"] == 100 + 17 * HUGE
    assert max(kernel.walked) <= 8192


def test_a_step_ends_in_a_hole_where_the_kernel_does_not_tell_of_it() -> None:
    kernel = IdleKernel(scan=False)
    process = kernel.process(10)
    far = FIRST + (3 << 18)
    kernel.map(process, FIRST, 7)
    kernel.map(process, far, 9)
    scans = Scans(kernel, process, (FIRST, far + 1))
    scans.one()
    process.touch(FIRST, far)
    before = kernel.calls_made
    assert set(scans.one()) == {FIRST, far}
    assert kernel.calls_made - before < (3 << 18) / 4096 + 20
    assert scans.steps == 4


def test_pages_of_a_larger_folio_are_accessed_when_the_folio_is(kernel: IdleKernel) -> None:
    """Only the first frame has a flag; reading that of another tells nothing."""
    process = kernel.process(10)
    for first in (2048, 3072):
        kernel.folio(first, 16)
    kernel.map(process, FIRST, *range(2048, 2064), *range(3072, 3088), 9, 11)
    scans = Scans(kernel, process)
    scans.one()
    assert scans.one() == {}
    process.touch(FIRST + 5)
    assert scans.one() == dict.fromkeys(range(FIRST, FIRST + 16), 0x80)
    assert {page for page, h in scans.one().items() if h & 0x80} == set()
    # Also where steps end in the middle of it.
    for turn, most in enumerate((3, 7, 15)):
        process.touch(FIRST + 16 * (turn % 2) + 9)
        seen = {page for page, h in scans.one(most=most).items() if h & 0x80}
        assert seen == set(range(FIRST + 16 * (turn % 2), FIRST + 16 * (turn % 2) + 16))


@pytest.mark.parametrize("modes", [(BOTH,), (MARK, CHECK)])
def test_a_folio_whose_first_page_is_not_mapped_is_seen_as_well(
    kernel: IdleKernel, modes: tuple[int, ...]
) -> None:
    process = kernel.process(10)
    kernel.folio(2048, 16)
    kernel.map(process, FIRST, *range(2052, 2064))
    scans = Scans(kernel, process)
    for _ in range(2):
        for mode in modes:
            scans.one(mode)
    assert {page for page, h in scans.one(modes[-1]).items() if h & 0x80} == set()
    process.touch(FIRST + 1)
    for mode in modes:
        found = scans.one(mode)
    # Between marking and checking nothing was accessed; a scan of whole periods has seen it.
    assert len(found) == 12


def test_pages_without_a_flag_are_neither_hot_nor_counted(kernel: IdleKernel) -> None:
    process, frames = scattered(kernel, 100)
    kernel.lru[frames[:30]] = False
    scans = Scans(kernel, process)
    for _ in range(3):
        process.touch(*range(FIRST, FIRST + 30))
        assert scans.one() == {}
    assert scans.sums["pages"] == 70
    assert scans.pages.stats["untracked"] == 3 * 30
    kernel.lru[frames[:30]] = True
    scans.one()
    process.touch(FIRST + 2)
    assert FIRST + 2 in scans.one()


def test_memory_that_goes_off_line_is_not_hot(kernel: IdleKernel) -> None:
    process, frames = scattered(kernel, 100)
    scans = Scans(kernel, process)
    scans.one()
    kernel.online[frames[:40]] = False
    assert scans.one() == {}
    assert scans.pages.stats["untracked"] == 40


def test_frames_behind_the_last_one_end_nothing(kernel: IdleKernel) -> None:
    """Those of a device, and those of the last word, of which the kernel tells no part."""
    kernel.frames -= 13
    process = kernel.process(10)
    kernel.map(process, FIRST, 5, 6, kernel.frames - 1)
    process.frames[FIRST + 3] = kernel.frames + 5000
    scans = Scans(kernel, process)
    scans.one()
    process.touch(FIRST, FIRST + 2, FIRST + 3)
    assert scans.one() == {FIRST: 0x80}


def test_a_shared_page_is_accessed_for_all_that_map_it(kernel: IdleKernel) -> None:
    """Whoever is scanned first takes the flag away from the others."""
    one, other = kernel.process(10), kernel.process(11)
    for process in (one, other):
        kernel.map(process, FIRST, *range(100, 150))
    kernel.map(one, FIRST + 50, 200)
    first = Scans(kernel, one, target=1)
    second = Scans(kernel, other, pages=first.pages, target=2)
    for scans in (first, second):
        scans.one()
    one.touch(FIRST + 3, FIRST + 50)
    other.touch(FIRST + 7)
    assert set(first.one()) == {FIRST + 3, FIRST + 7, FIRST + 50}
    assert set(second.one()) == {FIRST + 3, FIRST + 7}
    for scans in (first, second):
        assert {page for page, h in scans.one().items() if h & 0x80} == set()
    assert first.pages.stats["shared"] == 2 * 3 * 50


def test_one_that_marks_a_shared_page_hides_no_access_from_another(kernel: IdleKernel) -> None:
    one, other = kernel.process(10), kernel.process(11)
    for process in (one, other):
        kernel.map(process, FIRST, *range(100, 150))
    first = Scans(kernel, one, target=1)
    second = Scans(kernel, other, pages=first.pages, target=2)
    first.age = second.age = 1
    first.one(MARK)
    one.touch(FIRST + 3)
    second.one(MARK)
    other.touch(FIRST + 4)
    assert set(first.one(CHECK)) == {FIRST + 3, FIRST + 4}
    assert set(second.one(CHECK)) == {FIRST + 4}


def test_only_accesses_between_marking_and_checking_count(kernel: IdleKernel) -> None:
    process, _ = scattered(kernel, 200)
    scans = Scans(kernel, process)
    scans.age = 1
    process.touch(FIRST + 1)
    scans.one(MARK)
    process.touch(FIRST + 2)
    assert set(scans.one(CHECK)) == {FIRST + 2}
    process.touch(FIRST + 3)
    scans.one(MARK)
    assert {page for page, h in scans.one(CHECK).items() if h & 0x80} == set()


def test_a_page_that_was_away_has_no_history(kernel: IdleKernel) -> None:
    process, frames = scattered(kernel, 600)
    scans = Scans(kernel, process)
    scans.one()
    process.touch(FIRST + 1, FIRST + 550)
    scans.one()
    del process.frames[FIRST + 1]
    assert scans.one() == {FIRST + 550: 0x40}
    process.frames[FIRST + 1] = int(frames[1])
    assert scans.one() == {FIRST + 550: 0x20}
    for vpn in range(FIRST + HUGE, FIRST + 600):
        del process.frames[vpn]
    had = scans.pages.stats["history_bytes"]
    assert scans.one() == {}
    assert 0 < scans.pages.stats["history_bytes"] < had


def test_histories_follow_two_mib_that_are_split_and_joined() -> None:
    kernel = IdleKernel()
    process = kernel.process(10)
    kernel.map_huge(process, FIRST, 1024)
    scans = Scans(kernel, process)
    scans.one()
    process.touch(FIRST)
    scans.one()
    kernel.split(process, FIRST)
    assert scans.one() == dict.fromkeys(range(FIRST, FIRST + HUGE), 0x40)
    process.touch(FIRST + 9)
    scans.one()
    kernel.folio(1024, HUGE)
    process.huge.add(FIRST)
    assert scans.one() == {FIRST: 0x50}


def test_pages_that_stay_hot_come_in_turns_and_others_at_once(kernel: IdleKernel) -> None:
    process, _ = scattered(kernel, 240)
    scans = Scans(kernel, process)
    scans.step.report_scans = 3
    scans.one()
    came = []
    for _ in range(4):
        process.touch(*range(FIRST, FIRST + 240))
        came.append(set(scans.one()))
    assert len(came[0]) == 240
    assert sorted(page for found in came[1:] for page in found) == list(range(FIRST, FIRST + 240))


def test_what_falls_silent_is_counted(kernel: IdleKernel) -> None:
    process, _ = scattered(kernel, 50)
    scans = Scans(kernel, process)
    scans.one()
    for _ in range(3):
        process.touch(*range(FIRST, FIRST + 50))
        scans.one()
    process.touch(*range(FIRST, FIRST + 20))
    scans.one()
    assert (scans.sums["steady"], scans.sums["newly_idle"]) == (50, 30)


def test_nodes_are_told_by_frame(kernel: IdleKernel) -> None:
    process = kernel.process(10)
    kernel.map(process, FIRST, 10, 5000, 20_000, 40_000)
    scans = Scans(kernel, process)
    scans.pages.place([(0, 4096, 0), (4096, 16_384, 3), (32_768, 65_536, 1)])
    scans.one()
    process.touch(*range(FIRST, FIRST + 4))
    scans.one()
    assert scans.records["node"].tolist() == [0, 3, -1, 1]


def test_memory_of_histories_is_bounded_and_what_it_costs_is_counted(kernel: IdleKernel) -> None:
    process = kernel.process(10)
    for block in range(4):
        kernel.map(process, FIRST + block * HUGE, block + 1)
    pages = IdlePages(BITMAP, FLAGS, kernel.frames, 1300, kernel.calls)
    scans = Scans(kernel, process, pages=pages)
    scans.one()
    process.touch(*(FIRST + block * HUGE for block in range(4)))
    assert len(scans.one()) == 2
    assert pages.stats["history_full"] == 2 * 2
    scans.histories.forget()
    assert pages.stats["history_bytes"] == 0


@pytest.mark.parametrize(
    ("spoil", "number"),
    [
        (lambda kernel, process: setattr(process, "alive", False), errno.ESRCH),
        (lambda kernel, process: setattr(kernel, "hidden", True), errno.EPERM),
    ],
)
def test_a_process_that_ended_and_hidden_frames_are_told(
    kernel: IdleKernel, spoil: Any, number: int
) -> None:
    process, _ = scattered(kernel, 10)
    scans = Scans(kernel, process)
    spoil(kernel, process)
    assert scans.read() == -number


def test_a_read_that_was_given_up_changes_nothing_that_others_find(kernel: IdleKernel) -> None:
    process, _ = scattered(kernel, 300)
    stuck = kernel.process(11)
    kernel.map(stuck, FIRST, 1, 2, 3)
    stuck.answers.clear()
    scans, bounded = Scans(kernel, process), BoundedReads(0.25)
    reads = PagemapReads(scans.pages, lambda: 0, bounded)
    given = scans.spans, 0, END, 8192
    with pytest.raises(NotAnsweringError):
        reads.read(Pagemap(11, kernel.open(11)), *given)
    reader, error = reads.read(Pagemap(10, kernel.open(10)), *given)
    stuck.answers.set()
    while bounded.late:
        time.sleep(0.001)
    assert error == 0
    assert scans.pages.scan(scans.histories, reader, scans.step) == 0
    assert scans.step.units == 300
