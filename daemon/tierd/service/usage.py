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
_ZONE = re.compile(r"^Node (\d+), zone\s+(\S+)$|^\s+high\s+(\d+)$", re.MULTILINE)


def parse_reserves(zoneinfo: str) -> dict[int, int]:
    """Node → bytes below which the kernel starts to reclaim (sum of zones' high marks)."""
    reserves: dict[int, int] = {}
    node = -1
    for match in _ZONE.finditer(zoneinfo):
        if match[1] is not None:
            node = int(match[1])
        else:
            reserves[node] = reserves.get(node, 0) + int(match[3]) * PAGE_SIZE
    return reserves


def parse_meminfo(text: str) -> tuple[int, int] | None:
    """(total, free) bytes of a node's meminfo, or None where it does not say."""
    found = {name: int(kib) * 1024 for name, kib in _MEMINFO.findall(text)}
    if len(found) != 2:
        return None
    return found["MemTotal"], found["MemFree"]


def read_usage(nodes: Iterable[int], root: Path = Path("/")) -> dict[int, NodeUsage]:
    """How full these nodes are; a node that just went offline is left out."""
    try:
        reserves = parse_reserves((root / "proc/zoneinfo").read_text())
    except OSError:
        reserves = {}
    usage = {}
    for node in nodes:
        try:
            text = (root / f"sys/devices/system/node/node{node}/meminfo").read_text()
        except OSError:
            continue
        figures = parse_meminfo(text)
        if figures is not None:
            usage[node] = NodeUsage(figures[0], figures[1], reserves.get(node, 0))
    return usage
