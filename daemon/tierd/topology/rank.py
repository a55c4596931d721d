# SPDX-License-Identifier: Apache-2.0
"""Grouping nodes into tiers and ranking the tiers.

Alike means: the same kind, latencies within 20 %, bandwidths within a factor of 2.
Nodes of DRAM with CPUs are one tier in any case: each is the nearest memory of its own
CPUs, so that moving a page from one to the other is NUMA placement and not tiering.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from tierd.core.overrides import TierOverride
from tierd.core.tiermap import MemoryKind, MemoryNode, Provenance, Quantity, Tier
from tierd.topology.sysfs import LOCAL_DISTANCE

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
        nodes: all nodes with memory.
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
