# SPDX-License-Identifier: Apache-2.0
"""Checks of records' fields inside a lab guest: what pages are, and what brief ones leave out."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import guest_kmod as lab
from guest_kmod import Result

from tierd.sources.kmod.netlink import Control
from tierd.sources.kmod.ring import Ring
from tierd.sources.kmod.uapi import PageFlags, ScanFlags

EACH = 512
VPN = np.uint64((1 << 48) - 1)
ASKED = PageFlags.ANON | PageFlags.SHARED | PageFlags.PMD
KINDS = {
    "private": (PageFlags.ANON, 0),
    "shared": (PageFlags.ANON | PageFlags.SHARED, 0),
    "file": (PageFlags(0), 0),
    "huge": (PageFlags.ANON | PageFlags.PMD, 9),
}
"""Flags and order of the folios in each part of the program's memory."""
KINDS_OF_RECORDS = {"whole": ScanFlags(0), "brief": ScanFlags.BRIEF}
"""Flags of the scan."""
PROGRAM = """
import ctypes, json, mmap, os, sys, time
import numpy as np
EACH, COLLAPSE, DEFAULT, BIND = 512, 25, 0, 2
SET_POLICY = {"x86_64": 238, "aarch64": 237}[os.uname().machine]
libc = ctypes.CDLL(None, use_errno=True)
own = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
fd = os.memfd_create("brief")
os.ftruncate(fd, EACH * 4096)
maps = {
    "private": mmap.mmap(-1, EACH * 4096, own),
    "shared": mmap.mmap(-1, EACH * 4096, own),
    "file": mmap.mmap(fd, EACH * 4096, mmap.MAP_SHARED),
    "huge": mmap.mmap(-1, 3 * EACH * 4096, own),
}
pages = {}
for name, each in maps.items():
    each.madvise(mmap.MADV_HUGEPAGE if name == "huge" else mmap.MADV_NOHUGEPAGE)
    if name != "shared":
        each.madvise(mmap.MADV_DONTFORK)
    pages[name] = np.frombuffer(each, np.uint8)[::4096]
first = -(pages["huge"].ctypes.data >> 12) % EACH
pages["huge"] = pages["huge"][first : first + 2 * EACH]
# Every second page is node 1's, and the second one of two that are huge.
for node in (0, 1):
    assert libc.syscall(SET_POLICY, BIND, ctypes.byref(ctypes.c_ulong(1 << node)), 64) == 0
    for name, each in pages.items():
        (each[node * EACH :][:EACH] if name == "huge" else each[node::2])[:] = 1
assert libc.syscall(SET_POLICY, DEFAULT, None, 0) == 0
for n in range(2):
    at = ctypes.c_void_p(pages["huge"].ctypes.data + n * EACH * 4096)
    for _ in range(100):
        if libc.madvise(at, ctypes.c_size_t(EACH * 4096), COLLAPSE) == 0:
            break
        time.sleep(0.1)
    else:
        sys.exit(f"no huge page: {os.strerror(ctypes.get_errno())}")
if not os.fork():
    time.sleep(1000)
print(json.dumps({name: each.ctypes.data >> 12 for name, each in pages.items()}), flush=True)
while True:
    for each in pages.values():
        each.sum()
    time.sleep(0.002)
"""
"""Uses pages on two nodes, of which some are another process', too, some a file's, some huge."""


@contextlib.contextmanager
def program() -> Iterator[tuple[int, dict[str, int]]]:
    """The program: its pid, and the first page of each part."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as work:
        assert work.stdout is not None
        try:
            yield work.pid, json.loads(work.stdout.readline())
        finally:
            os.killpg(work.pid, signal.SIGKILL)


def told_of(records: np.ndarray, first: int, step: int, count: int) -> dict[str, Any]:
    """What records say of `count` folios of `step` pages: their flags and orders, which of them
    are told of, and which not to be on the node that they are on."""
    at = (records["page"] & VPN).astype(np.int64) - first
    ours = (at >= 0) & (at < step * count) & (at % step == 0)
    at, told = at[ours] // step, records[ours]
    return {
        "flags": np.unique(told["flags"] & int(ASKED)).tolist(),
        "orders": np.unique(told["order"]).tolist(),
        "not told of": sorted(set(range(count)) - set(at.tolist())),
        "elsewhere": at[told["node"] != at % 2].tolist(),
    }


def fields(control: Control, ring: Ring, target: int, flags: ScanFlags) -> dict[str, Any]:
    """Parts of which a record said something else than it should, with these flags of the scan.

    `target`: a number that the ring has no records of.
    """
    wrong: dict[str, Any] = {}
    with program() as (pid, first):
        control.scan_set(
            period_us=100_000,
            budget_ppm=500_000,
            hot_scans=1,
            cold_scans=0,
            report_scans=1,
            flags=flags,
            hot_nodes=range(64),
        )
        ranges = [(first[name], first[name] + EACH * (1 + (name == "huge"))) for name in KINDS]
        control.target_add(target, pid, sorted(ranges))
        records = lab.Rounds(ring, target).until(6, 120)
        control.scan_set(hot_nodes=[1])
        lab.drain(ring)
        rounds = control.targets()[0].stats["rounds"]
        beyond = lab.Rounds(ring, target).until(rounds + 3, 120)
        control.target_del(target)
    for name, (known, order) in KINDS.items():
        kept = known & PageFlags.PMD if ScanFlags.BRIEF in flags else known
        folios = (512, 2) if name == "huge" else (1, EACH)
        told = told_of(records, first[name], *folios)
        right = {"flags": [int(kept)], "orders": [order], "not told of": [], "elsewhere": []}
        if told != right:
            wrong[name] = told
    if set(beyond["node"].tolist()) != {1} or len(beyond) != 3 * EACH // 2 + 1:
        wrong["node 1 alone"] = [len(beyond), np.unique(beyond["node"]).tolist()]
    return wrong


def brief() -> Result:
    """Brief records say of nodes what others do, and nothing of what pages are."""
    with lab.module(), lab.tlbtick(), lab.connection() as control, lab.ring() as ring:
        wrong = {
            name: fields(control, ring, target, flags)
            for target, (name, flags) in enumerate(KINDS_OF_RECORDS.items(), 1)
        }
    return {"ok": not any(wrong.values()), "wrong": wrong}


if __name__ == "__main__":
    sys.exit(lab.main({"brief": brief}))
