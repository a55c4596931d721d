# SPDX-License-Identifier: Apache-2.0
"""QEMU options of a `Machine`: NUMA nodes, distances and the HMAT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tierd_lab.machine import Machine
from tierd_lab.nodes import MIB, Node

_MAX_ENTRY: Final = 0xFFFE
"""Largest HMAT matrix entry; the matrix is 16 bits times a base (ACPI 6.5, 5.2.28.4)."""


def memory_argument(machine: Machine) -> str:
    """Value of QEMU's `-m`: the sum of the nodes, in MiB."""
    return f"{machine.memory_bytes // MIB}M"


def qemu_options(machine: Machine) -> list[str]:
    """QEMU's options for the machine's memory, nodes, distances and HMAT."""
    options = ["-machine", f"hmat={'on' if machine.has_hmat else 'off'}"]
    for number, node in enumerate(machine.nodes):
        size = f"{node.size_bytes // MIB}M"
        options += ["-object", f"memory-backend-ram,id=tierd{number},size={size}"]
    for number, node in enumerate(machine.nodes):
        options += ["-numa", _node_option(number, node, machine.has_hmat)]
    for source, row in enumerate(machine.distances):
        for target, distance in enumerate(row):
            if source < target:
                options += ["-numa", f"dist,src={source},dst={target},val={distance}"]
    if machine.has_hmat:
        options += _hmat_options(machine)
    return [*options, *machine.qemu_args]


def _node_option(number: int, node: Node, hmat: bool) -> str:
    text = f"node,nodeid={number},memdev=tierd{number}"
    for cpu in node.cpus:
        text += f",cpus={cpu}"
    if hmat and not node.cpus:
        text += f",initiator={node.initiator}"
    return text


def _hmat_options(machine: Machine) -> list[str]:
    granule = bandwidth_granule_mib(machine)
    options = []
    for target, node in enumerate(machine.nodes):
        for initiator, latency_ns in sorted(node.latency_ns.items()):
            options += [
                "-numa",
                f"hmat-lb,initiator={initiator},target={target},hierarchy=memory,"
                f"data-type=access-latency,latency={latency_ns}",
            ]
        for initiator, mib in sorted(_bandwidths_mib(node.bandwidth_bytes_per_s, granule).items()):
            options += [
                "-numa",
                f"hmat-lb,initiator={initiator},target={target},hierarchy=memory,"
                f"data-type=access-bandwidth,bandwidth={mib}M",
            ]
    return options


def _bandwidths_mib(rates: Mapping[int, int], granule: int) -> dict[int, int]:
    return {
        initiator: max(granule, round(rate / MIB / granule) * granule)
        for initiator, rate in rates.items()
    }


def bandwidth_granule_mib(machine: Machine) -> int:
    """Step in MiB/s to which bandwidths are rounded so that all fit one 16-bit matrix."""
    largest = (
        max(rate for node in machine.nodes for rate in node.bandwidth_bytes_per_s.values()) / MIB
    )
    granule = 1
    while largest / granule > _MAX_ENTRY:
        granule *= 2
    return granule
