# SPDX-License-Identifier: Apache-2.0
"""Where paged-out memory goes: swap devices, whether they compress, and what a fault costs."""

from __future__ import annotations

import mmap
import os
import resource
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tierd._native import lib
from tierd.core.pagekey import PAGE_SIZE
from tierd.core.tuning import PAGE_OUT
from tierd.topology.node_meminfo import VMSTAT, read_vmstat

SWAPS: Final = "proc/swaps"
ZSWAP: Final = "sys/module/zswap/parameters/enabled"
SWAPPED_IN: Final = ("pswpin", "zswpin")
TRIED_PAGES: Final = 256
"""Own pages that are paged out to measure a fault."""
READ_AHEAD_PAGES: Final = 16
"""Twice the pages that a fault reads by default (vm.page-cluster)."""
LEAST_FAULTS: Final = 4


@dataclass(frozen=True, slots=True)
class SwapDevice:
    """A line of /proc/swaps; `compressed`: a zram device, which keeps pages in memory."""

    name: str
    size_bytes: int
    used_bytes: int
    priority: int
    compressed: bool

    @property
    def free_bytes(self) -> int:
        """What may be used, so that `PAGE_OUT.kept_free` of it is left."""
        return int(self.size_bytes * (1 - PAGE_OUT.kept_free)) - self.used_bytes


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


def swapped_in(file: Path = VMSTAT) -> int:
    """Pages that all processes have read back from swap since the host's start."""
    counters = read_vmstat(file)
    return sum(counters.get(name, 0) for name in SWAPPED_IN)


def space(compressed_only: bool, root: Path = Path("/")) -> tuple[int, str]:
    """Bytes that can be paged out, and why there are none.

    A part of each device is left to the kernel. With `compressed_only`, all devices that the kernel
    would use next have to compress in memory: zram, or any device behind zswap.
    """
    devices = read_swaps(root)
    free = [(each, each.free_bytes) for each in devices if each.free_bytes > 0]
    if not free:
        return 0, "there is no swap" if not devices else "swap is full, but for what is kept free"
    if not compressed_only or _zswap(root):
        return sum(left for _, left in free), ""
    # The kernel takes turns among those of one priority.
    found = 0
    for each, left in free:
        if each.priority != free[0][0].priority:
            break
        if not each.compressed:
            return 0, f"{each.name} does not compress in memory, and zswap is off"
        found += left
    return found, ""


def _zswap(root: Path) -> bool:
    try:
        return (root / ZSWAP).read_text(encoding="ascii").strip() in ("Y", "1")
    except OSError:
        return False


def fault_seconds() -> float | None:
    """The median time of a fault on a page that was paged out, s; None where none could be.

    Own pages, half of which is random, are paged out, and some of them read again: so far apart
    that the kernel's reading ahead does not bring one with another. What was still in the swap
    cache, as its writing to a device had not ended, does not count.
    """
    size = TRIED_PAGES * PAGE_SIZE
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for at in range(0, size, PAGE_SIZE):
            memory[at : at + PAGE_SIZE // 2] = os.urandom(PAGE_SIZE // 2)
        try:
            memory.madvise(lib.TIERD_ADVICE_PAGE_OUT)
        except OSError:
            return None
        took = []
        for at in range(0, size, READ_AHEAD_PAGES * PAGE_SIZE):
            faults, begun = _major_faults(), time.perf_counter_ns()
            _ = memory[at]
            spent = time.perf_counter_ns() - begun
            if _major_faults() > faults:
                took.append(spent)
    return statistics.median(took) / 1e9 if len(took) >= LEAST_FAULTS else None


def _major_faults() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
