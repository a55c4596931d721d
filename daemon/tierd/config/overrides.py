# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: RUF009 - option() and section() return dataclasses.field
"""[topology]: tiers and numbers that replace what the host tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tierd.config.schema import ListOf, Numbered, Optional, Section, option, required
from tierd.config.values import Number, Text, duration, join, rate
from tierd.core.errors import ConfigError
from tierd.core.overrides import NodeOverride, TierOverride, TopologyOverrides
from tierd.core.tiermap import MemoryKind

MAX_NODE = 1023
"""Largest node number of a Linux kernel (CONFIG_NODES_SHIFT is at most 10)."""


@dataclass(frozen=True, slots=True)
class KindName:
    """A memory kind by its name."""

    def parse(self, value: Any, path: str) -> MemoryKind:
        """The kind."""
        return MemoryKind(Text(tuple(MemoryKind)).parse(value, path))

    def text(self, value: Any) -> Any:
        """Its name."""
        return str(value)

    def describe(self) -> str:
        """The choices."""
        return Text(tuple(MemoryKind)).describe()


_KIND = Optional(KindName())


@dataclass(frozen=True, slots=True)
class _TierTable:
    name: str = required(Text(), "Short name, unique.")
    nodes: tuple[int, ...] = required(
        ListOf(Number(0, MAX_NODE), least=1, unique=True), "Its NUMA nodes."
    )
    kind: MemoryKind | None = option(_KIND, None, "What its memory is made of.")


@dataclass(frozen=True, slots=True)
class _NodeTable:
    latency_ns: int | None = option(Optional(duration("1ns", "1ms")), None, "Idle read latency.")
    bandwidth_bytes_per_s: int | None = option(
        Optional(rate("1MB/s", "100TB/s")), None, "Read bandwidth."
    )
    kind: MemoryKind | None = option(_KIND, None, "What its memory is made of.")


@dataclass(frozen=True, slots=True)
class _TopologyTable:
    tiers: tuple[_TierTable, ...] = option(
        ListOf(Section(_TierTable), most=64),
        [],
        "Tiers, fastest first; tierd ranks the nodes that none of them names.",
    )
    nodes: Mapping[int, _NodeTable] = option(
        Numbered(Section(_NodeTable), MAX_NODE),
        {},
        "Numbers of a node that the host does not tell, or tells wrongly.",
    )

    def check(self, path: str) -> None:
        """Refuse a name given twice and a node in two tiers."""
        names: dict[str, str] = {}
        owners: dict[int, str] = {}
        for index, tier in enumerate(self.tiers):
            where = f"{join(path, 'tiers')}[{index}]"
            if tier.name in names:
                raise ConfigError(
                    join(where, "name"), f"{names[tier.name]} is called {tier.name!r} already"
                )
            names[tier.name] = where
            for place, node in enumerate(tier.nodes):
                if node in owners:
                    raise ConfigError(
                        f"{join(where, 'nodes')}[{place}]",
                        f"node {node} is in tier {owners[node]!r} already",
                        hint="a node belongs to one tier",
                    )
                owners[node] = tier.name


@dataclass(frozen=True, slots=True)
class TopologyKind(Section):
    """The [topology] table as `TopologyOverrides`."""

    cls: type[Any] = _TopologyTable

    def parse(self, value: Any, path: str) -> TopologyOverrides:
        """The overrides."""
        table: _TopologyTable = Section.parse(self, value, path)
        return TopologyOverrides(
            tiers=tuple(TierOverride(t.name, t.nodes, t.kind) for t in table.tiers),
            nodes={
                number: NodeOverride(n.latency_ns, n.bandwidth_bytes_per_s, n.kind)
                for number, n in table.nodes.items()
            },
        )
