# SPDX-License-Identifier: Apache-2.0
"""How full the nodes are, read each tick.

Owns: /sys/devices/system/node/nodeN/meminfo and /proc/zoneinfo.
Must not touch: decisions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tierd.meminfo import parse_meminfo
from tierd.pagekey import PAGE_SIZE
from tierd.policy.inputs import NodeUsage

_PIECE = 1 << 16


def parse_zones(zoneinfo: str) -> tuple[dict[int, int], dict[int, int]]:
    """Two maps from nodes to bytes: the kernel's reserve, and free pages held by CPUs.

    The reserve is what the kernel reclaims below (the sum of zones' high marks). CPUs keep
    lists of free pages that MemFree does not count; since 6.7 they grow to tens of MiB
    while many pages are freed, as moving does, and shrink when the zone gets short.
    """
    reserves: dict[int, int] = {}
    held: dict[int, int] = {}
    # Zones are pages of text of which a few lines count, and this is read several times a second.
    for zone in f"\n{zoneinfo}".split("\nNode ")[1:]:
        node = int(zone.partition(",")[0])
        for into, name in ((reserves, " high "), (held, " count:")):
            for value in zone.split(name)[1:]:
                into[node] = into.get(node, 0) + int(value.partition("\n")[0]) * PAGE_SIZE
    return reserves, held


def _read(path: str) -> str:
    """A file of the kernel's, whole; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, _PIECE):
            parts.append(part)
        return b"".join(parts).decode()
    finally:
        os.close(descriptor)


def read_held(root: Path = Path("/")) -> dict[int, int]:
    """Free bytes that CPUs hold on to, by node; empty where the kernel does not tell."""
    try:
        return parse_zones(_read(f"{root}/proc/zoneinfo"))[1]
    except OSError:
        return {}


def read_usage(nodes: Iterable[int], root: Path = Path("/")) -> dict[int, NodeUsage]:
    """How full these nodes are; a node that just went offline is left out."""
    try:
        reserves, held = parse_zones(_read(f"{root}/proc/zoneinfo"))
    except OSError:
        reserves, held = {}, {}
    usage = {}
    for node in nodes:
        try:
            text = _read(f"{root}/sys/devices/system/node/node{node}/meminfo")
        except OSError:
            continue
        figures = parse_meminfo(text)
        if figures is not None:
            total, free = figures
            usage[node] = NodeUsage(total, free + held.get(node, 0), reserves.get(node, 0))
    return usage
