# SPDX-License-Identifier: Apache-2.0
"""Where paged-out memory goes: swap devices, whether they compress, and what a fault costs."""

from __future__ import annotations

import mmap
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tierd._native import lib
from tierd.core.linux import PAGEMAP_ENTRY_BYTES, PAGEMAP_SWAPPED
from tierd.core.pagekey import PAGE_SIZE

SWAPS: Final = "proc/swaps"
ZSWAP: Final = "sys/module/zswap/parameters/enabled"
VMSTAT: Final = "proc/vmstat"
SWAPPED_IN: Final = ("pswpin", "zswpin")
TRIED_PAGES: Final = 64
"""Own pages that are paged out to measure a fault."""


@dataclass(frozen=True, slots=True)
class SwapDevice:
    """A line of /proc/swaps; `compressed`: a zram device, which keeps pages in memory."""

    name: str
    size_bytes: int
    used_bytes: int
    priority: int
    compressed: bool


def read_swaps(root: Path = Path("/")) -> list[SwapDevice]:
    """Swap devices and files in the order in which the kernel uses them."""
    try:
        lines = (root / SWAPS).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines[1:]:
        name, *rest = line.rsplit(None, 4)
        if len(rest) == 4 and all(each.lstrip("-").isdecimal() for each in rest[1:]):
            size, used, priority = map(int, rest[1:])
            compressed = Path(name).name.startswith("zram")
            found.append(SwapDevice(name, size << 10, used << 10, priority, compressed))
    return sorted(found, key=lambda each: -each.priority)


def swapped_in(root: Path = Path("/")) -> int:
    """Pages that all processes have read back from swap since the host's start."""
    found = 0
    for line in (root / VMSTAT).read_text(encoding="ascii").splitlines():
        name, _, count = line.partition(" ")
        if name in SWAPPED_IN:
            found += int(count)
    return found


def space(compressed_only: bool, root: Path = Path("/")) -> tuple[int, str]:
    """Bytes that can be paged out, and why there are none.

    With `compressed_only`, what the kernel would use next has to compress in memory: zram, or any
    device behind zswap.
    """
    devices = read_swaps(root)
    free = [each for each in devices if each.used_bytes < each.size_bytes]
    if not free:
        return 0, "there is no swap" if not devices else "swap is full"
    if compressed_only and not (free[0].compressed or _zswap(root)):
        return 0, f"{free[0].name} does not compress in memory, and zswap is off"
    usable = [each for each in free if not compressed_only or _zswap(root) or each.compressed]
    return sum(each.size_bytes - each.used_bytes for each in usable), ""


def _zswap(root: Path) -> bool:
    try:
        return (root / ZSWAP).read_text(encoding="ascii").strip() in ("Y", "1")
    except OSError:
        return False


def fault_seconds() -> float | None:
    """The median time of a fault on a page that was paged out, s; None where none could be.

    Own pages, half of which is random, are paged out and read again.
    """
    with mmap.mmap(-1, TRIED_PAGES * PAGE_SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for page in range(TRIED_PAGES):
            at = page * PAGE_SIZE
            memory[at : at + PAGE_SIZE // 2] = os.urandom(PAGE_SIZE // 2)
        try:
            memory.madvise(lib.TIERD_ADVICE_PAGE_OUT)
        except OSError:
            return None
        out = [page for page in range(TRIED_PAGES) if _swapped(memory, page)]
        took = []
        for page in out[::2]:  # the kernel may read the next ones along with a page
            begun = time.perf_counter_ns()
            _ = memory[page * PAGE_SIZE]
            took.append(time.perf_counter_ns() - begun)
    return statistics.median(took) / 1e9 if len(took) >= TRIED_PAGES // 8 else None


def _swapped(memory: mmap.mmap, page: int) -> bool:
    from tierd._native import ffi

    first = int(ffi.cast("uintptr_t", ffi.from_buffer(memory))) // PAGE_SIZE
    with Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
        pagemap.seek((first + page) * PAGEMAP_ENTRY_BYTES)
        entry = int.from_bytes(pagemap.read(PAGEMAP_ENTRY_BYTES), "little")
    return bool(entry & PAGEMAP_SWAPPED)
