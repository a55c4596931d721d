# SPDX-License-Identifier: Apache-2.0
"""What the operator says about the host's memory: `TopologyOverrides`."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tierd.core.errors import ConfigError
from tierd.core.tiermap import MemoryKind, Provenance

GPU_NODES: Final = ("exclude", "tier")
"""What becomes of nodes that are the memory of a GPU; the first is the default."""


@dataclass(frozen=True, slots=True)
class NodeOverride:
    """Numbers for one node; None leaves what the host says.

    Attributes:
        latency_ns: idle read latency from the nearest CPUs, nanoseconds.
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
    """[topology]: what the host does not tell, or wrongly.

    `tiers` is in the operator's order, fastest first. Nodes that no tier names are grouped
    as if there were no tiers here, and put between them by latency. Nodes in `exclude` are in
    no tier; nor are those that are the memory of a GPU, unless `gpu_nodes` is "tier".
    """

    tiers: tuple[TierOverride, ...] = ()
    nodes: Mapping[int, NodeOverride] = field(default_factory=dict)
    exclude: tuple[int, ...] = ()
    gpu_nodes: str = GPU_NODES[0]

    def by_node(self) -> dict[int, NodeOverride]:
        """Node → its overrides, with the kind of its tier where it has no kind of its own."""
        result = dict(self.nodes)
        for tier in self.tiers:
            for node in tier.nodes:
                own = result.get(node, NodeOverride())
                result[node] = dataclasses.replace(own, kind=own.kind or tier.kind)
        return result

    def named(self) -> Iterator[tuple[str, int]]:
        """Each node that is named, after the path of the key that names it."""
        for index, tier in enumerate(self.tiers):
            for place, node in enumerate(tier.nodes):
                yield f"topology.tiers[{index}].nodes[{place}]", node
        for node in self.nodes:
            yield f"topology.nodes.{node}", node
        for place, node in enumerate(self.exclude):
            yield f"topology.exclude[{place}]", node

    def check(self, path: str = "topology") -> None:
        """Find mistakes that do not depend on the host.

        Raises:
            ConfigError: doubled tier, node in two tiers, excluded node in a tier.
        """
        names: dict[str, str] = {}
        owner: dict[int, str] = {}
        for index, tier in enumerate(self.tiers):
            where = f"{path}.tiers[{index}]"
            if tier.name in names:
                raise ConfigError(
                    f"{where}.name", f"{names[tier.name]} is called {tier.name!r} already"
                )
            names[tier.name] = where
            for place, node in enumerate(tier.nodes):
                if node in owner:
                    raise ConfigError(
                        f"{where}.nodes[{place}]",
                        f"node {node} is in tier {owner[node]!r} already",
                        hint="a node belongs to one tier",
                    )
                owner[node] = tier.name
        for place, node in enumerate(self.exclude):
            if node in owner:
                raise ConfigError(
                    f"{path}.exclude[{place}]",
                    f"node {node} is in tier {owner[node]!r}",
                    hint="an excluded node belongs to no tier",
                )

    def check_nodes(self, possible: Collection[int], what: str, which: str) -> None:
        """Find nodes that are not on this host.

        Args:
            what: "node", or another word for one.
            which: what those are, for the hint.

        Raises:
            ConfigError: a node that is not there.
        """
        for path, node in self.named():
            if node not in possible:
                have = ", ".join(map(str, sorted(possible)))
                raise ConfigError(path, f"this host has no {what} {node}", hint=f"{which}: {have}")
