# SPDX-License-Identifier: Apache-2.0
"""The kernel's idle page tracking, played by a test: the files' contents and what reading does.

It is no more lenient than mm/page_idle.c, fs/proc/page.c and fs/proc/task_mmu.c: offsets and sizes
are multiples of eight or the call fails, a call moves a page of data at most, only the first frame
of a folio has a flag, and only while it is on an LRU list.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from typing import Any

import numpy as np

from tierd._native import ffi, lib

BITMAP, FLAGS = 1 << 20, (1 << 20) + 1
CALL_BYTES = 4096
HUGE = 512
LRU, HEAD, TAIL, NOPAGE = 1 << 5, 1 << 15, 1 << 16, 1 << 20
PRESENT, EXCLUSIVE = 1 << 63, 1 << 56

PRESENT_CALL = (
    "int64_t(int, uint64_t, uint64_t, uint64_t, struct tierd_region *, size_t, uint64_t *)"
)


class Process:
    """An address space: page number → frame, and which entries were accessed.

    Attributes:
        huge: first pages of 2 MiB that are mapped as a whole, which have one accessed bit.
        error: of reading its pagemap.
        asked: set when its pagemap is read.
        answers: clear while its map lock is held: who reads waits.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.frames: dict[int, int] = {}
        self.accessed: set[int] = set()
        self.huge: set[int] = set()
        self.alive = self.readable = True
        self.error = 0
        self.asked, self.answers = threading.Event(), threading.Event()
        self.answers.set()

    def wait(self) -> None:
        """Wait for the map lock."""
        self.asked.set()
        self.answers.wait()

    def entry(self, vpn: int) -> int:
        """The number of the page whose entry maps this one."""
        head = vpn // HUGE * HUGE
        return head if head in self.huge else vpn

    def touch(self, *pages: int) -> None:
        """Access pages."""
        self.accessed |= {self.entry(vpn) for vpn in pages}


class IdleKernel:
    """Frames, their flags, and the files that tell of them; `calls` is for `IdlePages`.

    Args:
        frames: of memory; the last word of the bitmap may be incomplete.
        scan: whether it has PAGEMAP_SCAN.

    Attributes:
        hidden: whether it hides page frames.
        broken: error of reading the bitmap and the flags.
        open_error: error of opening a pagemap.
    """

    def __init__(self, frames: int = 1 << 16, *, scan: bool = True) -> None:
        self.frames, self.scan = frames, scan
        self.head = np.arange(frames)
        self.lru = np.zeros(frames, bool)
        self.idle = np.zeros(frames, bool)
        self.young = np.zeros(frames, bool)
        self.online = np.ones(frames, bool)
        self.processes: dict[int, Process] = {}
        self.opened: dict[int, Process] = {}
        self.hidden = False
        self.broken = 0
        self.open_error = 0
        self.walks = self.calls_made = 0
        self.walked: list[int] = []
        self._kept = (
            ffi.callback("int64_t(int, void *, size_t, int64_t)", self._read),
            ffi.callback("int64_t(int, const void *, size_t, int64_t)", self._write),
            ffi.callback(
                PRESENT_CALL,
                self._present,
            ),
        )
        self.calls = ffi.new("struct tierd_idle_calls *", self._kept)

    # What a test arranges.
    def process(self, pid: int) -> Process:
        """A new process of this number."""
        self.processes[pid] = Process(pid)
        return self.processes[pid]

    def map(self, process: Process, vpn: int, *frames: int) -> None:
        """Map pages from `vpn` on to these frames, each a folio of its own unless one is made."""
        for offset, pfn in enumerate(frames):
            process.frames[vpn + offset] = pfn
            self.lru[self.head[pfn]] = True

    def folio(self, first: int, pages: int) -> None:
        """Make frames one folio."""
        self.head[first : first + pages] = first
        self.lru[first + 1 : first + pages] = False

    def map_huge(self, process: Process, vpn: int, first: int) -> None:
        """Map 2 MiB as a whole."""
        self.folio(first, HUGE)
        self.map(process, vpn, *range(first, first + HUGE))
        process.huge.add(vpn)

    def split(self, process: Process, vpn: int) -> None:
        """Split what is mapped as a whole; its parts take over its flags."""
        process.huge.discard(vpn)
        first = process.frames[vpn]
        self.head[first : first + HUGE] = np.arange(first, first + HUGE)
        for flags in (self.lru, self.idle, self.young):
            flags[first : first + HUGE] = flags[first]

    def open(self, pid: int) -> int:
        """Open a pagemap, as /proc/PID/pagemap."""
        process = self.processes.get(pid)
        if process is None:
            raise FileNotFoundError(pid)
        if self.open_error:
            raise OSError(self.open_error, os.strerror(self.open_error))
        if not process.readable:
            raise PermissionError(errno.EACCES, "Permission denied")
        fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)  # It is closed as a file is.
        self.opened[fd] = process
        return fd

    # What the kernel does.
    def _mappings(self) -> dict[int, list[tuple[Process, int]]]:
        """First frame of a folio → all entries that map it."""
        found: dict[int, list[tuple[Process, int]]] = {}
        for process in self.processes.values():
            for vpn, pfn in process.frames.items():
                if pfn < self.frames:
                    mapped = process, process.entry(vpn)
                    found.setdefault(int(self.head[pfn]), []).append(mapped)
        return found

    def _clear_refs(self, pfn: int, mappings: dict[int, list[tuple[Process, int]]]) -> None:
        self.walks += 1
        for process, entry in mappings.get(pfn, ()):
            if entry in process.accessed:
                process.accessed.discard(entry)
                self.idle[pfn], self.young[pfn] = False, True

    def _tracked(self, pfn: int) -> bool:
        return bool(self.online[pfn] and self.head[pfn] == pfn and self.lru[pfn])

    def _read(self, fd: int, to: Any, size: int, offset: int) -> int:
        self.calls_made += 1
        if size % 8 or offset % 8:
            return -errno.EINVAL
        if fd in self.opened:
            self.opened[fd].wait()
        error = self.opened[fd].error if fd in self.opened else self.broken
        if error:
            return -error
        if fd == BITMAP:
            words = self._read_bitmap(offset // 8, min(size, CALL_BYTES) // 8)
        elif fd == FLAGS:
            words = [self._flags(pfn) for pfn in self._frames(offset // 8, size // 8)]
        else:
            words = self._read_pagemap(self.opened[fd], offset // 8, size // 8)
        data = np.array(words, np.uint64).tobytes()
        ffi.memmove(to, data, len(data))
        return len(data)

    def _frames(self, first: int, count: int) -> range:
        return range(min(first, self.frames), min(first + count, self.frames))

    def _read_bitmap(self, first: int, count: int) -> list[int]:
        words: list[int] = []
        word, mappings = 0, self._mappings()
        for pfn in self._frames(first * 64, count * 64):
            if self._tracked(pfn) and self.idle[pfn]:
                self._clear_refs(pfn, mappings)
                word |= int(self.idle[pfn]) << pfn % 64
            if pfn % 64 == 63:
                words.append(word)
                word = 0
        return words

    def _flags(self, pfn: int) -> int:
        if not self.online[pfn]:
            return NOPAGE
        head = int(self.head[pfn])
        tail = head != pfn
        large = tail or (pfn + 1 < self.frames and self.head[pfn + 1] == pfn)
        flags = LRU if self.lru[head] else 0
        return flags | (TAIL if tail else HEAD if large else 0)

    def _read_pagemap(self, process: Process, first: int, count: int) -> list[int]:
        if not process.alive:
            return []
        mapped = Counter(pfn for each in self.processes.values() for pfn in each.frames.values())
        return [self._entry(process, vpn, mapped) for vpn in range(first, first + count)]

    def _entry(self, process: Process, vpn: int, mapped: Counter[int]) -> int:
        pfn = process.frames.get(vpn)
        if pfn is None:
            return 0
        flags = PRESENT | (EXCLUSIVE if mapped[pfn] == 1 else 0)
        return flags | (0 if self.hidden else pfn)

    def _write(self, fd: int, source: Any, size: int, offset: int) -> int:
        self.calls_made += 1
        assert fd == BITMAP
        if size % 8 or offset % 8:
            return -errno.EINVAL
        if offset * 8 >= self.frames:
            return -errno.ENXIO
        size = min(size, CALL_BYTES)
        words = np.frombuffer(ffi.buffer(source, size), np.uint64)
        mappings = self._mappings()
        for pfn in self._frames(offset * 8, size * 8):
            word = int(words[pfn // 64 - offset // 8])
            if word >> pfn % 64 & 1 and self._tracked(pfn):
                self._clear_refs(pfn, mappings)
                self.idle[pfn] = True
        return size

    def _present(self, *given: Any) -> int:
        fd, start, end, pages, region, most, at = given
        process, found, last = self.opened[fd], 0, None
        if not self.scan:
            return -errno.ENOTTY
        process.wait()
        if process.error:
            return -process.error
        at[0] = end
        if not process.alive:
            return 0  # As 6.18 does; 6.12 returns ESRCH.
        inside = sorted(v for v in process.frames if start >> 12 <= v < end >> 12)
        self.walked.append(min(pages, len(inside)))
        if len(inside) > pages:
            at[0] = (inside[pages - 1] + 1) << 12
        for vpn in inside[:pages]:
            huge = process.entry(vpn) in process.huge
            if last == (vpn - 1, huge):
                region[found - 1].end = (vpn + 1) << 12
            elif found == most:
                at[0] = vpn << 12
                break
            else:
                region[found].start, region[found].end = vpn << 12, (vpn + 1) << 12
                region[found].categories = lib.TIERD_PAGE_HUGE if huge else 0
                found += 1
            last = (vpn, huge)
        return found
