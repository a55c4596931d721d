# SPDX-License-Identifier: Apache-2.0
"""What the operator says about the host's memory: `TopologyOverrides`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from tierd.core.errors import ConfigError
from tierd.core.tiermap import MemoryKind, Provenance


@dataclass(frozen=True, slots=True)
class NodeOverride:
    """Numbers for one node; None leaves what the host says.

    Attributes:
        latency_ns: idle read latency from the nearest CPUs, nanoseconds.
        bandwidth_bytes_per_s: read bandwidth, bytes per second.
        kind: what the memory is made of.
        provenance: CONFIG for written numbers, MEASURED for those that a measurement made.
    """

    latency_ns: float | None = None
    bandwidth_bytes_per_s: float | None = None
    kind: MemoryKind | None = None
    provenance: Provenance = Provenance.CONFIG


@dataclass(frozen=True, slots=True)
class TierOverride:
    """A tier that the operator put together: these nodes are one tier of this name."""

    name: str
    nodes: tuple[int, ...]
    kind: MemoryKind | None = None


@dataclass(frozen=True, slots=True)
class TopologyOverrides:
    """Tiers and numbers from the configuration.

    `tiers` is in the operator's order, fastest first. Nodes that no tier names are grouped
    as if there were no tiers here, and put between them by latency.
    """

    tiers: tuple[TierOverride, ...] = ()
    nodes: Mapping[int, NodeOverride] = field(default_factory=dict)

    def by_node(self) -> dict[int, NodeOverride]:
        """Node → its overrides, with the kind of its tier where it has no kind of its own."""
        result = dict(self.nodes)
        for tier in self.tiers:
            for node in tier.nodes:
                own = result.get(node, NodeOverride())
                result[node] = dataclasses.replace(own, kind=own.kind or tier.kind)
        return result

    def check(self) -> None:
        """Find mistakes that do not depend on the host.

        Raises:
            ConfigError: empty or doubled tier, node in two tiers, number not positive.
        """
        names: set[str] = set()
        owner: dict[int, str] = {}
        for tier in self.tiers:
            path = f"topology.tiers.{tier.name}"
            if not tier.name:
                raise ConfigError("topology.tiers", "a tier without a name")
            if tier.name in names:
                raise ConfigError(path, f"two tiers are called {tier.name!r}")
            names.add(tier.name)
            if not tier.nodes:
                raise ConfigError(f"{path}.nodes", "names no node")
            for node in tier.nodes:
                if node in owner:
                    raise ConfigError(
                        f"{path}.nodes",
                        f"node {node} is in tier {owner[node]!r} already",
                        hint="a node belongs to one tier",
                    )
                owner[node] = tier.name
        for number, override in self.nodes.items():
            for key in ("latency_ns", "bandwidth_bytes_per_s"):
                value = getattr(override, key)
                if value is not None and value <= 0:
                    raise ConfigError(
                        f"topology.nodes.{number}.{key}", f"{value} is not above zero"
                    )

    def check_nodes(self, possible: frozenset[int]) -> None:
        """Find node numbers that this host cannot have.

        Args:
            possible: nodes that the kernel lists in /sys/devices/system/node/possible.

        Raises:
            ConfigError: a node that is not possible here.
        """
        have = ", ".join(map(str, sorted(possible)))
        for tier in self.tiers:
            for node in tier.nodes:
                if node not in possible:
                    raise ConfigError(
                        f"topology.tiers.{tier.name}.nodes",
                        f"this host has no node {node}",
                        hint=f"possible nodes: {have}",
                    )
        for node in self.nodes:
            if node not in possible:
                raise ConfigError(
                    f"topology.nodes.{node}",
                    f"this host has no node {node}",
                    hint=f"possible nodes: {have}",
                )
