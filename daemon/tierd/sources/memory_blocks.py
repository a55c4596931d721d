# SPDX-License-Identifier: Apache-2.0
"""Blocks of memory in sysfs (Documentation/admin-guide/mm/memory-hotplug.rst), by node."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tierd.core.linux import NODES
from tierd.core.pagekey import PAGE_SIZE

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
