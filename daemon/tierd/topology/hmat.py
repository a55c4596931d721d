# SPDX-License-Identifier: Apache-2.0
"""Access classes of a node: latency and bandwidth as the firmware's HMAT tells them.

The kernel makes access0 from the best initiators of any sort (also accelerators) and
access1 from the best CPUs. tierd places memory for CPUs, so access1 comes first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tierd.topology.nodes import NODES
from tierd.topology.sysfs import SysTree

MEGABYTE: Final = 10**6
"""The unit of read_bandwidth and write_bandwidth is MB/s (numaperf.rst)."""
LATENCY_RANGE_NS: Final = (10.0, 20_000.0)
"""Latencies outside are firmware mistakes: below a last-level cache, or above a fast disk."""
BANDWIDTH_RANGE: Final = (0.1e9, 20e12)
"""Bytes per second; outside are firmware mistakes."""

_INITIATOR: Final = re.compile(r"node([0-9]+)")


@dataclass(frozen=True, slots=True)
class AccessClass:
    """Numbers of one node seen from its best initiators; None where not told or not believed.

    Attributes:
        initiators: nodes whose CPUs have these numbers.
        read_latency_ns, write_latency_ns: idle latencies in nanoseconds.
        read_bandwidth, write_bandwidth: bytes per second.
        notes: numbers that were not believed.
    """

    initiators: tuple[int, ...] = ()
    read_latency_ns: float | None = None
    write_latency_ns: float | None = None
    read_bandwidth: float | None = None
    write_bandwidth: float | None = None
    notes: tuple[str, ...] = ()


def read_access(tree: SysTree, number: int) -> AccessClass:
    """The numbers of node `number`: access1 where it tells anything, else access0."""
    classes = [
        read_folder(tree, f"{NODES}/node{number}/access{index}/initiators", f"node {number}")
        for index in (1, 0)
    ]
    for candidate in classes:
        if candidate.read_latency_ns is not None and candidate.read_bandwidth is not None:
            return candidate
    for candidate in classes:
        if candidate.read_latency_ns is not None or candidate.read_bandwidth is not None:
            return candidate
    return next((c for c in classes if c.initiators or c.notes), AccessClass())


def read_folder(tree: SysTree, folder: str, who: str) -> AccessClass:
    """The numbers in one folder of performance attributes (a node's, or a CXL region's)."""
    notes: list[str] = []

    def number(name: str, scale: float, allowed: tuple[float, float]) -> float | None:
        text = tree.text(f"{folder}/{name}")
        if text is None:
            return None
        try:
            value = int(text) * scale
        except ValueError:
            notes.append(f"{who}: {name} reads {text[:40]!r}, no number; not used")
            return None
        if not allowed[0] <= value <= allowed[1]:
            notes.append(f"{who}: {name} of {text} is not plausible; not used")
            return None
        return value

    initiators = tuple(
        sorted(int(m[1]) for name in tree.names(folder) if (m := _INITIATOR.fullmatch(name)))
    )
    return AccessClass(
        initiators,
        number("read_latency", 1.0, LATENCY_RANGE_NS),
        number("write_latency", 1.0, LATENCY_RANGE_NS),
        number("read_bandwidth", MEGABYTE, BANDWIDTH_RANGE),
        number("write_bandwidth", MEGABYTE, BANDWIDTH_RANGE),
        tuple(notes),
    )
