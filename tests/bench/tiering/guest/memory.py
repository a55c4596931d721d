# SPDX-License-Identifier: Apache-2.0
"""The guest's memory: how much is free, what is where, and putting it elsewhere.

Owns: the ballast that leaves a chosen part of the fast node free, a process' page table as
arrays, and move_pages(2) in bulk.
Must not touch: methods, workloads.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

PAGE = 4096
FAST, SLOW = 0, 1
_HUGE = 2 << 20
_SET_MEMPOLICY, _PREFERRED, _BIND = 238, 1, 2
_MOVE_PAGES = 279
_MOVE_ALL = 4
_PRESENT = np.uint64(1 << 63)
_PFN = np.uint64((1 << 55) - 1)

Pages = npt.NDArray[np.uint64]

_libc = ctypes.CDLL(None, use_errno=True)


def default_policy() -> None:
    """For `preexec_fn`: the child's memory comes from where the kernel wants, not from where
    this process' does (the benchmark's own is kept on the slow node)."""
    _libc.syscall(_SET_MEMPOLICY, 0, None, 0)


def free_bytes(node: int) -> int:
    """Free memory of a node."""
    for line in Path(f"/sys/devices/system/node/node{node}/meminfo").read_text().splitlines():
        if "MemFree:" in line:
            return int(line.split()[-2]) * 1024
    raise LookupError(f"node {node} tells no MemFree")


def _pool(node: int) -> Path:
    folder = Path(f"/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB")
    return folder / "nr_hugepages"


def leave_free(wanted: int | None, node: int = FAST) -> int:
    """Take memory of a node away until `wanted` bytes are free (None: give all back).

    Huge pages of the kernel's pool take it: nothing migrates, swaps or reclaims them. What is
    less than one, or for which none can be made any more, is locked memory of this process.

    Returns:
        Free bytes then.
    """
    pool = _pool(node)
    _rest.clear()
    if wanted is None:
        pool.write_text("0")
        return free_bytes(node)
    for _ in range(4):
        more = (free_bytes(node) - wanted) // _HUGE
        if not more:
            break
        pool.write_text(str(max(0, int(pool.read_text()) + more)))
    rest = (free_bytes(node) - wanted) // PAGE * PAGE
    if rest > 0:
        _rest.append(_locked(rest, node))
    return free_bytes(node)


_rest: list[mmap.mmap] = []


def _locked(size: int, node: int) -> mmap.mmap:
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
        mask = ctypes.c_ulong(1 << SLOW)
        _libc.syscall(_SET_MEMPOLICY, _PREFERRED, ctypes.byref(mask), 64)
    return taken


def page_table(pid: int) -> tuple[Pages, Pages]:
    """Present pages of a process' private mappings: virtual page numbers and frames."""
    vpns, pfns = [], []
    with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as file:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, mode, _ = line.split(maxsplit=2)
            start, end = (int(word, 16) // PAGE for word in span.split("-"))
            if mode[3] != "p" or end > 1 << 35:
                continue
            file.seek(start * 8)
            words = np.frombuffer(file.read((end - start) * 8), np.uint64)
            present = np.flatnonzero(words & _PRESENT)
            vpns.append(present.astype(np.uint64) + np.uint64(start))
            pfns.append(words[present] & _PFN)
    return np.concatenate(vpns), np.concatenate(pfns)


def nodes_of(pid: int, vpns: Pages) -> npt.NDArray[np.int32]:
    """Node of each page, negative where the kernel tells an error."""
    return _move_pages(pid, vpns, None)


def move(pid: int, vpns: Pages, node: int) -> int:
    """Move pages to a node; how many are there afterwards."""
    status = _move_pages(pid, vpns, np.full(len(vpns), node, np.int32))
    return int((status == node).sum())


def _move_pages(
    pid: int, vpns: Pages, nodes: npt.NDArray[np.int32] | None
) -> npt.NDArray[np.int32]:
    addresses = np.ascontiguousarray(vpns * np.uint64(PAGE))
    status = np.full(len(vpns), -1, np.int32)
    result = _libc.syscall(
        _MOVE_PAGES,
        ctypes.c_int(pid),
        ctypes.c_ulong(len(vpns)),
        addresses.ctypes.data_as(ctypes.c_void_p),
        None if nodes is None else nodes.ctypes.data_as(ctypes.c_void_p),
        status.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_int(_MOVE_ALL),
    )
    if result < 0:
        error = ctypes.get_errno()
        if error == errno.ENOMEM and nodes is not None:
            return nodes_of(pid, vpns)  # the node was full before all had moved
        raise OSError(error, f"move_pages of {len(vpns)} pages of {pid}: {os.strerror(error)}")
    return status


def place(pid: int, vpns: Pages, fast: npt.NDArray[np.bool_]) -> dict[str, int]:
    """Put the pages of which `fast` is true on the fast node, and the others on the slow one."""
    nodes = nodes_of(pid, vpns)
    down, up = vpns[~fast & (nodes == FAST)], vpns[fast & (nodes == SLOW)]
    return {"down": move(pid, down, SLOW), "up": move(pid, up, FAST)}


def moves() -> dict[str, int]:
    """The kernel's counts of migrated pages since the boot."""
    words = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    names = ("pgpromote_success", "pgmigrate_success", "pgmigrate_fail", "numa_pages_migrated")
    reclaimers = ("kswapd", "direct", "khugepaged")
    demoted = sum(int(words.get(f"pgdemote_{who}", 0)) for who in reclaimers)
    return {name: int(words.get(name, 0)) for name in names} | {"pgdemote": demoted}
