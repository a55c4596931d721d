# SPDX-License-Identifier: Apache-2.0
"""[topology]: keys of the tiers and numbers that replace what the host tells."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tierd.config.schema import (
    REQUIRED,
    ListOf,
    Numbered,
    Option,
    Optional,
    Section,
    describe,
    section,
)
from tierd.config.values import duration, number, rate, text
from tierd.core.overrides import NodeOverride, TierOverride, TopologyOverrides
from tierd.core.tiermap import MemoryKind

MAX_NODE: Final = 1023
"""Largest node number of a Linux kernel (CONFIG_NODES_SHIFT is at most 10)."""
_NAME: Final = text(tuple(MemoryKind))
_KIND: Final = Option(
    Optional(replace(_NAME, parse=lambda value, path: MemoryKind(_NAME.parse(value, path)))),
    None,
    "What its memory is made of.",
)

describe(
    TierOverride,
    name=Option(text(), REQUIRED, "Short name, unique."),
    nodes=Option(ListOf(number(0, MAX_NODE), least=1, unique=True), REQUIRED, "Its NUMA nodes."),
    kind=_KIND,
)
describe(
    NodeOverride,
    latency_ns=Option(Optional(duration("1ns", "1ms")), None, "Idle read latency."),
    bandwidth_bytes_per_s=Option(Optional(rate("1MB/s", "100TB/s")), None, "Read bandwidth."),
    kind=_KIND,
)
describe(
    TopologyOverrides,
    tiers=Option(
        ListOf(Section(TierOverride), most=64),
        [],
        "Tiers, fastest first; tierd ranks the nodes that none of them names.",
    ),
    nodes=Option(
        Numbered(Section(NodeOverride), MAX_NODE),
        {},
        "Numbers of a node that the host does not tell, or tells wrongly.",
    ),
)
TOPOLOGY: Final = section(TopologyOverrides)
"""The field of the whole configuration."""
