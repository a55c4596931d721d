# SPDX-License-Identifier: Apache-2.0
"""Checks in a lab guest of scans by idle page tracking, on a kernel that has it."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import guest_kmod as lab
from guest_kmod import Result
from guest_kmod_young import referenced

from tierd._native import ffi, lib
from tierd.core import bounds
from tierd.sources.idlepage import host
from tierd.sources.idlepage.native import END, IdleHistories, spans_of
from tierd.sources.idlepage.scanner import IdleScanner
from tierd.sources.idlepage.source import Scanning
from tierd.sources.kmod.ring import Ring

PAGES, FEW, TOUCHED = 8192, 1024, 1000
HUGE = 512
ROOT = Path("/")
THP = Path("/sys/kernel/mm/transparent_hugepage")
VPN = np.uint64((1 << 48) - 1)
PROGRAM = """
import mmap, os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])  # also in the threads of numpy
import numpy as np
kind, pages = sys.argv[1], int(sys.argv[2])
shared = mmap.MAP_SHARED if kind == "shared" else mmap.MAP_PRIVATE
memory = mmap.mmap(-1, (pages + 512) * 4096, shared | mmap.MAP_ANONYMOUS)
if kind != "shared":
    memory.madvise(mmap.MADV_NOHUGEPAGE if kind == "small" else mmap.MADV_HUGEPAGE)
whole = np.frombuffer(memory, np.uint8)
first = -(whole.ctypes.data >> 12) % 512
each = whole[first * 4096 :][: pages * 4096 : 4096]
each[:] = 1
other = os.fork() if kind == "shared" else -1
if other == 0:
    each[:].sum()
print(os.getpid(), (whole.ctypes.data >> 12) + first, flush=True)
while True:
    signal.sigwait([signal.SIGUSR1])
    each[np.fromfile("/tmp/touch", np.int64)] += 1
    print("touched", flush=True)
"""
"""Has pages, and uses those whose numbers stand in a file, once for each signal."""
MOST_OF_A_BUDGET = 1.1
TLB_S = 0.1
"""Clearing accessed bits flushes no TLB: in this time that of the emulator is emptied."""


class Program:
    """A program of `PROGRAM`, of one process or of two that share its memory."""

    def __init__(self, kind: str, pages: int = PAGES) -> None:
        command = [sys.executable, "-c", PROGRAM, kind, str(pages)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.pages = pages
        self.pids = []
        for _ in range(2 if kind == "shared" else 1):
            pid, first = self._line().split()
            self.pids.append(int(pid))
            self.first = int(first)

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def touch(self, pages: np.ndarray, pid: int = 0) -> None:
        """Have these pages used, by one of its processes."""
        pages.astype(np.int64).tofile("/tmp/touch")
        os.kill(pid or self.pids[0], signal.SIGUSR1)
        if self._line() != "touched\n":
            raise RuntimeError("the program ended")

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def scanner(**settings: object) -> Iterator[tuple[IdleScanner, Ring]]:
    """A scanner in its thread, and its ring."""
    scanning = Scanning(ROOT)
    ring = scanning.open_ring(ROOT)
    control = scanning.open_control()
    control.scan_set(**{"budget_ppm": 1_000_000, "hot_scans": 1, "cold_scans": 0, **settings})
    try:
        yield control, ring
    finally:
        control.close()
        scanning.close()
        ring.close()


class Steps:
    """Scans of processes, one after another, when the check says so."""

    def __init__(self, program: Program) -> None:
        self._files = contextlib.ExitStack()
        self.pages = self._files.enter_context(host.idle_pages(ROOT))
        self.program, self.age, self.scans = program, 0, 1
        self.histories, self.reader = [], self.pages.reader()
        self.spans = spans_of([(program.first, program.first + program.pages)])
        self.fds = [host.open_pagemap(pid) for pid in program.pids]
        for _ in program.pids:
            made = IdleHistories(self.pages)
            made.set_ranges(self.spans)
            self.histories.append(made)

    def scan(self, mode: int) -> list[set[int]]:
        """What a scan of each process found accessed, by page of its memory."""
        found = []
        for fd, histories in zip(self.fds, self.histories, strict=True):
            step = ffi.new("struct tierd_idle_step *")
            step.mode, step.hot_scans, step.report_scans = mode, 1, 1
            step.age, step.round = self.age, self.scans
            own: set[int] = set()
            while not step.done:
                assert self.reader.read(fd, self.spans, step.next, END, 4096) == 0
                assert self.pages.scan(histories, self.reader, step) == 0
                records = self.pages.record[: step.records]
                now = records[records["history"] & 0x80 != 0]
                for page, order in zip(now["page"] & VPN, now["order"], strict=True):
                    at = int(page) - self.program.first
                    own |= set(range(at, at + (1 << int(order))))
            found.append(own)
        if mode != lib.TIERD_IDLE_MARK:
            self.age, self.scans = min(8, self.age + 1), self.scans + 1
        return found


def exact(kind: str, modes: tuple[int, ...], *, size: int = 1) -> Result:
    """Scans find the pages that were used, and no other; `size`: pages of a folio."""
    rng = np.random.default_rng(7)
    wrong: list[str] = []
    with Program(kind) as program, lab.tlbtick():
        steps = Steps(program)
        drain_lru()
        steps.scan(lib.TIERD_IDLE_BOTH)
        steps.scan(lib.TIERD_IDLE_BOTH)
        for turn in range(6):
            pages = rng.choice(PAGES, TOUCHED if size == 1 else 3, replace=False)
            if modes[0] == lib.TIERD_IDLE_MARK:
                steps.scan(modes[0])
            time.sleep(TLB_S)
            program.touch(pages, program.pids[turn % len(program.pids)])
            expected = {int(page) // size * size + each for page in pages for each in range(size)}
            for own in steps.scan(modes[-1]):
                if own != expected:
                    wrong.append(f"{len(own - expected)} too many, {len(expected - own)} missing")
        # What was used last is so for reclaim, although scans have cleared its bits.
        young = referenced(program.pids[0], program.first, PAGES)
        stats = steps.pages.stats
    return {"ok": not wrong and young >= len(expected), "wrong": wrong, "young": young, **stats}


def drain_lru() -> None:
    """Put new pages on LRU lists: they wait for that in a list of each CPU."""
    Path("/proc/sys/vm/compact_memory").write_text("1")


def modes() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Scans of whole periods, and with a sampling interval."""
    return (lib.TIERD_IDLE_BOTH,), (lib.TIERD_IDLE_MARK, lib.TIERD_IDLE_CHECK)


def small() -> Result:
    """Pages of 4 KiB."""
    return each_mode("small")


def huge() -> Result:
    """2 MiB that are mapped as a whole."""
    (THP / "enabled").write_text("madvise")
    return each_mode("huge", HUGE)


def folios() -> Result:
    """Folios of 64 KiB, which are mapped by single entries."""
    (THP / "enabled").write_text("madvise")
    small, large = (THP / f"hugepages-{size}kB/enabled" for size in (64, 2048))
    small.write_text("always")
    large.write_text("never")
    try:
        result = each_mode("folios", 16)
    finally:
        small.write_text("never")
        large.write_text("inherit")
    return result | {"ok": result["ok"] and result["whole"]["tails"] > 0}


def shared() -> Result:
    """Memory that two processes share: what one uses both have used."""
    result = each_mode("shared")
    return result | {"ok": result["ok"] and result["whole"]["shared"] > 0}


def each_mode(kind: str, size: int = 1) -> Result:
    """See `exact`."""
    whole, sampled = (exact(kind, each, size=size) for each in modes())
    return {"ok": whole["ok"] and sampled["ok"], "whole": whole, "sampled": sampled}


def budget() -> Result:
    """A scanner that would use all of a CPU has used what it may, by the guest's clock."""
    ppm, told = 100_000, {}
    with (
        Program("small", FEW) as program,
        scanner(period_us=1000, budget_ppm=ppm) as (control, _),
    ):
        control.target_add(3, program.pids[0], [(program.first, program.first + FEW)])
        begun, before = time.monotonic_ns(), control.scan_get().stats["cpu_ns"]
        while control.targets()[0].stats["rounds"] < 5:
            time.sleep(0.5)
        while time.monotonic_ns() - begun < 10 * 10**9:
            time.sleep(0.5)
        used = control.scan_get().stats["cpu_ns"] - before
        seconds = (time.monotonic_ns() - begun) / 1e9
        told = {"rounds": control.targets()[0].stats["rounds"], "in_s": seconds}
    # A step that is under way is paid for afterwards, and what was saved up may be spent.
    most = ppm / 1e6 * (MOST_OF_A_BUDGET * seconds + bounds.IDLE_CREDIT_NS / 1e9)
    return {"ok": used / 1e9 <= most, "used_s": used / 1e9, "most_s": most, **told}


def mishaps() -> Result:
    """Processes end in the middle of scans, and memory of theirs comes and goes."""
    ended = 0
    with scanner(period_us=1000, sampling_interval_us=5000) as (control, ring):
        for number in range(8):
            with Program("small", 2048) as program:
                control.target_add(number, program.pids[0], [(program.first, program.first + 2048)])
                while not control.targets()[-1].stats["rounds"]:
                    time.sleep(0.05)
            end = time.monotonic() + 60
            while control.targets() and time.monotonic() < end:
                time.sleep(0.05)
            ended += not control.targets()
        memory = mmap.mmap(-1, 4096 * 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        first = np.frombuffer(memory, np.uint8).ctypes.data >> 12
        control.target_add(20, os.getpid(), [(first, first + 4096)])
        for _ in range(20):
            memory.seek(0)
            memory.write(bytes(4096 * 4096))
            memory.madvise(mmap.MADV_DONTNEED)
        alive = [each.target for each in control.targets()] == [20] and not ring.closing
        gone = control.scan_get().stats["targets_gone"]
    return {"ok": ended == 8 and gone == 8 and alive, "ended": ended, "gone": gone}


CHECKS = {each.__name__: each for each in (small, huge, folios, shared, budget, mishaps)}

if __name__ == "__main__":
    sys.exit(lab.main(CHECKS))
