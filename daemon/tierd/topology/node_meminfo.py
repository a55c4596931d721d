# SPDX-License-Identifier: Apache-2.0
"""How full nodes are, read each tick, their memory blocks, and the host's memory counters."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tierd._native import ffi, lib
from tierd.core.linux import NODES
from tierd.core.pagekey import PAGE_SIZE
from tierd.core.tiermap import NodeUsage

VMSTAT: Final = Path("/proc/vmstat")
_MOST_NODES: Final = 1 << 10


def read_vmstat(file: Path = VMSTAT) -> dict[str, int]:
    """The counters of /proc/vmstat."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) == 2}


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


_BLOCK_SIZE: Final = "sys/devices/system/memory/block_size_bytes"


def block_size(root: Path) -> int:
    """Bytes of a block; 128 MiB where the host does not tell."""
    try:
        return int((root / _BLOCK_SIZE).read_text(), 16)
    except (OSError, ValueError):
        return 128 << 20


def memory_blocks(root: Path) -> dict[int, list[int]]:
    """Node → numbers of its memory blocks."""
    found = {}
    for folder in (root / NODES).glob("node[0-9]*"):
        blocks = [
            int(entry.name.removeprefix("memory"))
            for entry in folder.glob("memory[0-9]*")
            if entry.name.removeprefix("memory").isdigit()
        ]
        found[int(folder.name.removeprefix("node"))] = sorted(blocks)
    return found


def node_frames(root: Path) -> list[tuple[int, int, int]]:
    """Page frames [first, end) and their node, ascending and apart.

    A block that has memory of two nodes is listed with both, and left out here.
    """
    owners: dict[int, list[int]] = {}
    for node, blocks in memory_blocks(root).items():
        for block in blocks:
            owners.setdefault(block, []).append(node)
    frames = block_size(root) // PAGE_SIZE
    spans: list[tuple[int, int, int]] = []
    for block, nodes in sorted(owners.items()):
        if len(nodes) > 1:
            continue
        first, end = block * frames, (block + 1) * frames
        if spans and spans[-1][1] == first and spans[-1][2] == nodes[0]:
            spans[-1] = (spans[-1][0], end, nodes[0])
        else:
            spans.append((first, end, nodes[0]))
    return spans
