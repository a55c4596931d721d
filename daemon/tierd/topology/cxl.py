# SPDX-License-Identifier: Apache-2.0
"""The dax and CXL devices behind a node.

A dax device below a CXL region is CXL memory; one below an NVDIMM bus is persistent
memory; one below hmem.N is memory that the firmware set aside (EFI "special purpose"),
which may be HBM as well as CXL, so that only its numbers tell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from tierd.core.tiermap import MemoryKind
from tierd.topology.hmat import AccessClass, read_folder
from tierd.topology.sysfs import SysTree

DAX_DEVICES: Final = "sys/bus/dax/devices"
CXL_DEVICES: Final = "sys/bus/cxl/devices"

_REGION: Final = re.compile(r"region[0-9]+")
_MEMDEV: Final = re.compile(r"mem[0-9]+")


@dataclass(frozen=True, slots=True)
class DaxDevice:
    """One dax device.

    Attributes:
        name: "dax0.0".
        node: the node its memory is or would be on; None where the kernel says none.
        size_bytes: its size.
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
        dax: all dax devices.
        memdevs: names of CXL memory devices ("mem0"), also those without a region.
        regions: name of a CXL region → its numbers (from CDAT, added up by the kernel).
        notes: memory that is there and cannot be used as it is.
    """

    dax: tuple[DaxDevice, ...] = ()
    memdevs: tuple[str, ...] = ()
    regions: dict[str, AccessClass] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def behind(self, node: int) -> tuple[DaxDevice, ...]:
        """The dax devices whose memory is node `node`."""
        return tuple(device for device in self.dax if device.node == node and device.system_ram)


def read_devices(tree: SysTree) -> Devices:
    """Read the dax and CXL buses; both may be absent."""
    dax = tuple(_read_dax(tree, name) for name in tree.names(DAX_DEVICES))
    names = tree.names(CXL_DEVICES)
    memdevs = tuple(name for name in names if _MEMDEV.fullmatch(name))
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
    return Devices(dax, memdevs, regions, tuple(notes))


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
