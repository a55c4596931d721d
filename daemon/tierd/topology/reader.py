# SPDX-License-Identifier: Apache-2.0
"""Reading the host's topology to a `TierMap`, and where the kernel's own tiers differ from it.

Source of the kernel's tiers: /sys/devices/virtual/memory_tiering/memory_tierN/nodelist
(Documentation/ABI/testing/sysfs-kernel-mm-memory-tiers); a smaller N is a faster tier.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Final

from tierd.core.overrides import TopologyOverrides
from tierd.core.tiermap import MemoryNode, Tier, TierMap
from tierd.topology.figures import Evidence, build_nodes
from tierd.topology.firmware import read_access, read_devices
from tierd.topology.rank import rank_tiers
from tierd.topology.sysfs import SysTree, read_nodes

MEMORY_TIERING: Final = "sys/devices/virtual/memory_tiering"
_TIER_NAME: Final = re.compile(r"memory_tier([0-9]+)")
_MODEL_NAME: Final = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)


def read(root: Path = Path("/"), overrides: TopologyOverrides | None = None) -> TierMap:
    """Read the memory topology of the host, or of a captured tree below `root`.

    Args:
        root: the folder that holds sys/ and proc/.
        overrides: what the operator says about tiers and nodes.

    Raises:
        UnavailableError: there is no readable sysfs and no /proc/meminfo below `root`.
        ConfigError: the overrides contradict themselves or name nodes that cannot be.
    """
    tree = SysTree(root)
    overrides = overrides or TopologyOverrides()
    overrides.check()
    raw = read_nodes(tree)
    overrides.check_nodes(raw.possible)
    devices = read_devices(tree)
    kernel_tiers, kernel_notes = read_kernel_tiers(tree)
    model = _MODEL_NAME.search(tree.text("proc/cpuinfo") or "")
    nodes, figure_notes = build_nodes(
        Evidence(
            memory=raw.memory,
            cpu_only=raw.cpu_only,
            access={number: read_access(tree, number) for number in raw.memory},
            devices=devices,
            kernel_tiers=kernel_tiers,
            cpu_model=model[1] if model else "",
            overrides=overrides.by_node(),
        )
    )
    tiers, rank_notes = rank_tiers(nodes, overrides.tiers)
    return TierMap(
        tiers=tiers,
        nodes=nodes,
        differences=differences(tiers, nodes),
        notes=(*raw.notes, *devices.notes, *kernel_notes, *figure_notes, *rank_notes),
    )


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
