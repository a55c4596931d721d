# SPDX-License-Identifier: Apache-2.0
"""A process that changes its address space all the time; the checks run it as a target.

usage: guest_kmod_churn.py {hold,write,guarded,map,huge,fork,exec} PAGES

It prints "ready FIRST_VPN" when its steady area of PAGES pages is there; every page of
that area starts with its own number, and stays as it is. Beside it:
  hold  nothing changes
  write every other page of the steady area is written, in its second word
  guarded as write, but nothing may be written, and all is read, until SIGUSR1 comes
  map   another area is mapped, touched, protected, partly given back and unmapped
  huge  a 2 MiB area is split and collapsed
  fork  children that write to some pages, and end
  exec  the process runs itself again after a while, with a fresh steady area
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import time

import numpy as np

PAGE = 4096
HUGE = 2 << 20
MADV_NOHUGEPAGE, MADV_HUGEPAGE, MADV_COLLAPSE = 15, 14, 25
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
libc = ctypes.CDLL(None, use_errno=True)


def address(area: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(area))


def steady(pages: int) -> mmap.mmap:
    """The area whose pages carry their numbers."""
    area = mmap.mmap(-1, pages * PAGE, PRIVATE)
    area.madvise(MADV_NOHUGEPAGE)
    words = np.frombuffer(area, np.uint64).reshape(pages, PAGE // 8)
    words[:, 0] = np.arange(pages)
    return area


def check(area: mmap.mmap) -> None:
    """Exit with 3 if a page does not carry its number."""
    words = np.frombuffer(area, np.uint64).reshape(-1, PAGE // 8)
    if not np.array_equal(words[:, 0], np.arange(len(words))):
        os._exit(3)


def guard(area: mmap.mmap) -> list[str]:
    """Let nobody write until SIGUSR1 comes, which empties the list."""
    held = ["read-only"]
    start, size = ctypes.c_void_p(address(area)), ctypes.c_size_t(len(area))

    def lift(_number: int, _frame: object) -> None:
        libc.mprotect(start, size, mmap.PROT_READ | mmap.PROT_WRITE)
        held.clear()

    signal.signal(signal.SIGUSR1, lift)
    libc.mprotect(start, size, mmap.PROT_READ)
    return held


def churn_map(pages: int) -> None:
    area = mmap.mmap(-1, pages * PAGE, PRIVATE)
    area[::PAGE] = b"x" * pages
    start = address(area)
    libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(pages * PAGE // 2), mmap.PROT_READ)
    area.madvise(mmap.MADV_DONTNEED, pages * PAGE // 2, pages * PAGE // 4)
    libc.mprotect(
        ctypes.c_void_p(start), ctypes.c_size_t(pages * PAGE // 2), mmap.PROT_READ | mmap.PROT_WRITE
    )
    area[::PAGE] = b"y" * pages
    libc.munmap(ctypes.c_void_p(start + PAGE), ctypes.c_size_t(PAGE))


def churn_huge(area: mmap.mmap, start: int, turn: int) -> None:
    """`area` has a 2 MiB page at `start`: take it apart and put it together."""
    offset = start - address(area)
    area[offset : offset + HUGE : PAGE] = bytes([turn & 0xFF]) * 512
    if turn % 2:
        area.madvise(mmap.MADV_DONTNEED, offset + 7 * PAGE, PAGE)
    else:
        libc.mprotect(ctypes.c_void_p(start + PAGE), ctypes.c_size_t(PAGE), mmap.PROT_READ)
        libc.mprotect(
            ctypes.c_void_p(start + PAGE), ctypes.c_size_t(PAGE), mmap.PROT_READ | mmap.PROT_WRITE
        )
    libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(HUGE), MADV_COLLAPSE)


def churn_fork(area: mmap.mmap) -> None:
    pid = os.fork()
    if not pid:
        words = np.frombuffer(area, np.uint64).reshape(-1, PAGE // 8)
        words[::7, 1] = 1
        os._exit(0)
    os.waitpid(pid, 0)


def main() -> None:
    kind, pages = sys.argv[1], int(sys.argv[2])
    area = steady(pages)
    guards = guard(area) if kind == "guarded" else []
    print("ready", address(area) >> 12, flush=True)
    huge = mmap.mmap(-1, 2 * HUGE, PRIVATE)
    huge.madvise(MADV_HUGEPAGE)
    start = (address(huge) + HUGE - 1) & ~(HUGE - 1)
    for turn in range(1 << 30):
        if kind == "map":
            churn_map(1024)
        elif kind == "huge":
            churn_huge(huge, start, turn)
        elif kind == "fork":
            churn_fork(area)
        elif kind == "guarded" and guards:
            check(area)
            time.sleep(0.01)
        elif kind in ("write", "guarded"):
            area[8 :: 2 * PAGE] = bytes([turn & 0xFF]) * (pages // 2)
            time.sleep(0.01)
        elif kind == "exec" and turn == 20:
            os.execv(sys.executable, [sys.executable, *sys.argv])
        else:
            time.sleep(0.01)
        if turn % 16 == 0:
            check(area)


if __name__ == "__main__":
    main()
