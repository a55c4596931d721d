# SPDX-License-Identifier: Apache-2.0
"""From what the host tells to a `MemoryNode`: its kind and its numbers with provenance.

A number is taken from the first of these that has it: configuration, measurement, HMAT, CDAT,
distance, a default for its kind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tierd.core.overrides import NodeOverride
from tierd.core.tiermap import MemoryKind, MemoryNode, Provenance, Quantity
from tierd.topology.firmware import AccessClass, DaxDevice, Devices
from tierd.topology.gpu_nodes import GpuNode
from tierd.topology.sysfs import LOCAL_DISTANCE, RawNode

DEFAULT_LATENCY_NS: Final = {
    MemoryKind.DRAM: 115.0,
    MemoryKind.HBM: 130.0,
    MemoryKind.CXL: 400.0,
    MemoryKind.PMEM: 300.0,
    MemoryKind.GPU: 500.0,
}
"""Reference idle read latencies where nothing is known. DRAM and CXL are the middle of
NeoMem's (118 and 430 ns) and NEMO's (114 and 380 ns) figures; HBM is "as DRAM or a little
more" (Xeon Max, flat mode); PMEM and GPU are orders of magnitude only."""
DEFAULT_BANDWIDTH: Final = {
    MemoryKind.DRAM: 120e9,
    MemoryKind.HBM: 480e9,
    MemoryKind.CXL: 18e9,
    MemoryKind.PMEM: 30e9,
    MemoryKind.GPU: 400e9,
}
"""Reference read bandwidths, bytes per second, from the same sources."""

FAR_LATENCY: Final = 1.5
"""A CPU-less node at this multiple of its DRAM's latency is far memory (CXL)."""
WIDE_BANDWIDTH: Final = 1.5
"""A CPU-less near node with this multiple of its DRAM's bandwidth is HBM."""
_HBM_CPU_WORDS: Final = ("xeon(r) cpu max", "xeon phi")
"""Model names of the CPUs that show their HBM as CPU-less nodes in flat mode."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything the readers found.

    Attributes:
        cpu_only: nodes with CPUs and no memory.
        access: node → its access class.
        kernel_tiers: node → the kernel's tier number.
        cpu_model: model name from /proc/cpuinfo, or an empty string.
        overrides: node → what the operator says.
        gpus: nodes that are the memory of a GPU; no override gives them another kind.
    """

    memory: Mapping[int, RawNode]
    cpu_only: Mapping[int, RawNode] = field(default_factory=dict)
    access: Mapping[int, AccessClass] = field(default_factory=dict)
    devices: Devices = field(default_factory=Devices)
    kernel_tiers: Mapping[int, int] = field(default_factory=dict)
    cpu_model: str = ""
    overrides: Mapping[int, NodeOverride] = field(default_factory=dict)
    gpus: Mapping[int, GpuNode] = field(default_factory=dict)


def build_nodes(evidence: Evidence) -> tuple[dict[int, MemoryNode], tuple[str, ...]]:
    """Make a `MemoryNode` of each node with memory; notes say what was assumed."""
    notes: list[str] = []
    nodes: dict[int, MemoryNode] = {}
    # Nodes with CPUs first: the others are compared with them.
    for number, raw in sorted(evidence.memory.items(), key=lambda item: (not item[1].cpus, item)):
        nodes[number] = _build(evidence, raw, nodes, notes)
    return dict(sorted(nodes.items())), tuple(notes)


def _build(
    evidence: Evidence, raw: RawNode, done: Mapping[int, MemoryNode], notes: list[str]
) -> MemoryNode:
    access = evidence.access.get(raw.number, AccessClass())
    notes.extend(access.notes)
    override = evidence.overrides.get(raw.number, NodeOverride())
    devices = evidence.devices.behind(raw.number)
    initiators = access.initiators or _nearest_cpu_nodes(evidence, raw)
    local = _reference(done, initiators)
    mixed = _is_mixed(raw, devices, notes)
    told = _Reported(evidence, raw, access, () if mixed else devices, override)
    gpu = evidence.gpus.get(raw.number)
    kind = MemoryKind.GPU if gpu else override.kind or _kind(told, local, notes)
    latency, bandwidth = told.latency(kind, local, notes), told.bandwidth(kind)
    if _is_lie(kind, latency, local):
        assert local is not None
        notes.append(
            f"node {raw.number}: {latency.provenance} gives its {kind} {latency.value:.0f} ns, "
            f"nearer than the {local.latency_ns.value:.0f} ns of DRAM; not used"
        )
        told = dataclasses.replace(told, access=AccessClass())
        latency, bandwidth = told.latency(kind, local, notes), told.bandwidth(kind)
    names = [device.name for device in devices]
    names += sorted({device.region for device in devices if device.region})
    names += [gpu.device] if gpu and gpu.device else []
    return MemoryNode(
        node=raw.number,
        size_bytes=raw.size_bytes,
        cpus=raw.cpus,
        kind=kind,
        latency_ns=latency,
        bandwidth_bytes_per_s=bandwidth,
        distances=dict(raw.distances),
        kernel_tier=evidence.kernel_tiers.get(raw.number),
        devices=tuple(names),
        initiators=tuple(initiators),
        write_latency_ns=_firmware(told.access.write_latency_ns, told.cdat().write_latency_ns),
        write_bandwidth_bytes_per_s=_firmware(
            told.access.write_bandwidth, told.cdat().write_bandwidth
        ),
    )


def _is_mixed(raw: RawNode, devices: tuple[DaxDevice, ...], notes: list[str]) -> bool:
    """Whether a node has devices' memory beside memory of its own CPUs.

    The kernel does not tell which page is of which, and what it gives is of the node: so it is
    what its CPUs say. A node with CPUs whose only memory is a device's is that device's.
    """
    of_devices = sum(device.size_bytes for device in devices)
    if not (raw.cpus and devices) or raw.size_bytes <= of_devices:
        return False
    names = ", ".join(device.name for device in devices)
    notes.append(
        f"node {raw.number}: {of_devices >> 20} MiB of its {raw.size_bytes >> 20} MiB are of "
        f"{names}; taken for its CPUs' DRAM, as its pages cannot be told apart (a target_node of "
        "its own makes them a tier)"
    )
    return True


def _is_lie(kind: MemoryKind, latency: Quantity, local: MemoryNode | None) -> bool:
    """Firmware that gives a known CXL or PMEM device less latency than DRAM is not believed."""
    return (
        kind in (MemoryKind.CXL, MemoryKind.PMEM)
        and latency.provenance in (Provenance.HMAT, Provenance.CDAT)
        and local is not None
        and latency.value < local.latency_ns.value
    )


def _nearest_cpu_nodes(evidence: Evidence, raw: RawNode) -> tuple[int, ...]:
    """Nodes with CPUs at the smallest distance, where HMAT names no initiators."""
    if raw.cpus:
        return (raw.number,)
    with_cpus = [n for n, node in evidence.memory.items() if node.cpus] + list(evidence.cpu_only)
    far = {n: raw.distances.get(n, 255) for n in with_cpus}
    best = min(far.values(), default=255)
    return tuple(sorted(n for n, distance in far.items() if distance == best))


def _reference(done: Mapping[int, MemoryNode], initiators: tuple[int, ...]) -> MemoryNode | None:
    """The DRAM to compare with: that of the node's own initiators, else the nearest of all."""
    drams = {n: node for n, node in done.items() if node.cpus}
    own = [drams[n] for n in initiators if n in drams] or list(drams.values())
    return min(own, key=lambda node: (node.latency_ns.value, node.node), default=None)


@dataclass(frozen=True, slots=True)
class _Reported:
    """What is told about one node."""

    evidence: Evidence
    raw: RawNode
    access: AccessClass
    devices: tuple[DaxDevice, ...]
    override: NodeOverride

    def cdat(self) -> AccessClass:
        """The numbers of the CXL region behind the node."""
        regions = self.evidence.devices.regions
        found = [regions[d.region] for d in self.devices if d.region in regions]
        return found[0] if found else AccessClass()

    def reported_latency(self) -> Quantity | None:
        """Latency by configuration, HMAT or CDAT."""
        if self.override.latency_ns is not None:
            return Quantity(self.override.latency_ns, self.override.provenance)
        hmat, cdat = self.access.read_latency_ns, self.cdat().read_latency_ns
        return _firmware(hmat, cdat)

    def reported_bandwidth(self) -> Quantity | None:
        """Bandwidth by configuration, HMAT or CDAT."""
        if self.override.bandwidth_bytes_per_s is not None:
            return Quantity(self.override.bandwidth_bytes_per_s, self.override.provenance)
        return _firmware(self.access.read_bandwidth, self.cdat().read_bandwidth)

    def distance(self) -> int | None:
        """Distance to the nearest CPUs that are not its own."""
        initiators = _nearest_cpu_nodes(self.evidence, self.raw)
        return min(
            (self.raw.distances[n] for n in initiators if n in self.raw.distances), default=None
        )

    def latency(self, kind: MemoryKind, local: MemoryNode | None, notes: list[str]) -> Quantity:
        told = self.reported_latency()
        if told is not None:
            return told
        distance = self.distance()
        if self.raw.cpus or distance is None or distance <= LOCAL_DISTANCE:
            return Quantity(DEFAULT_LATENCY_NS[kind], Provenance.DEFAULT)
        near = local.latency_ns.value if local else DEFAULT_LATENCY_NS[MemoryKind.DRAM]
        value = near * distance / LOCAL_DISTANCE
        notes.append(
            f"node {self.raw.number}: latency estimated from distance {distance} "
            f"({near:.0f} ns for each {LOCAL_DISTANCE})"
        )
        return Quantity(value, Provenance.DISTANCE)

    def bandwidth(self, kind: MemoryKind) -> Quantity:
        told = self.reported_bandwidth()
        return told or Quantity(DEFAULT_BANDWIDTH[kind], Provenance.DEFAULT)


def _firmware(hmat: float | None, cdat: float | None) -> Quantity | None:
    """HMAT before CDAT. The kernel copies a region's CDAT figures to its node: those are CDAT."""
    if hmat is not None:
        return Quantity(hmat, Provenance.CDAT if hmat == cdat else Provenance.HMAT)
    return None if cdat is None else Quantity(cdat, Provenance.CDAT)


def _kind(told: _Reported, local: MemoryNode | None, notes: list[str]) -> MemoryKind:
    """What a node is made of: by its devices, its CPUs, its numbers, its distance."""
    for device in told.devices:
        if device.kind is not None:
            return device.kind
    if told.raw.cpus or local is None:
        return MemoryKind.DRAM
    number = told.raw.number
    latency, bandwidth = told.reported_latency(), told.reported_bandwidth()
    if _is_far(told, latency, local):
        return MemoryKind.CXL
    if bandwidth is not None and local.bandwidth_bytes_per_s.provenance is not Provenance.DEFAULT:
        if bandwidth.value >= WIDE_BANDWIDTH * local.bandwidth_bytes_per_s.value:
            return MemoryKind.HBM
        if latency is not None:
            notes.append(f"node {number}: no CPUs, but as near and as wide as DRAM; taken for DRAM")
            return MemoryKind.DRAM
    if any(word in told.evidence.cpu_model.lower() for word in _HBM_CPU_WORDS):
        notes.append(f"node {number}: no CPUs, and the CPU has HBM; taken for HBM")
        return MemoryKind.HBM
    notes.append(
        f"node {number}: no CPUs and no latency from the firmware; taken for CXL "
        "(set the node's kind or latency in the configuration if it is not)"
    )
    return MemoryKind.CXL


def _is_far(told: _Reported, latency: Quantity | None, local: MemoryNode) -> bool:
    """Whether a node is far from its CPUs, by its latency or else by its distance."""
    if latency is not None:
        return latency.value / local.latency_ns.value >= FAR_LATENCY
    distance = told.distance()
    return distance is not None and distance / LOCAL_DISTANCE >= FAR_LATENCY
