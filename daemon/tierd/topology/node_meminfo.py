# SPDX-License-Identifier: Apache-2.0
"""How full the nodes are, read each tick."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tierd._native import ffi, lib
from tierd.core.nodes import NodeUsage
from tierd.core.pagekey import PAGE_SIZE

_MOST_NODES: Final = 1 << 10


def read_zones(root: Path = Path("/")) -> tuple[dict[int, int], dict[int, int]]:
    """Two maps from nodes to bytes: the kernel's reserve, and free pages held by CPUs.

    The reserve is what the kernel reclaims below (the sum of zones' high marks). CPUs keep
    lists of free pages that MemFree does not count; since 6.7 they grow to tens of MiB
    while many pages are freed, as moving does, and shrink when the zone gets short.

    Both are empty where the kernel does not tell.
    """
    nodes = ffi.new("struct tierd_node_zones[]", _MOST_NODES)
    found = lib.tierd_zones(f"{root}/proc/zoneinfo".encode(), nodes, _MOST_NODES)
    reserves, held = {}, {}
    for each in nodes[0 : max(0, found)]:
        reserves[each.node] = each.high_pages * PAGE_SIZE
        held[each.node] = each.held_pages * PAGE_SIZE
    return reserves, held


def read_held(root: Path = Path("/")) -> dict[int, int]:
    """Free bytes that CPUs hold on to, by node; empty where the kernel does not tell."""
    return read_zones(root)[1]


def read_usage(nodes: Iterable[int], root: Path = Path("/")) -> dict[int, NodeUsage]:
    """How full these nodes are; a node that just went offline is left out."""
    reserves, held = read_zones(root)
    figures = ffi.new("uint64_t[2]")
    usage = {}
    for node in nodes:
        path = f"{root}/sys/devices/system/node/node{node}/meminfo"
        if lib.tierd_node_memory(path.encode(), figures, figures + 1) == 0:
            total, free = figures
            usage[node] = NodeUsage(total, free + held.get(node, 0), reserves.get(node, 0))
    return usage
