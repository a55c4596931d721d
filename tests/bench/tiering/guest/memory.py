# SPDX-License-Identifier: Apache-2.0
"""A process' memory: what is where, and putting it elsewhere."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

PAGE = 4096
FAST, SLOW = 0, 1
_SET_MEMPOLICY = 238
_MOVE_PAGES = 279
_MOVE_ALL = 4
_TRIES = 4
_PRESENT = np.uint64(1 << 63)
_FILE = np.uint64(1 << 61)
_PFN = np.uint64((1 << 55) - 1)

Pages = npt.NDArray[np.uint64]

_libc = ctypes.CDLL(None, use_errno=True)


def default_policy() -> None:
    """For `preexec_fn`: the child's memory comes from where the kernel wants, not from where
    this process' does (the benchmark's own is kept on the slow node)."""
    _libc.syscall(_SET_MEMPOLICY, 0, None, 0)


def page_table(pid: int) -> tuple[Pages, Pages]:
    """Present pages of a process' own, of no file: virtual page numbers and frames."""
    vpns, pfns = [], []
    with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as file:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, mode, _ = line.split(maxsplit=2)
            start, end = (int(word, 16) // PAGE for word in span.split("-"))
            if mode[3] != "p" or end > 1 << 35:
                continue
            file.seek(start * 8)
            words = np.frombuffer(file.read((end - start) * 8), np.uint64)
            present = np.flatnonzero((words & _PRESENT != 0) & (words & _FILE == 0))
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
    """Put the pages of which `fast` is true on the fast node, and the others on the slow one.

    Returns:
        Pages moved `up` and `down`, and those that are elsewhere still, `left`.

    Raises:
        RuntimeError: more than one in fifty cannot be moved.
    """
    moved = {"down": 0, "up": 0, "left": 0}
    for _ in range(_TRIES):
        nodes = nodes_of(pid, vpns)
        down, up = vpns[~fast & (nodes == FAST)], vpns[fast & (nodes == SLOW)]
        moved["left"] = len(down) + len(up)
        if not moved["left"]:
            return moved
        moved["down"] += move(pid, down, SLOW)
        moved["up"] += move(pid, up, FAST)
    if moved["left"] > len(vpns) // 50:
        raise RuntimeError(f"{len(down)} pages stay on the fast node, {len(up)} on the slow one")
    return moved


def moves() -> dict[str, int]:
    """The kernel's counts of migrated pages since the boot."""
    words = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    names = ("pgpromote_success", "pgmigrate_success", "pgmigrate_fail")
    names += ("numa_pages_migrated", "numa_pte_updates", "numa_hint_faults")
    reclaimers = ("kswapd", "direct", "khugepaged")
    demoted = sum(int(words.get(f"pgdemote_{who}", 0)) for who in reclaimers)
    return {name: int(words.get(name, 0)) for name in names} | {"pgdemote": demoted}
