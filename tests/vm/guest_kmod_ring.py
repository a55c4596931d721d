# SPDX-License-Identifier: Apache-2.0
"""Checks of rings inside a lab guest: which memory they take."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import guest_kmod as lab
from guest_kmod import Result

from tierd._native import ffi, lib
from tierd.core.process import roomiest_node
from tierd.sources.kmod.ring import Ring

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


if __name__ == "__main__":
    sys.exit(lab.main({"placement": placement}))
