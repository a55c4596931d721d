# SPDX-License-Identifier: Apache-2.0
"""The kernel's own memory tiers, and where they differ from tierd's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final

from tierd.core.tiermap import MemoryNode, Tier
from tierd.topology.sysfs import SysTree

MEMORY_TIERING: Final = "sys/devices/virtual/memory_tiering"
_TIER_NAME: Final = re.compile(r"memory_tier([0-9]+)")


def read_kernel_tiers(tree: SysTree) -> tuple[dict[int, int], tuple[str, ...]]:
    """Node number → N of its memory_tierN, and notes. Empty before Linux 6.1."""
    tiers: dict[int, int] = {}
    notes: list[str] = []
    for name in tree.names(MEMORY_TIERING):
        match = _TIER_NAME.fullmatch(name)
        if match is None:
            continue
        nodes = tree.numbers(f"{MEMORY_TIERING}/{name}/nodelist")
        if nodes is None:
            notes.append(f"the kernel's {name}: nodelist is unreadable")
            continue
        tiers.update(dict.fromkeys(nodes, int(match[1])))
    return tiers, tuple(notes)


def differences(tiers: Sequence[Tier], nodes: Mapping[int, MemoryNode]) -> tuple[str, ...]:
    """One sentence for each place where the kernel's tiers differ from `tiers`."""
    known = {n: node.kernel_tier for n, node in nodes.items() if node.kernel_tier is not None}
    if not known:
        return ()
    found: list[str] = []
    kernel_numbers = sorted(set(known.values()))
    if len(tiers) > 1 and len(kernel_numbers) == 1 and len(known) == len(nodes):
        found.append(
            f"the kernel has all nodes in one tier (memory_tier{kernel_numbers[0]}): "
            "its own demotion and NUMA balancing see no tiers here"
        )
        return tuple(found)
    for tier in tiers:
        split = sorted({known[n] for n in tier.nodes if n in known})
        if len(split) > 1:
            names = ", ".join(f"memory_tier{n}" for n in split)
            found.append(f"{_title(tier)} is one tier here and {names} in the kernel")
        missing = [n for n in tier.nodes if n not in known]
        if missing:
            found.append(f"in no tier of the kernel: {_node_words(missing)} of {tier.name}")
    for upper, lower in combinations(tiers, 2):
        above = {known[n] for n in upper.nodes if n in known}
        below = {known[n] for n in lower.nodes if n in known}
        if not above or not below:
            continue
        if min(above) > max(below):
            found.append(
                f"the kernel ranks {_title(lower)} above {_title(upper)} "
                f"(memory_tier{max(below)} against memory_tier{min(above)}): "
                f"its own demotion goes {lower.name} → {upper.name}"
            )
        elif above & below:
            shared = min(above & below)
            found.append(
                f"{_title(upper)} and {_title(lower)} share the kernel's memory_tier{shared}: "
                "it sees no difference between them"
            )
    return tuple(found)


def _title(tier: Tier) -> str:
    return f"{tier.name} ({_node_words(tier.nodes)})"


def _node_words(nodes: Sequence[int]) -> str:
    return ("node " if len(nodes) == 1 else "nodes ") + ", ".join(map(str, nodes))
