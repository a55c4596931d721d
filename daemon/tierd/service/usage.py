# SPDX-License-Identifier: Apache-2.0
"""How full the nodes are, read each tick.

Owns: /sys/devices/system/node/nodeN/meminfo and /proc/zoneinfo.
Must not touch: decisions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tierd.pagekey import PAGE_SIZE
from tierd.policy.inputs import NodeUsage

_MEMINFO = re.compile(r"^Node \d+ (MemTotal|MemFree):\s+(\d+) kB$", re.MULTILINE)
_ZONE = re.compile(r"^Node (\d+), zone\s+\S+$|^\s+high\s+(\d+)$|^\s+count:\s+(\d+)$", re.MULTILINE)


def parse_zones(zoneinfo: str) -> tuple[dict[int, int], dict[int, int]]:
    """Two maps from nodes to bytes: the kernel's reserve, and free pages held by CPUs.

    The reserve is what the kernel reclaims below (the sum of zones' high marks). CPUs keep
    lists of free pages that MemFree does not count; since 6.7 they grow to tens of MiB
    while many pages are freed, as moving does, and shrink when the zone gets short.
    """
    reserves: dict[int, int] = {}
    held: dict[int, int] = {}
    node = -1
    for match in _ZONE.finditer(zoneinfo):
        if match[1] is not None:
            node = int(match[1])
            continue
        into, pages = (held, match[3]) if match[3] is not None else (reserves, match[2])
        into[node] = into.get(node, 0) + int(pages) * PAGE_SIZE
    return reserves, held


def parse_meminfo(text: str) -> tuple[int, int] | None:
    """(total, free) bytes of a node's meminfo, or None where it does not say."""
    found = {name: int(kib) * 1024 for name, kib in _MEMINFO.findall(text)}
    if len(found) != 2:
        return None
    return found["MemTotal"], found["MemFree"]


def read_held(root: Path = Path("/")) -> dict[int, int]:
    """Free bytes that CPUs hold on to, by node; empty where the kernel does not tell."""
    try:
        return parse_zones((root / "proc/zoneinfo").read_text())[1]
    except OSError:
        return {}


def read_usage(nodes: Iterable[int], root: Path = Path("/")) -> dict[int, NodeUsage]:
    """How full these nodes are; a node that just went offline is left out."""
    try:
        reserves, held = parse_zones((root / "proc/zoneinfo").read_text())
    except OSError:
        reserves, held = {}, {}
    usage = {}
    for node in nodes:
        try:
            text = (root / f"sys/devices/system/node/node{node}/meminfo").read_text()
        except OSError:
            continue
        figures = parse_meminfo(text)
        if figures is not None:
            total, free = figures
            usage[node] = NodeUsage(total, free + held.get(node, 0), reserves.get(node, 0))
    return usage
