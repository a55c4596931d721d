# SPDX-License-Identifier: Apache-2.0
"""The host's memory: tiers and their nodes, how full nodes are, and what probes of them found."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Provenance(enum.StrEnum):
    """Where a number comes from, best first."""

    CONFIG = "config"
    MEASURED = "measured"
    HMAT = "hmat"
    """ACPI HMAT through /sys/devices/system/node/nodeN/accessN."""
    CDAT = "cdat"
    """CXL coherent device attribute table."""
    DISTANCE = "distance"
    """Estimated from the SLIT distance (10 = local)."""
    DEFAULT = "default"
    """Nothing known: tierd's reference figure for this kind of memory."""


class MemoryKind(enum.StrEnum):
    """What a node's memory is made of, as far as the host tells."""

    DRAM = "dram"
    HBM = "hbm"
    CXL = "cxl"
    PMEM = "pmem"
    GPU = "gpu"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number and where it comes from."""

    value: float
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class MemoryNode:
    """One NUMA node with memory.

    Attributes:
        latency_ns: idle read latency from its best initiator.
        bandwidth_bytes_per_s: read bandwidth from its best initiator.
        distances: SLIT distance to every node.
        kernel_tier: number N of the kernel's memory_tierN it is in, or None.
        devices: names of the dax and CXL devices behind it.
        initiators: nodes whose CPUs are nearest to it.
        write_latency_ns, write_bandwidth_bytes_per_s: the same for writes, None where
            nobody tells (there is no reference figure for them).
    """

    node: int
    size_bytes: int
    cpus: frozenset[int]
    kind: MemoryKind
    latency_ns: Quantity
    bandwidth_bytes_per_s: Quantity
    distances: Mapping[int, int] = field(default_factory=dict)
    kernel_tier: int | None = None
    devices: tuple[str, ...] = ()
    initiators: tuple[int, ...] = ()
    write_latency_ns: Quantity | None = None
    write_bandwidth_bytes_per_s: Quantity | None = None


@dataclass(frozen=True, slots=True)
class Tier:
    """Nodes that serve memory alike. Rank 0 is the first choice for hot pages.

    Attributes:
        name: short name, unique in the map ("dram", "cxl", "hbm", "cxl-2").
        nodes: node numbers, ascending.
        latency_ns: lowest latency of its nodes.
        bandwidth_bytes_per_s: sum over its nodes.
    """

    rank: int
    name: str
    kind: MemoryKind
    nodes: tuple[int, ...]
    capacity_bytes: int
    latency_ns: Quantity
    bandwidth_bytes_per_s: Quantity


@dataclass(frozen=True, slots=True)
class ExcludedNode:
    """A node with memory that is in no tier: no page is moved to it or away from it.

    Attributes:
        reason: why it is excluded, and what would change that.
    """

    memory: MemoryNode
    reason: str


@dataclass(frozen=True, slots=True)
class TierMap:
    """All tiers, fastest first, and the nodes they are made of.

    `tiers` is ordered by latency, so HBM (wide, not near) stands beside or below DRAM and is
    never the place that promotion by latency aims at. A tier that became slow keeps its rank.

    Attributes:
        nodes: node number → node, of the nodes that are in tiers.
        differences: one sentence for each place where the kernel's own tiers differ.
        notes: what the readers could not find out and what they assumed.
        excluded: nodes with memory that are in no tier, by number. No decision depends on
            them, so a recording leaves them out.
    """

    tiers: tuple[Tier, ...]
    nodes: Mapping[int, MemoryNode]
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    excluded: tuple[ExcludedNode, ...] = ()

    def tier_of(self, node: int) -> Tier:
        """The tier that `node` is in. Raises KeyError: no tier has that node."""
        for tier in self.tiers:
            if node in tier.nodes:
                return tier
        raise KeyError(node)

    def promotion_tier(self, rank: int) -> Tier | None:
        """The tier a hot page of tier `rank` goes to: the next nearer one by latency.

        A tier that is not nearer by at least 10 % is passed over. Pages of HBM are not
        promoted by latency: DRAM may be nearer by more than that, yet what is in HBM is
        there for its bandwidth.
        """
        own = self.tiers[rank]
        if own.kind is MemoryKind.HBM:
            return None
        for tier in reversed(self.tiers[:rank]):
            if tier.kind is not MemoryKind.HBM and (
                tier.latency_ns.value < 0.9 * own.latency_ns.value
            ):
                return tier
        return None

    def demotion_tier(self, rank: int) -> Tier | None:
        """The tier a cold page of tier `rank` goes to: the next farther one that is not HBM."""
        for tier in self.tiers[rank + 1 :]:
            if tier.kind is not MemoryKind.HBM:
                return tier
        return None

    @property
    def demoting_nodes(self) -> list[int]:
        """Nodes whose cold pages may be demoted."""
        tiers = (tier for tier in self.tiers if self.demotion_tier(tier.rank) is not None)
        return [node for tier in tiers for node in tier.nodes]

    def nearest_first(self, node: int, tier: Tier) -> list[int]:
        """The nodes of `tier`, nearest to `node` first (by distance, then by number)."""
        distances = self.nodes[node].distances if node in self.nodes else {}
        return sorted(tier.nodes, key=lambda other: (distances.get(other, 255), other))


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """How full a node is.

    Attributes:
        reserve_bytes: what the kernel keeps for itself: the sum of its zones' high
            watermarks. Below it kswapd runs, so tierd never fills a node past it.
    """

    total_bytes: int
    free_bytes: int
    reserve_bytes: int

    def low_bytes(self, low_watermark: float) -> int:
        """What must stay free: this share of the node, or the kernel's own reserve if larger."""
        return max(self.reserve_bytes, int(low_watermark * self.total_bytes))


@dataclass(frozen=True, slots=True)
class Measured:
    """What a probe of a node found; None for what it could not tell.

    Attributes:
        latency_ns: of a dependent read, the least so far: load makes it longer.
        bandwidth_bytes_per_s: one CPU's stream, the most so far: the node has at least this.
    """

    latency_ns: float | None = None
    bandwidth_bytes_per_s: float | None = None

    def beside(self, other: Measured) -> Measured:
        """The least latency and the most bandwidth of both."""
        latency = [each for each in (self.latency_ns, other.latency_ns) if each is not None]
        wide = (self.bandwidth_bytes_per_s, other.bandwidth_bytes_per_s)
        bandwidth = [each for each in wide if each is not None]
        return Measured(min(latency, default=None), max(bandwidth, default=None))


def parse_meminfo(text: str) -> tuple[int, int] | None:
    """(total, free) bytes of the host or of a node, or None where the text does not say."""
    found = []
    for name in ("MemTotal:", "MemFree:"):
        _, there, value = text.partition(name)
        number = value.partition(" kB")[0].strip()
        if not (there and number.isdecimal()):
            return None
        found.append(int(number) * 1024)
    return found[0], found[1]
