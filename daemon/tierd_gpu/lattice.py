# SPDX-License-Identifier: Apache-2.0
"""GPU memory in the words of `TierMap`.

A GPU without coherent memory has no NUMA node; in these maps its memory has the number
`GPU_NODE + index`, so that plans and reports can name it.
"""

from __future__ import annotations

from dataclasses import replace

from tierd.core.tiermap import MemoryKind, MemoryNode, Provenance, Quantity, Tier, TierMap
from tierd_gpu.links import CHUNK_BYTES, GpuTopology

GPU_NODE = 4096
"""Above every NUMA node number of Linux (MAX_NUMNODES is 1024)."""
LINK_LATENCY_NS = {True: 1300.0, False: 1800.0}
"""First byte over NVLink and over PCIe: reference figures, not measured here."""


def node_of(topology: GpuTopology, index: int) -> int:
    """The node number that stands for a GPU's memory."""
    numa = topology.gpus[index].numa_node
    return GPU_NODE + index if numa is None else numa


def _quantity(value: float) -> Quantity:
    return Quantity(value, Provenance.DEFAULT)


def lattice(topology: GpuTopology, home: int, host: TierMap | None = None) -> TierMap:
    """The tiers as GPU `home` sees them: itself, peers by width, then the host's.

    Host tiers keep their order (DRAM before CXL) and get the width of the GPU's host link.
    """
    own = topology.gpus[home]
    groups: list[tuple[str, list[int], float, float]] = [
        ("gpu", [home], own.local_bytes_per_s, own.latency_ns)
    ]
    peers = [gpu.index for gpu in topology.gpus if gpu.index != home]
    widths = sorted({float(topology.bytes_per_s[home, peer]) for peer in peers}, reverse=True)
    for position, width in enumerate(widths):
        members = [p for p in peers if float(topology.bytes_per_s[home, p]) == width]
        nvlink = bool(topology.nvlinks[home, members[0]])
        name = "peer" if position == 0 else f"peer-{position + 1}"
        groups.append((name, members, width, LINK_LATENCY_NS[nvlink]))
    nodes: dict[int, MemoryNode] = {}
    tiers: list[Tier] = []
    for name, members, width, latency in groups:
        numbers = tuple(node_of(topology, member) for member in members)
        for member, number in zip(members, numbers, strict=True):
            gpu = topology.gpus[member]
            nodes[number] = MemoryNode(
                number, gpu.total_bytes, frozenset(), MemoryKind.GPU,
                _quantity(latency), _quantity(width), devices=(gpu.pci_bus,),
            )  # fmt: skip
        size = sum(topology.gpus[member].total_bytes for member in members)
        rate = width * len(members)
        tiers.append(
            Tier(len(tiers), name, MemoryKind.GPU, numbers, size,
                 _quantity(latency), _quantity(rate))
        )  # fmt: skip
    link = float(topology.bytes_per_s[home, -1])
    for tier in host.tiers if host else ():
        if tier.kind is MemoryKind.GPU:
            continue
        nodes.update({number: host.nodes[number] for number in tier.nodes} if host else {})
        latency_ns = _quantity(tier.latency_ns.value + LINK_LATENCY_NS[False])
        width = min(link, tier.bandwidth_bytes_per_s.value)
        tiers.append(
            replace(tier, rank=len(tiers), latency_ns=latency_ns,
                    bandwidth_bytes_per_s=_quantity(width))
        )  # fmt: skip
    return TierMap(tuple(tiers), nodes, notes=topology.notes)


def with_coherent(host: TierMap, topology: GpuTopology) -> TierMap:
    """The host's map with its coherent GPU nodes named as GPU memory.

    A coherent GPU (Grace Hopper) shows its memory as a NUMA node, which the ordinary
    mover serves. In driver mode (CDMM) NVML still names a node and the kernel has none
    with memory there: that is said in the notes, and only managed memory reaches it.
    """
    nodes = dict(host.nodes)
    notes = list(host.notes)
    for gpu in topology.gpus:
        if gpu.numa_node is None:
            continue
        node = nodes.get(gpu.numa_node)
        if node is None or not node.size_bytes:
            notes.append(
                f"GPU {gpu.index}: node {gpu.numa_node} has no memory in the kernel; the driver "
                "keeps it (CDMM), and only managed memory reaches it"
            )
            continue
        nodes[gpu.numa_node] = replace(
            node, kind=MemoryKind.GPU, devices=(*node.devices, gpu.pci_bus)
        )
    kinds = {number: node.kind for number, node in nodes.items()}
    tiers = tuple(
        replace(tier, kind=MemoryKind.GPU)
        if all(kinds.get(number) is MemoryKind.GPU for number in tier.nodes)
        else tier
        for tier in host.tiers
    )
    return TierMap(tiers, nodes, host.differences, tuple(notes))


def chunks_of(topology: GpuTopology, index: int) -> int:
    """Whole chunks that a GPU's memory holds."""
    return topology.gpus[index].total_bytes // CHUNK_BYTES
