# SPDX-License-Identifier: Apache-2.0
"""Present pages and 2 MiB folios from /proc/PID/pagemap and smaps (Linux before 6.7).

These kernels do not say which pages are mapped as 2 MiB. smaps gives the sum for each
mapping (AnonHugePages, ShmemPmdMapped, FilePmdMapped). Only if a mapping's sum is that of
all its wholly present, aligned blocks are these taken for folios; a mapping with some
of each is taken for 4 KiB pages.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from tierd.core import bounds
from tierd.core.linux import PAGEMAP_ENTRY_BYTES, PAGEMAP_PRESENT
from tierd.core.pagekey import HUGE_PAGES, PAGE_SHIFT, BoolArray, U64Array

_HUGE_FIELDS: Final = ("AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:")


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs [start, end) of present 4 KiB page numbers, uint64[n], bool[n] whether huge."""

    start: U64Array
    end: U64Array
    huge: BoolArray

    @property
    def pages(self) -> int:
        """4 KiB pages in all runs."""
        return int((self.end - self.start).sum())


def present(fd: int, pid: int, start: int, end: int, max_pages: int) -> tuple[Runs, int]:
    """Present runs in pages [start, end), and where to go on.

    Looks at up to about `max_pages` page table entries, present or not, in whole 2 MiB
    blocks. The zero page counts as present here.

    Raises:
        OSError: the files cannot be read.
    """
    stop = min(end, start + min(max(max_pages, HUGE_PAGES), bounds.PAGEMAP_CHUNK_PAGES))
    if stop < end:
        stop = max(stop // HUGE_PAGES * HUGE_PAGES, min(start + 1, end))
    data = os.pread(fd, (stop - start) * PAGEMAP_ENTRY_BYTES, start * PAGEMAP_ENTRY_BYTES)
    there = (np.frombuffer(data, np.uint64) & np.uint64(PAGEMAP_PRESENT)) != 0
    if len(there) == 0:
        return _runs(start, there, np.zeros(0, np.bool_)), stop
    if len(there) < stop - start:
        there = np.concatenate([there, np.zeros(stop - start - len(there), np.bool_)])
    huge = np.zeros(len(there), np.bool_)
    if there.any():
        for low, high in _huge_mappings(fd, pid, start, stop):
            _mark(huge, there, start, low, high)
    return _runs(start, there, huge), stop


def _runs(start: int, there: BoolArray, huge: BoolArray) -> Runs:
    kind = there.astype(np.int8) + huge.astype(np.int8)
    edge = np.flatnonzero(np.diff(kind, prepend=np.int8(0), append=np.int8(0)))
    low, high = edge[:-1], edge[1:]
    used = there[low] if len(low) else np.zeros(0, np.bool_)
    low, high = low[used], high[used]
    return Runs(
        start=(low + start).astype(np.uint64),
        end=(high + start).astype(np.uint64),
        huge=huge[low] if len(low) else np.zeros(0, np.bool_),
    )


def _full_blocks(there: BoolArray, start: int, low: int, high: int) -> npt.NDArray[np.int64]:
    # Offsets into `there` of the wholly present, aligned blocks of pages [low, high).
    first = max(-(-low // HUGE_PAGES), -(-start // HUGE_PAGES)) * HUGE_PAGES - start
    last = min(high, start + len(there)) // HUGE_PAGES * HUGE_PAGES - start
    if last <= first:
        return np.empty(0, np.int64)
    full = there[first:last].reshape(-1, HUGE_PAGES).all(axis=1)
    return np.flatnonzero(full).astype(np.int64) * HUGE_PAGES + first


def _mark(huge: BoolArray, there: BoolArray, start: int, low: int, high: int) -> None:
    for offset in _full_blocks(there, start, low, high).tolist():
        huge[offset : offset + HUGE_PAGES] = True


def _huge_mappings(fd: int, pid: int, start: int, stop: int) -> list[tuple[int, int]]:
    # Mappings that touch pages [start, stop) and whose full blocks are all huge.
    found: list[tuple[int, int]] = []
    for low, high, huge_pages in _smaps(pid):
        if huge_pages == 0 or high <= start or low >= stop:
            continue
        blocks = 0
        for at in range(low, high, bounds.PAGEMAP_CHUNK_PAGES):
            count = min(bounds.PAGEMAP_CHUNK_PAGES, high - at)
            data = os.pread(fd, count * PAGEMAP_ENTRY_BYTES, at * PAGEMAP_ENTRY_BYTES)
            there = (np.frombuffer(data, np.uint64) & np.uint64(PAGEMAP_PRESENT)) != 0
            blocks += len(_full_blocks(there, at, low, high))
        if blocks * HUGE_PAGES == huge_pages:
            found.append((low, high))
    return found


def _smaps(pid: int) -> list[tuple[int, int, int]]:
    # (first page, end page, 4 KiB pages mapped as 2 MiB) of each mapping.
    mappings: list[tuple[int, int, int]] = []
    with Path(f"/proc/{pid}/smaps").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            name, _, rest = line.partition(" ")
            if not name.endswith(":"):
                low, _, high = name.partition("-")
                mappings.append((int(low, 16) >> PAGE_SHIFT, int(high, 16) >> PAGE_SHIFT, 0))
            elif name in _HUGE_FIELDS and mappings:
                low_page, high_page, pages = mappings[-1]
                pages += int(rest.split()[0]) >> (PAGE_SHIFT - 10)
                mappings[-1] = (low_page, high_page, pages)
    return mappings
