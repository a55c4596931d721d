# SPDX-License-Identifier: Apache-2.0
"""Reading the host's topology to a `TierMap`: nodes are grouped into tiers, and the tiers ranked.

Alike means: the same kind, latencies within 20 %, bandwidths within a factor of 2.
Nodes of DRAM with CPUs are one tier in any case: each is the nearest memory of its own
CPUs, so that moving a page from one to the other is NUMA placement and not tiering.

Source of the kernel's tiers, which are compared: memory_tierN/nodelist below
/sys/devices/virtual/memory_tiering (Documentation/ABI/testing/sysfs-kernel-mm-memory-tiers);
a smaller N is a faster tier.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Final

from tierd.core.errors import ConfigError
from tierd.core.overrides import TierOverride, TopologyOverrides
from tierd.core.tiermap import (
    ExcludedNode,
    MemoryKind,
    MemoryNode,
    Provenance,
    Quantity,
    Tier,
    TierMap,
)
from tierd.topology.figures import Evidence, build_nodes
from tierd.topology.firmware import read_access, read_devices
from tierd.topology.gpu_nodes import GpuNode, read_gpu_nodes
from tierd.topology.sysfs import LOCAL_DISTANCE, SysTree, read_nodes

ALIKE_LATENCY: Final = 1.2
ALIKE_BANDWIDTH: Final = 2.0
_KIND_ORDER: Final = tuple(MemoryKind)
"""Between tiers of equal latency: DRAM first, so that HBM never ends above it by chance."""
_PROVENANCE_ORDER: Final = tuple(Provenance)


def rank_tiers(
    nodes: Mapping[int, MemoryNode], overrides: Sequence[TierOverride] = ()
) -> tuple[tuple[Tier, ...], tuple[str, ...]]:
    """Rank the nodes, and note what was assumed.

    Args:
        overrides: tiers that the operator put together; the other nodes are grouped here.

    Returns:
        Tiers by rank; those of the operator keep their order among themselves.
    """
    notes: list[str] = []
    wanted = _configured(nodes, overrides, notes)
    taken = {number for override in overrides for number in override.nodes}
    used = {override.name for override in overrides}
    for group in _alike([node for n, node in nodes.items() if n not in taken], notes):
        kind = _main_kind(group)
        name = _free_name(kind, used)
        used.add(name)
        tier = _tier(name, kind, group)
        place = next((i for i, t in enumerate(wanted) if _order(t) > _order(tier)), len(wanted))
        wanted.insert(place, tier)
    ranked = tuple(dataclasses.replace(tier, rank=rank) for rank, tier in enumerate(wanted))
    return ranked, tuple(notes)


def _configured(
    nodes: Mapping[int, MemoryNode], overrides: Sequence[TierOverride], notes: list[str]
) -> list[Tier]:
    """The operator's tiers in the operator's order, fastest first.

    A tier that is no farther than the one before it (the memory of another socket, which
    stands in for CXL) gets the latency that the CPUs of the tier before it see.
    """
    tiers: list[Tier] = []
    for override in overrides:
        group = [nodes[n] for n in sorted(override.nodes) if n in nodes]
        absent = [n for n in sorted(override.nodes) if n not in nodes]
        if absent:
            notes.append(
                f"tier {override.name}: no memory on node {', '.join(map(str, absent))} now"
            )
        if not group:
            continue
        tier = _tier(override.name, override.kind or _main_kind(group), group)
        if tiers and tier.latency_ns.value <= tiers[-1].latency_ns.value:
            tier = _seen_from(tiers[-1], tier, nodes, notes)
        tiers.append(tier)
    return tiers


def _seen_from(near: Tier, tier: Tier, nodes: Mapping[int, MemoryNode], notes: list[str]) -> Tier:
    known = (Provenance.CONFIG, Provenance.MEASURED)
    distances = [
        nodes[one].distances[other]
        for one in near.nodes
        for other in tier.nodes
        if other in nodes[one].distances
    ]
    value = near.latency_ns.value * min(distances, default=LOCAL_DISTANCE) / LOCAL_DISTANCE
    if tier.latency_ns.provenance in known or value <= near.latency_ns.value:
        notes.append(
            f"tier {tier.name} ({tier.latency_ns.value:.0f} ns) is configured below {near.name} "
            f"({near.latency_ns.value:.0f} ns) but is not farther: nothing is promoted from it"
        )
        return tier
    notes.append(
        f"tier {tier.name}: latency estimated from distance {min(distances)} to tier {near.name}"
    )
    return dataclasses.replace(tier, latency_ns=Quantity(value, Provenance.DISTANCE))


def _alike(nodes: Sequence[MemoryNode], notes: list[str]) -> list[list[MemoryNode]]:
    """Group nodes; each group is compared with its nearest member."""
    groups: list[list[MemoryNode]] = []
    with_cpus = [n for n in nodes if n.cpus and n.kind is MemoryKind.DRAM]
    if with_cpus:
        groups.append(sorted(with_cpus, key=_node_order))
        low, high = (f(n.latency_ns.value for n in with_cpus) for f in (min, max))
        if high > ALIKE_LATENCY * low:
            notes.append(
                f"nodes with CPUs differ in latency ({low:.0f} to {high:.0f} ns) and are one "
                "tier all the same: each is the nearest memory of its own CPUs"
            )
    for node in sorted((n for n in nodes if n not in with_cpus), key=_node_order):
        for group in groups:
            if _fits(group[0], node):
                group.append(node)
                break
        else:
            groups.append([node])
    return groups


def _fits(head: MemoryNode, node: MemoryNode) -> bool:
    return (
        head.kind is node.kind
        and _near(head.latency_ns, node.latency_ns, ALIKE_LATENCY)
        and _near(head.bandwidth_bytes_per_s, node.bandwidth_bytes_per_s, ALIKE_BANDWIDTH)
    )


def _near(one: Quantity, other: Quantity, factor: float) -> bool:
    """Within `factor`; a reference figure is no evidence of a difference."""
    if Provenance.DEFAULT in (one.provenance, other.provenance):
        return True
    low, high = sorted((one.value, other.value))
    return high <= factor * low


def _node_order(node: MemoryNode) -> tuple[bool, float, int]:
    """Nearest first; nodes of which nothing is known last, so that they lead no group."""
    unknown = node.latency_ns.provenance is Provenance.DEFAULT
    return unknown, node.latency_ns.value, node.node


def _order(tier: Tier) -> tuple[float, int, int]:
    return tier.latency_ns.value, _KIND_ORDER.index(tier.kind), tier.nodes[0]


def _main_kind(group: Sequence[MemoryNode]) -> MemoryKind:
    """The kind of the nearest node (they differ only in tiers from the configuration)."""
    return min(group, key=_node_order).kind


def _free_name(kind: MemoryKind, used: set[str]) -> str:
    if kind.value not in used:
        return kind.value
    number = 2
    while f"{kind.value}-{number}" in used:
        number += 1
    return f"{kind.value}-{number}"


def _tier(name: str, kind: MemoryKind, group: Sequence[MemoryNode]) -> Tier:
    nearest = min(group, key=_node_order)
    provenances = {node.bandwidth_bytes_per_s.provenance for node in group}
    # A sum is as good as its worst part.
    worst = max(provenances, key=_PROVENANCE_ORDER.index)
    return Tier(
        rank=0,
        name=name,
        kind=kind,
        nodes=tuple(sorted(node.node for node in group)),
        capacity_bytes=sum(node.size_bytes for node in group),
        latency_ns=nearest.latency_ns,
        bandwidth_bytes_per_s=Quantity(
            sum(node.bandwidth_bytes_per_s.value for node in group), worst
        ),
    )


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
        ConfigError: the overrides contradict themselves, name nodes that cannot be, or
            exclude all.
    """
    tree = SysTree(root)
    overrides = overrides or TopologyOverrides()
    overrides.check()
    raw = read_nodes(tree)
    overrides.check_nodes(raw.possible, "node", "possible nodes")
    devices = read_devices(tree)
    kernel_tiers, kernel_notes = read_kernel_tiers(tree)
    gpus = read_gpu_nodes(tree, raw, devices)
    model = _MODEL_NAME.search(tree.text("proc/cpuinfo") or "")
    every, figure_notes = build_nodes(
        Evidence(
            memory=raw.memory,
            cpu_only=raw.cpu_only,
            access={number: read_access(tree, number) for number in raw.memory},
            devices=devices,
            kernel_tiers=kernel_tiers,
            cpu_model=model[1] if model else "",
            overrides=overrides.by_node(),
            gpus=gpus.nodes,
        )
    )
    excluded = exclude(every, gpus.nodes, overrides)
    outside = {each.memory.node for each in excluded}
    nodes = {number: node for number, node in every.items() if number not in outside}
    tiers, rank_notes = rank_tiers(nodes, _without(overrides.tiers, outside))
    return TierMap(
        tiers=tiers,
        nodes=nodes,
        differences=differences(tiers, nodes),
        notes=(
            *raw.notes,
            *devices.notes,
            *gpus.notes,
            *kernel_notes,
            *figure_notes,
            *rank_notes,
        ),
        excluded=excluded,
    )


def exclude(
    nodes: Mapping[int, MemoryNode], gpus: Mapping[int, GpuNode], overrides: TopologyOverrides
) -> tuple[ExcludedNode, ...]:
    """The nodes that are in no tier, by number.

    Raises:
        ConfigError: those are all nodes with memory.
    """
    found: list[ExcludedNode] = []
    for number, node in sorted(nodes.items()):
        if number in overrides.exclude:
            found.append(ExcludedNode(node, "excluded by topology.exclude"))
        elif node.kind is MemoryKind.GPU and overrides.gpu_nodes == "exclude":
            whose = gpus[number].whose if number in gpus else "memory of a GPU by topology.nodes"
            found.append(ExcludedNode(node, f"{whose}, excluded by topology.gpu_nodes"))
    if found and len(found) == len(nodes):
        raise ConfigError(
            "topology.exclude" if overrides.exclude else "topology.gpu_nodes",
            "this excludes all nodes with memory",
            hint="leave one with CPUs",
        )
    return tuple(found)


def _without(tiers: Sequence[TierOverride], excluded: set[int]) -> list[TierOverride]:
    """The operator's tiers without excluded nodes; those of nothing else are not there."""
    kept = ((tier, tuple(n for n in tier.nodes if n not in excluded)) for tier in tiers)
    return [dataclasses.replace(tier, nodes=nodes) for tier, nodes in kept if nodes]


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
        found += _disorder(upper, lower, known)
    return tuple(found)


def _disorder(upper: Tier, lower: Tier, known: Mapping[int, int]) -> list[str]:
    """A sentence where the kernel does not rank `upper` above `lower`."""
    above = {known[n] for n in upper.nodes if n in known}
    below = {known[n] for n in lower.nodes if n in known}
    if not above or not below:
        return []
    if min(above) > max(below):
        return [
            f"the kernel ranks {_title(lower)} above {_title(upper)} "
            f"(memory_tier{max(below)} against memory_tier{min(above)}): "
            f"its own demotion goes {lower.name} → {upper.name}"
        ]
    if above & below:
        shared = min(above & below)
        return [
            f"{_title(upper)} and {_title(lower)} share the kernel's memory_tier{shared}: "
            "it sees no difference between them"
        ]
    return []


def _title(tier: Tier) -> str:
    return f"{tier.name} ({_node_words(tier.nodes)})"


def _node_words(nodes: Sequence[int]) -> str:
    return ("node " if len(nodes) == 1 else "nodes ") + ", ".join(map(str, nodes))
