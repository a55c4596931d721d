# SPDX-License-Identifier: Apache-2.0
"""Which NUMA nodes are the memory of a GPU, as the kernel and the GPU's driver tell without NVML.

A coherent GPU (Grace Hopper, Grace Blackwell, POWER9 with V100) shows its memory as a node
without CPUs. Three signs tell such a node, the surest first:

- /proc/driver/nvidia/gpus/*/numa_status, which NVIDIA's driver has for such GPUs only
  (nv-procfs.c of its open kernel modules): "Node: N", or -1 before the memory is there;
- the resource "System RAM (NVIDIA)" of /proc/iomem, under which the same driver adds the
  memory (add_memory_driver_managed). Without CAP_SYS_ADMIN the kernel shows its addresses as
  zeros; then each node without CPUs and without a memory device is taken for the GPU's;
- has_generic_initiator (Documentation/ABI/stable/sysfs-devices-node): the firmware says that
  the node belongs to an initiator that is no CPU (ACPI 6.5, section 5.2.16.6).

A node with CPUs is ordinary memory whatever else it is: that of GB10 and of MI300A serves GPU and
CPUs alike. AMD's driver adds no GPU memory as a node of the page allocator: where CPUs reach it
coherently, its pages are device pages (MEMORY_DEVICE_COHERENT in the kernel's memremap.h).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tierd.core.linux import NODES
from tierd.topology.firmware import Devices
from tierd.topology.sysfs import RawNodes, SysTree

GPUS: Final = "proc/driver/nvidia/gpus"
IOMEM: Final = "proc/iomem"
DRIVER_RAM: Final = "System RAM (NVIDIA)"
INITIATORS: Final = f"{NODES}/has_generic_initiator"

_NODE: Final = re.compile(r"^Node:\s+(-?[0-9]+)$", re.MULTILINE)
_RANGE: Final = re.compile(r"^\s*([0-9a-f]+)-([0-9a-f]+) : (.+)$")
_BLOCK: Final = re.compile(r"memory([0-9]+)")


@dataclass(frozen=True, slots=True)
class GpuNode:
    """How it is known that a node is a GPU's memory.

    Attributes:
        whose: whose memory it is, for the operator.
        device: the GPU's PCI address, or an empty string where it is not known.
    """

    whose: str
    device: str = ""


@dataclass(frozen=True, slots=True)
class GpuNodes:
    """The nodes that are the memory of GPUs, and what was odd about them."""

    nodes: Mapping[int, GpuNode] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_gpu_nodes(tree: SysTree, raw: RawNodes, devices: Devices) -> GpuNodes:
    """Find the nodes with memory that belong to a GPU.

    Args:
        devices: its dax and CXL devices; what lies on one is no GPU's.
    """
    notes: list[str] = []
    found = _by_status(tree, raw, notes)
    bare = [number for number, node in raw.memory.items() if not node.cpus and number not in found]
    bare = [number for number in bare if not devices.behind(number)]
    found.update(_by_iomem(tree, bare, notes, guess=not found))
    initiators = tree.numbers(INITIATORS) or frozenset()
    for number in bare:
        if number in initiators and number not in found:
            found[number] = GpuNode("memory of a device that accesses memory by itself")
    return GpuNodes(dict(sorted(found.items())), tuple(notes))


def _by_status(tree: SysTree, raw: RawNodes, notes: list[str]) -> dict[int, GpuNode]:
    """What the driver says of each GPU."""
    found: dict[int, GpuNode] = {}
    for name in tree.names(GPUS):
        if not tree.exists(f"{GPUS}/{name}/numa_status"):
            continue
        match = _NODE.search(tree.text(f"{GPUS}/{name}/numa_status") or "")
        number = int(match[1]) if match else None
        if number is None:
            notes.append(f"GPU {name}: its driver does not tell the node of its memory")
        elif number in raw.memory and raw.memory[number].cpus:
            notes.append(f"GPU {name}: its memory is that of node {number}, which has CPUs")
        elif number in raw.memory:
            found[number] = GpuNode(f"memory of GPU {name}", name)
        elif number >= 0:
            notes.append(f"GPU {name}: node {number} has no memory; the driver keeps it to itself")
    return found


def driver_ranges(tree: SysTree) -> list[tuple[int, int]]:
    """First and last physical addresses of what NVIDIA's driver added; (0, 0) if hidden."""
    lines = (tree.text(IOMEM) or "").splitlines()
    found = (match for line in lines if (match := _RANGE.match(line)))
    return [(int(m[1], 16), int(m[2], 16)) for m in found if m[3] == DRIVER_RAM]


def driver_blocks(tree: SysTree) -> list[tuple[int, int]]:
    """First and last memory blocks of those ranges; none for hidden addresses."""
    size = tree.integer("sys/devices/system/memory/block_size_bytes", base=16)
    return [(low // size, high // size) for low, high in driver_ranges(tree) if size and high]


def _by_iomem(
    tree: SysTree, bare: list[int], notes: list[str], *, guess: bool
) -> dict[int, GpuNode]:
    """Nodes, of `bare`, with memory blocks in the driver's ranges; all of them if hidden."""
    ranges = driver_ranges(tree)
    blocks = driver_blocks(tree)
    found: dict[int, GpuNode] = {}
    for number in bare if blocks else ():
        names = tree.names(f"{NODES}/node{number}")
        own = [int(match[1]) for name in names if (match := _BLOCK.fullmatch(name))]
        if any(low <= block <= high for block in own for low, high in blocks):
            found[number] = GpuNode("memory that NVIDIA's driver added")
    if len(blocks) < len(ranges) and guess and not found:
        found = {number: GpuNode("taken for memory that NVIDIA's driver added") for number in bare}
        notes.append(
            f"/{IOMEM} names memory that NVIDIA's driver added and hides its addresses: nodes "
            "without CPUs and without a memory device are taken for it"
        )
    return found
