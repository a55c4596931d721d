# SPDX-License-Identifier: Apache-2.0
"""Scans by idle page tracking over this kernel's own pagemap and kpageflags.

The bitmap, which this kernel may not have, is the test's: a bit for each frame, cleared by the test
where a page is to look accessed.
"""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from idle_bitmap import BITMAP, Bitmap

from tierd._native import ffi, lib
from tierd.sources.idlepage.native import END, IdleHistories, IdlePages, spans_of

PAGES, HUGE = 4096, 512
LRU, TAIL = 1 << 5, 1 << 16
FRAME = (1 << 55) - 1


def words(name: str, numbers: Iterable[int]) -> np.ndarray:
    """Words of a file in /proc, or of /proc/self."""
    place = Path("/proc/self" if name == "pagemap" else "/proc", name)
    with place.open("rb", buffering=0) as file:
        read = [os.pread(file.fileno(), 8, int(number) * 8) for number in numbers]
    return np.frombuffer(b"".join(read), np.uint64)


@pytest.fixture(params=["small", "huge"])
def memory(request: pytest.FixtureRequest) -> Iterator[tuple[int, np.ndarray]]:
    """First page number and frames of `PAGES` pages of this process."""
    made = mmap.mmap(-1, (PAGES + HUGE) * 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    huge = request.param == "huge"
    made.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
    whole = np.frombuffer(made, np.uint8)
    offset = -(whole.ctypes.data >> 12) % HUGE
    whole[offset * 4096 :][: PAGES * 4096 : 4096] = 1
    first = (whole.ctypes.data >> 12) + offset
    frames = words("pagemap", range(first, first + PAGES)) & np.uint64(FRAME)
    assert frames.all(), "this test needs CAP_SYS_ADMIN"
    yield first, frames
    del whole


@pytest.mark.parametrize("scan", [True, False], ids=["pagemap-scan", "pagemap"])
def test_frames_and_folios_of_this_kernel(memory: tuple[int, np.ndarray], scan: bool) -> None:
    first, frames = memory
    bitmap = Bitmap(scan=scan)
    flags = os.open("/proc/kpageflags", os.O_RDONLY)
    pagemap = os.open("/proc/self/pagemap", os.O_RDONLY)
    try:
        pages = IdlePages(BITMAP, flags, 1 << 24, 1 << 20, bitmap.calls)
        histories, reader = IdleHistories(pages), pages.reader()
        spans = spans_of([(first, first + PAGES)])
        histories.set_ranges(spans)
        about = words("kpageflags", frames)
        tail, on_list = about & np.uint64(TAIL) != 0, about & np.uint64(LRU) != 0
        bitmap.tails = {int(pfn) for pfn in frames[tail]}
        head = np.maximum.accumulate(np.where(tail, 0, np.arange(PAGES)))
        # New pages wait for a list of the kernel's, and have no flag until then.
        usable = np.flatnonzero(on_list & ~tail)
        chosen = np.random.default_rng(3).choice(usable, min(40, len(usable) // 2), replace=False)
        found: set[int] = set()
        for age in (0, 1):
            step = ffi.new("struct tierd_idle_step *")
            step.mode, step.hot_scans, step.report_scans = lib.TIERD_IDLE_BOTH, 1, 1
            step.age, step.round = age, age + 1
            while not step.done:
                assert reader.read(pagemap, spans, step.next, END, 1000) == 0
                assert pages.scan(histories, reader, step) == 0
                for record in pages.record[: step.records]:
                    at = int(record["page"]) - first
                    found |= set(range(at, at + (1 << int(record["order"]))))
            bitmap.idle -= {int(frames[at]) for at in chosen} if age == 0 else set()
        assert found == set(np.flatnonzero(np.isin(head, chosen)).tolist())
        assert bitmap.idle >= {int(pfn) for pfn in frames[chosen]}
    finally:
        os.close(flags)
        os.close(pagemap)


@pytest.mark.parametrize("scan", [True, False], ids=["pagemap-scan", "pagemap"])
def test_a_process_that_has_ended_is_told_from_one_without_pages(scan: bool) -> None:
    bitmap = Bitmap(scan=scan)
    pages = IdlePages(BITMAP, BITMAP, 0, 1 << 20, bitmap.calls)
    # What no process has mapped: the first pages.
    reader, spans = pages.reader(), spans_of([(1, 16)])
    histories, step = IdleHistories(pages), ffi.new("struct tierd_idle_step *")
    step.mode, step.hot_scans, step.report_scans = lib.TIERD_IDLE_MARK, 1, 1
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        pagemap = os.open(f"/proc/{child.pid}/pagemap", os.O_RDONLY)
        assert reader.read(pagemap, spans, 0, END, 1000) == 0
        assert (pages.scan(histories, reader, step), step.units, step.done) == (0, 0, 1)
        child.kill()
    try:
        assert reader.read(pagemap, spans, 0, END, 1000) == -errno.ESRCH
    finally:
        os.close(pagemap)
