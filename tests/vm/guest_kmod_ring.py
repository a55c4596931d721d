# SPDX-License-Identifier: Apache-2.0
"""Checks of rings inside a lab guest: which memory they take, and what never gets into it."""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import guest_kmod as lab
from guest_kmod import Result
from guest_kmod_resolve import Churner

from tierd._native import ffi, lib
from tierd.core.process import keep_only, roomiest_node
from tierd.sources.kmod.ring import Ring
from tierd.sources.kmod.uapi import RECORD, RING_DATA, Kind

PREFERRED = 1


def nodes_of(ring: Ring) -> dict[int, int]:
    """Pages of a ring's mapping by node."""
    memory = np.frombuffer(ring.memory, np.uint8)
    pages = np.arange(0, len(memory), 4096, dtype=np.uint64) + np.uint64(memory.ctypes.data)
    nodes = np.full(len(pages), -1, np.int32)
    del memory
    address, status = ffi.from_buffer("void *[]", pages), ffi.from_buffer("int[]", nodes)
    lib.tierd_move_pages(os.getpid(), len(pages), address, ffi.NULL, status)
    each, counts = np.unique(nodes, return_counts=True)
    return dict(zip(each.tolist(), counts.tolist(), strict=True))


def policy() -> tuple[int, int]:
    """This thread's memory policy: its mode, and the first 64 nodes of its mask."""
    seen = ffi.new("struct tierd_mempolicy *")
    if lib.tierd_mempolicy_prefer(0, seen) != 0:
        raise OSError("no memory policy can be set")
    lib.tierd_mempolicy_restore(seen)
    return int(seen.mode), int(seen.nodes[0])


def placement() -> Result:
    """A ring lies where most is free, whatever this thread's policy is, which stays."""
    roomiest = roomiest_node()
    found: dict[str, dict[int, int]] = {}
    policies: dict[str, tuple[int, int]] = {}
    with lab.module():
        ring = Ring.open()
        found["default"], policies["default"] = nodes_of(ring), policy()
        ring.close()
        before = ffi.new("struct tierd_mempolicy *")
        lib.tierd_mempolicy_prefer(0, before)
        ring = Ring.open()
        found["preferred"], policies["preferred"] = nodes_of(ring), policy()
        ring.close()
        lib.tierd_mempolicy_restore(before)
    policies["after"] = policy()
    return {
        "ok": roomiest == 1
        and all(list(nodes) == [1] for nodes in found.values())
        and policies == {"default": (0, 0), "preferred": (PREFERRED, 1), "after": (0, 0)},
        "roomiest": roomiest,
        "pages": found,
        "policies": policies,
    }


SECONDS, LIMIT_S = 8, 300
POLLS, RECORDS = 100, 10_000
"""So much is read at least, however long a busy host takes for it."""
PAGES = 4000


def spied(frames: np.ndarray) -> dict[str, int]:
    """What a reader without CAP_SYS_ADMIN finds in its ring of frames that are not for its eyes.

    One thread watches all slots, another writes the kind that ends a scan into them, whose word is
    not a frame; the records are read and consumed meanwhile.
    """
    keep_only(("CAP_NET_ADMIN", "CAP_SYS_PTRACE"))
    ring = Ring.open()
    slots = np.frombuffer(ring.memory, RECORD, count=ring.capacity, offset=RING_DATA)
    ended = threading.Event()

    def forge(kinds: np.ndarray) -> None:
        while not ended.is_set():
            kinds[:] = Kind.ROUND

    found = {"polls": 0, "frames_seen": 0, "records": 0, "frames_kept": 0}
    forger = threading.Thread(target=forge, args=(slots["kind"],))
    forger.start()
    begun = time.monotonic()
    while (spent := time.monotonic() - begun) < SECONDS or (
        spent < LIMIT_S and (found["polls"] <= POLLS or found["records"] <= RECORDS)
    ):
        found["polls"] += 1
        found["frames_seen"] += int(np.isin(slots["pfn"], frames).sum())
        records = lab.drain(ring)
        found["records"] += len(records)
        found["frames_kept"] += int(np.isin(records["pfn"], frames).sum())
    ended.set()
    forger.join()
    del forger, slots
    ring.close()
    return found


def secret() -> Result:
    """Frames of pages never get into the ring of a reader that may not know them."""
    with (
        lab.module(ring_records=4096),
        lab.tlbtick(),
        Churner("write", PAGES) as work,
        lab.connection() as control,
        ThreadPoolExecutor(1) as thread,
    ):
        frames = work.frames()
        control.scan_set(period_us=1000, budget_ppm=900_000, hot_scans=1, cold_scans=0)
        control.target_add(1, work.pid, [(work.first_vpn, work.first_vpn + PAGES)])
        # Capabilities are a thread's.
        found = thread.submit(spied, frames[frames != 0]).result()
        stayed = int((work.frames() == frames).sum())
    return {
        "ok": found["frames_seen"] == found["frames_kept"] == 0
        and found["records"] > RECORDS
        and found["polls"] > POLLS
        and stayed > PAGES // 2,
        "stayed": stayed,
        **found,
    }


if __name__ == "__main__":
    sys.exit(lab.main({"placement": placement, "secret": secret}))
