# SPDX-License-Identifier: Apache-2.0
"""How much of the fast node is free.

Owns: the memory that is taken away from it.
Must not touch: methods, workloads, other processes' pages.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from pathlib import Path

import memory

ROUGHLY = 2 << 20
NEAR = 64 << 10
_HUGE = 2 << 20
_TRIES = 32
_SET_MEMPOLICY, _PREFERRED, _BIND = 238, 1, 2

_libc = ctypes.CDLL(None, use_errno=True)
_locked: list[mmap.mmap] = []
_POOL = Path(f"/sys/devices/system/node/node{memory.FAST}/hugepages/hugepages-2048kB/nr_hugepages")


def free_bytes() -> int:
    """Free memory of the fast node, the counts of the CPU included."""
    Path("/proc/sys/vm/stat_refresh").write_text("1")
    told = Path(f"/sys/devices/system/node/node{memory.FAST}/meminfo").read_text()
    for line in told.splitlines():
        if "MemFree:" in line:
            return int(line.split()[-2]) * 1024
    raise LookupError("the fast node tells no MemFree")


def release() -> None:
    """Take nothing any more."""
    _locked.clear()
    _POOL.write_text("0")


def leave_about(wanted: int) -> int:
    """Take memory away until about `wanted` bytes are free, or give back; free bytes then.

    Huge pages of the kernel's pool take it: nothing migrates, swaps or reclaims them. They
    stay from one cell to the next.
    """
    _locked.clear()
    for _ in range(4):
        more = (free_bytes() - wanted) // _HUGE
        if abs(more) <= ROUGHLY // _HUGE:
            break
        _POOL.write_text(str(max(0, int(_POOL.read_text()) + more)))
    return free_bytes()


def leave_exactly(wanted: int) -> int:
    """Take memory away, or give back, until `wanted` bytes are free; free bytes then.

    Locked memory of this process takes it; what it lacks the pool of huge pages gives back. It is
    not done at once: page tables take some too, and the kernel holds some back where no count
    tells.

    Raises:
        RuntimeError: the kernel's count does not come near.
    """
    for _ in range(_TRIES):
        more = free_bytes() - wanted
        if abs(more) <= NEAR:
            break
        if more > 0:
            _locked.append(_lock(more // memory.PAGE * memory.PAGE))
        elif _locked:
            left = len(_locked[-1]) + more // memory.PAGE * memory.PAGE
            if left > 0:
                _locked[-1].resize(left)
            else:
                _locked.pop()
        elif (pool := int(_POOL.read_text())) > 0:
            # The workload took more of the node than was foreseen.
            _POOL.write_text(str(max(0, pool - math.ceil(-more / _HUGE))))
    free = free_bytes()
    if abs(free - wanted) > NEAR:
        raise RuntimeError(f"{free} bytes of the fast node are free, not {wanted}")
    return free


def _lock(size: int) -> mmap.mmap:
    """Memory of this process that stays on the fast node."""
    mask = ctypes.c_ulong(1 << memory.FAST)
    _libc.syscall(_SET_MEMPOLICY, _BIND, ctypes.byref(mask), 64)
    try:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        taken = mmap.mmap(-1, size, flags=flags)
        held = ctypes.c_char.from_buffer(taken)
        _libc.mlock(ctypes.c_void_p(ctypes.addressof(held)), ctypes.c_size_t(size))
        del held
    finally:
        mask = ctypes.c_ulong(1 << memory.SLOW)
        _libc.syscall(_SET_MEMPOLICY, _PREFERRED, ctypes.byref(mask), 64)
    return taken
