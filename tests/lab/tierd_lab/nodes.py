# SPDX-License-Identifier: Apache-2.0
"""`Node`, and the `[[node]]` tables of a machine file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tierd.core.tiermap import MemoryKind
from tierd_lab._fields import Table, parse_cpus

MIB: Final = 2**20
LOCAL_DISTANCE: Final = 10
"""SLIT distance of a node to itself (ACPI 6.5, section 5.2.17)."""
DEFAULT_DISTANCE: Final = 20
UNREACHABLE_DISTANCE: Final = 255
MAX_LATENCY_NS: Final = 60_000
MIN_BOOT_NODE_BYTES: Final = 384 * MIB
"""A stock kernel, its initramfs and a shell do not fit in less."""


@dataclass(frozen=True, slots=True)
class Node:
    """One NUMA node of a virtual machine.

    Attributes:
        kind: what the memory stands for.
        size_bytes: memory of the node.
        cpus: its CPUs; empty for a memory-only node.
        initiator: node whose CPUs are nearest (itself when it has CPUs).
        latency_ns: by initiator node, what the HMAT says; empty: no HMAT.
        bandwidth_bytes_per_s: by initiator node, the same.
    """

    kind: MemoryKind
    size_bytes: int
    cpus: tuple[int, ...]
    initiator: int
    latency_ns: Mapping[int, int] = field(default_factory=dict)
    bandwidth_bytes_per_s: Mapping[int, int] = field(default_factory=dict)


def parse_nodes(
    tables: Sequence[Table],
) -> tuple[tuple[Node, ...], tuple[tuple[int, ...], ...]]:
    """The nodes that the `[[node]]` tables describe, and the SLIT distances between them.

    Keys that are not about nodes are left for others; nobody has called `finish` yet.

    Raises:
        ConfigError: a mistake, with the key's path.
    """
    heads = [_parse_head(table) for table in tables]
    _check_cpus(tables, [cpus for _, _, cpus in heads])
    distances = _parse_distances(tables)
    with_cpus = [number for number, (_, _, cpus) in enumerate(heads) if cpus]
    nodes = tuple(
        _parse_node(number, table, head, with_cpus, distances)
        for number, (table, head) in enumerate(zip(tables, heads, strict=True))
    )
    with_figures = [bool(node.latency_ns) for node in nodes]
    if any(with_figures) and not all(with_figures):
        number = with_figures.index(False)
        raise tables[number].error(
            "latency", "missing: other nodes have one, and an HMAT tells all nodes or none"
        )
    return nodes, distances


_Head = tuple[MemoryKind, int, tuple[int, ...]]


def _parse_head(table: Table) -> _Head:
    """Kind, size and CPUs: what other nodes' fields are checked against."""
    kind = MemoryKind(table.choice("kind", [kind.value for kind in MemoryKind]))
    size = table.size("size")
    if size <= 0 or size % MIB:
        raise table.error("size", "must be a whole number of MiB, at least one")
    text = table.text("cpus", "")
    try:
        cpus = parse_cpus(text)
    except ValueError as error:
        raise table.error("cpus", str(error)) from error
    return kind, size, cpus


def _check_cpus(tables: Sequence[Table], cpus: list[tuple[int, ...]]) -> None:
    owner: dict[int, int] = {}
    for number, (table, own) in enumerate(zip(tables, cpus, strict=True)):
        for cpu in own:
            if cpu in owner:
                raise table.error("cpus", f"CPU {cpu} is already in node[{owner[cpu]}]")
            owner[cpu] = number
    if not owner:
        raise tables[0].error("cpus", "missing: at least one node must have CPUs")
    for cpu in range(len(owner)):
        if cpu not in owner:
            raise tables[owner[max(owner)]].error(
                "cpus", f"CPU {cpu} is in no node; number the CPUs from 0 without a gap"
            )
    boot = owner[0]
    size = tables[boot].size("size")
    if size < MIN_BOOT_NODE_BYTES:
        raise tables[boot].error(
            "size", f"the node of CPU 0 needs at least {MIN_BOOT_NODE_BYTES // MIB}MiB to boot"
        )


def _parse_distances(tables: Sequence[Table]) -> tuple[tuple[int, ...], ...]:
    count = len(tables)
    matrix = [[DEFAULT_DISTANCE] * count for _ in range(count)]
    given: dict[tuple[int, int], int] = {}
    for number in range(count):
        matrix[number][number] = LOCAL_DISTANCE
    for number, table in enumerate(tables):
        for other, value in table.by_node("distance", count).items():
            path = f"distance.{other}"
            if isinstance(value, bool) or not isinstance(value, int):
                raise table.error(path, f"must be a whole number, not {value!r}")
            if other == number:
                raise table.error(path, "is the node itself, whose distance is always 10")
            if not LOCAL_DISTANCE < value < UNREACHABLE_DISTANCE:
                raise table.error(path, f"{value} is not between 11 and 254")
            if given.get((other, number), value) != value:
                raise table.error(
                    path,
                    f"{value} contradicts node[{other}].distance.{number}, "
                    f"which is {given[other, number]}",
                )
            given[number, other] = value
            matrix[number][other] = matrix[other][number] = value
    return tuple(tuple(row) for row in matrix)


def _parse_node(
    number: int,
    table: Table,
    head: _Head,
    with_cpus: list[int],
    distances: tuple[tuple[int, ...], ...],
) -> Node:
    kind, size, cpus = head
    initiator = table.number("initiator", number if cpus else None)
    if cpus and initiator not in (None, number):
        raise table.error("initiator", "a node with CPUs is its own initiator; leave it out")
    if initiator is not None and initiator not in with_cpus:
        raise table.error("initiator", f"node {initiator} has no CPUs or does not exist")
    has_latency, has_bandwidth = table.has("latency"), table.has("bandwidth")
    if has_latency != has_bandwidth:
        missing, present = ("bandwidth", "latency") if has_latency else ("latency", "bandwidth")
        raise table.error(missing, f"missing: {present} is given, and an HMAT needs both")
    if initiator is None:
        if has_latency:
            raise table.error(
                "initiator", "missing: a node without CPUs names the node whose CPUs are nearest"
            )
        initiator = min(with_cpus, key=lambda other: distances[other][number])
    if not has_latency:
        for key in ("latency_from", "bandwidth_from"):
            if table.has(key):
                raise table.error(key, "needs latency and bandwidth")
        return Node(kind, size, cpus, initiator)
    latency = {initiator: _checked_latency(table, "latency", table.duration_ns("latency"))}
    bandwidth = {initiator: _checked_bandwidth(table, "bandwidth", table.rate("bandwidth"))}
    for other in with_cpus:
        # What the file does not say grows with the distance from that initiator.
        stretch = distances[other][number] / distances[initiator][number]
        latency.setdefault(other, round(latency[initiator] * stretch))
        bandwidth.setdefault(other, round(bandwidth[initiator] / stretch))
    for key, values, read, check in (
        ("latency_from", latency, table.duration_ns, _checked_latency),
        ("bandwidth_from", bandwidth, table.rate, _checked_bandwidth),
    ):
        for other in table.by_node(key, len(distances)):
            path = f"{key}.{other}"
            if other not in with_cpus:
                raise table.error(path, f"node {other} has no CPUs")
            if other == initiator:
                raise table.error(path, f"is the node's own initiator: write {key[:-5]}")
            values[other] = check(table, path, read(path))
    return Node(kind, size, cpus, initiator, latency, bandwidth)


def _checked_latency(table: Table, path: str, value: int) -> int:
    if not 1 <= value <= MAX_LATENCY_NS:
        raise table.error(path, f"must be between 1ns and {MAX_LATENCY_NS // 1000}us")
    return value


def _checked_bandwidth(table: Table, path: str, value: int) -> int:
    if value < MIB:
        raise table.error(path, "must be at least 1MiB/s")
    return value
