# SPDX-License-Identifier: Apache-2.0
"""What firmware tells of memory: numbers of nodes (HMAT), and the dax and CXL devices behind them.

The kernel makes a node's access0 from the best initiators of any sort (also accelerators) and
access1 from the best CPUs. tierd places memory for CPUs, so access1 comes first.

A dax device below a CXL region is CXL memory; one below an NVDIMM bus is persistent
memory; one below hmem.N is memory that the firmware set aside (EFI "special purpose"),
which may be HBM as well as CXL, so that only its numbers tell.

Sources: nodeN/access{0,1}/initiators (Documentation/admin-guide/mm/numaperf.rst),
/sys/bus/dax/devices/daxX.Y/{target_node,size,driver} and /sys/bus/cxl/devices/{memN,regionN}
(Documentation/ABI/testing/sysfs-bus-dax, sysfs-bus-cxl).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from tierd.core.linux import NODES
from tierd.core.tiermap import MemoryKind
from tierd.topology.sysfs import SysTree

MEGABYTE: Final = 10**6
"""The unit of read_bandwidth and write_bandwidth is MB/s (numaperf.rst)."""
LATENCY_RANGE_NS: Final = (10.0, 20_000.0)
"""Latencies outside are firmware mistakes: below a last-level cache, or above a fast disk."""
BANDWIDTH_RANGE: Final = (0.1e9, 20e12)
"""Bytes per second; outside are firmware mistakes."""
DAX_DEVICES: Final = "sys/bus/dax/devices"
CXL_DEVICES: Final = "sys/bus/cxl/devices"

_REGION: Final = re.compile(r"region[0-9]+")
_MEMDEV: Final = re.compile(r"mem[0-9]+")
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


@dataclass(frozen=True, slots=True)
class DaxDevice:
    """One dax device.

    Attributes:
        name: "dax0.0".
        node: the node its memory is or would be on; None where the kernel says none.
        system_ram: whether the kmem driver has it, so that it is ordinary memory.
        kind: CXL or PMEM by its parents, None if they do not tell.
        region: the CXL region it is made from, or an empty string.
    """

    name: str
    node: int | None
    size_bytes: int
    system_ram: bool
    kind: MemoryKind | None = None
    region: str = ""


@dataclass(frozen=True, slots=True)
class Devices:
    """All memory devices of the host.

    Attributes:
        regions: name of a CXL region → its numbers (from CDAT, added up by the kernel).
        notes: memory that is there and cannot be used as it is.
    """

    dax: tuple[DaxDevice, ...] = ()
    regions: dict[str, AccessClass] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def behind(self, node: int) -> tuple[DaxDevice, ...]:
        """The dax devices whose memory is node `node`."""
        return tuple(device for device in self.dax if device.node == node and device.system_ram)


def read_devices(tree: SysTree) -> Devices:
    """Read the dax and CXL buses; both may be absent."""
    dax = tuple(_read_dax(tree, name) for name in tree.names(DAX_DEVICES))
    names = tree.names(CXL_DEVICES)
    memdevs = [name for name in names if _MEMDEV.fullmatch(name)]
    regions = {name: _read_region(tree, name) for name in names if _REGION.fullmatch(name)}
    notes = [
        f"{device.name}: {device.size_bytes >> 20} MiB on node "
        f"{'unknown' if device.node is None else device.node}, not used as system RAM "
        f"(daxctl reconfigure-device --mode=system-ram {device.name})"
        for device in dax
        if not device.system_ram and device.size_bytes > 0
    ]
    if memdevs and not regions and not any(d.kind is MemoryKind.CXL for d in dax):
        # Firmware may have mapped the card itself: then it is there as an ordinary node.
        notes.append(
            f"CXL memory devices without a region: {', '.join(memdevs)} "
            "(mapped by the firmware, or not in use: cxl list -M)"
        )
    for access in regions.values():
        notes.extend(access.notes)
    return Devices(dax, regions, tuple(notes))


def _read_dax(tree: SysTree, name: str) -> DaxDevice:
    folder = f"{DAX_DEVICES}/{name}"
    node = tree.integer(f"{folder}/target_node")
    parts = _parents(tree, folder)
    region = next((p for p in reversed(parts) if _REGION.fullmatch(p)), "")
    kind: MemoryKind | None = None
    if any(part.startswith("ndbus") for part in parts):
        kind, region = MemoryKind.PMEM, ""
    elif region:
        kind = MemoryKind.CXL
    driver = _link_name(tree, f"{folder}/driver")
    size = tree.integer(f"{folder}/size") or 0
    return DaxDevice(
        name,
        node if node is not None and node >= 0 else None,
        size,
        driver == "kmem",
        kind,
        region,
    )


def _parents(tree: SysTree, folder: str) -> tuple[str, ...]:
    """Names of the folders that the device's link leads through."""
    try:
        return tree.path(folder).resolve().parts
    except (OSError, RuntimeError):
        return ()


def _link_name(tree: SysTree, relative: str) -> str:
    try:
        return tree.path(relative).readlink().name
    except OSError:
        return ""


def _read_region(tree: SysTree, name: str) -> AccessClass:
    """Numbers of a CXL region (since Linux 6.9); access1 is to CPUs, access0 to anything."""
    access = AccessClass()
    for index in (1, 0):
        access = read_folder(tree, f"{CXL_DEVICES}/{name}/access{index}", name)
        if access.read_latency_ns is not None or access.read_bandwidth is not None:
            return access
    return access
