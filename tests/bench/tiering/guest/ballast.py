# SPDX-License-Identifier: Apache-2.0
"""How much of a node is free: of the fast one, if no other is named."""

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
_locked: dict[int, list[mmap.mmap]] = {}
_NODES = Path("/sys/devices/system/node")


def _pool(node: int) -> Path:
    return _NODES / f"node{node}/hugepages/hugepages-2048kB/nr_hugepages"


def free_bytes(node: int = memory.FAST) -> int:
    """Free memory of a node, the counts of the CPU included."""
    Path("/proc/sys/vm/stat_refresh").write_text("1")
    for line in (_NODES / f"node{node}/meminfo").read_text().splitlines():
        if "MemFree:" in line:
            return int(line.split()[-2]) * 1024
    raise LookupError(f"node {node} tells no MemFree")


def release() -> None:
    """Take nothing any more."""
    _locked.clear()
    _pool(memory.FAST).write_text("0")


def leave_about(wanted: int, node: int = memory.FAST) -> int:
    """Take memory away until about `wanted` bytes are free, or give back; free bytes then.

    Huge pages of the kernel's pool take it: nothing migrates, swaps or reclaims them. They
    stay from one cell to the next.
    """
    _locked.pop(node, None)
    pool = _pool(node)
    for _ in range(4):
        more = (free_bytes(node) - wanted) // _HUGE
        if abs(more) <= ROUGHLY // _HUGE:
            break
        pool.write_text(str(max(0, int(pool.read_text()) + more)))
    return free_bytes(node)


def leave_exactly(
    wanted: int, node: int = memory.FAST, home: int = memory.SLOW, near: int = NEAR
) -> int:
    """Take memory away, or give back, until `wanted` bytes are free; free bytes then.

    Locked memory of this process takes it; what it lacks the pool of huge pages gives back. It is
    not done at once: page tables take some too, and the kernel holds some back where no count
    tells. What this process allocates afterwards is on `home` if it can be.

    Raises:
        RuntimeError: the kernel's count does not come near.
    """
    locked = _locked.setdefault(node, [])
    for trial in range(_TRIES):
        # Others are at work, and need some now and then: once near is near enough. What is given
        # back may go to a CPU's list each time, which MemFree leaves out: half as near will do then
        free = free_bytes(node)
        more = free - wanted
        if abs(more) <= (near if trial < _TRIES // 2 else 2 * near):
            return free
        if more > 0:
            locked.append(_lock(more // memory.PAGE * memory.PAGE, node, home))
        elif locked:
            left = len(locked[-1]) + more // memory.PAGE * memory.PAGE
            if left > 0:
                locked[-1].resize(left)
            else:
                locked.pop()
        elif (huge := int(_pool(node).read_text())) > 0:
            # The workload took more of the node than was foreseen.
            _pool(node).write_text(str(max(0, huge - math.ceil(-more / _HUGE))))
    raise RuntimeError(f"{free_bytes(node)} bytes of node {node} are free, not {wanted}")


def _lock(size: int, node: int, home: int) -> mmap.mmap:
    """Memory of this process that stays on a node."""
    mask = ctypes.c_ulong(1 << node)
    _libc.syscall(_SET_MEMPOLICY, _BIND, ctypes.byref(mask), 64)
    try:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        taken = mmap.mmap(-1, size, flags=flags)
        held = ctypes.c_char.from_buffer(taken)
        _libc.mlock(ctypes.c_void_p(ctypes.addressof(held)), ctypes.c_size_t(size))
        del held
    finally:
        mask = ctypes.c_ulong(1 << home)
        _libc.syscall(_SET_MEMPOLICY, _PREFERRED, ctypes.byref(mask), 64)
    return taken
