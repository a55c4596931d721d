# SPDX-License-Identifier: Apache-2.0
"""Reads the GPUs of this host through NVML (`nvidia-ml-py`, the extra "gpu").

NVLink ends are matched by PCI bus; a link to a switch reaches every GPU that has links
to a switch too. Field names are those of the "NVML API Reference Guide".

A GPU of which NVML does not tell what serving it needs is left out with a note, and the others
are served: one that is lost, one without memory of its own (GB10 answers "Not Supported"), one
that is divided by MIG (clients there have the UUIDs of its parts, and each part has its memory).
"""

from __future__ import annotations

import contextlib
import importlib
import uuid as uuids
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from tierd.core.access import Availability
from tierd.core.errors import UnavailableError
from tierd_gpu.links import PCIE_BYTES_PER_S, Gpu, GpuTopology, pair_bandwidth

HINT = "pip install 'tierd[gpu]', and the NVIDIA driver must be loaded"
PEER_OVER_PCIE = 0.8
"""Share of the host link that peer traffic over PCIe gets."""


def _library() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise UnavailableError("the Python package nvidia-ml-py is missing", hint=HINT) from error


@dataclass(frozen=True, slots=True)
class _Device:
    """A GPU that can be served: its handle, NVML's index of it, and who it is."""

    handle: Any
    number: int
    uuid: bytes
    total_bytes: int


class Nvml:
    """An open NVML; a context manager.

    Raises:
        UnavailableError: no package, no driver, or no GPU.
    """

    def __init__(self) -> None:
        self._nvml = _library()
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise UnavailableError(f"NVML does not start: {error}", hint=HINT) from error
        try:
            count = int(self._nvml.nvmlDeviceGetCount())
        except self._nvml.NVMLError as error:
            self.close()
            raise UnavailableError(f"NVML does not count GPUs: {error}", hint=HINT) from error
        if not count:
            self.close()
            raise UnavailableError("NVML finds no GPU", hint=HINT)
        self._left_out: list[str] = []
        found = (self._device(number) for number in range(count))
        self._devices = [device for device in found if device is not None]

    def _device(self, number: int) -> _Device | None:
        """The GPU of this number; None, with a note, for one that cannot be served."""
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(number)
            uuid = uuids.UUID(_text(self._nvml.nvmlDeviceGetUUID(handle)).removeprefix("GPU-"))
        except (self._nvml.NVMLError, ValueError) as error:
            self._left_out.append(f"GPU {number} is left out: NVML says {error}")
            return None
        name = f"GPU {number} ({_text(self._ask('nvmlDeviceGetName', handle) or 'no name')})"
        mode = self._ask("nvmlDeviceGetMigMode", handle)
        if mode is not None and int(mode[0]):
            self._left_out.append(f"{name} is left out: it is divided by MIG")
            return None
        try:
            total = int(self._nvml.nvmlDeviceGetMemoryInfo(handle).total)
        except self._nvml.NVMLError_NotSupported:
            total = 0
        except self._nvml.NVMLError as error:
            self._left_out.append(f"{name} is left out: of its memory NVML says {error}")
            return None
        if not total:
            self._left_out.append(f"{name} is left out: it has no memory of its own")
            return None
        return _Device(handle, number, uuid.bytes, total)

    def __enter__(self) -> Nvml:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let NVML go."""
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def free_bytes(self) -> list[int | None]:
        """Free memory of each GPU of the topology; None for one that is lost."""
        told = (self._ask("nvmlDeviceGetMemoryInfo", device.handle) for device in self._devices)
        return [None if memory is None else int(memory.free) for memory in told]

    def own_bytes(self) -> list[int | None]:
        """Memory of each GPU that processes have for themselves; None where it is not told.

        Contexts and plain allocations are in it, managed memory is not.
        """
        found: list[int | None] = []
        for device in self._devices:
            running = self._ask("nvmlDeviceGetComputeRunningProcesses", device.handle)
            used = [process.usedGpuMemory for process in running or ()]
            known = running is not None and all(bytes_ is not None for bytes_ in used)
            found.append(sum(used) if known else None)
        return found

    def topology(self) -> GpuTopology:
        """The GPUs that can be served and the ways between them; notes name the others."""
        notes = list(self._left_out)
        gpus = tuple(self._gpu(index) for index in range(len(self._devices)))
        count = len(gpus)
        rate = np.zeros((count + 1, count + 1))
        for index in range(count):
            rate[index, -1] = rate[-1, index] = self._pcie(index, notes)
        ends = [self._link_ends(index) for index in range(count)]
        links = np.zeros((count, count), np.int64)
        for a in range(count):
            for b in range(count):
                if a == b:
                    continue
                direct = ends[a][0].get(gpus[b].pci_bus, 0) if gpus[b].pci_bus else 0
                links[a, b] = direct or min(ends[a][1], ends[b][1])
                wide = pair_bandwidth(self._link_generation(a), int(links[a, b]))
                rate[a, b] = wide or PEER_OVER_PCIE * min(rate[a, -1], rate[-1, b])
        notes += [
            f"gpu {index} is NVML's GPU {device.number}"
            for index, device in enumerate(self._devices)
            if device.number != index
        ]
        if not links.any() and count > 1:
            notes.append("no NVLink: peers are reached over PCIe")
        return GpuTopology(gpus, rate, links, tuple(notes))

    def _ask(self, name: str, *arguments: Any) -> Any:
        """One figure, or None where this GPU or this driver does not tell it."""
        with contextlib.suppress(self._nvml.NVMLError, AttributeError):
            return getattr(self._nvml, name)(*arguments)
        return None

    def _gpu(self, index: int) -> Gpu:
        device = self._devices[index]
        node = self._ask("nvmlDeviceGetNumaNodeId", device.handle)
        return Gpu(
            index=index,
            uuid=device.uuid,
            name=_text(self._ask("nvmlDeviceGetName", device.handle) or "no name"),
            total_bytes=device.total_bytes,
            pci_bus=_bus(self._ask("nvmlDeviceGetPciInfo", device.handle)),
            numa_node=int(node) if node is not None and int(node) >= 0 else None,
        )

    def _pcie(self, index: int, notes: list[str]) -> float:
        handle, number = self._devices[index].handle, self._devices[index].number
        generation = self._ask("nvmlDeviceGetMaxPcieLinkGeneration", handle)
        width = self._ask("nvmlDeviceGetMaxPcieLinkWidth", handle)
        if not generation or not width:
            notes.append(f"GPU {number} does not tell its PCIe link: taken for generation 3 x16")
            generation, width = 3, 16
        lane = PCIE_BYTES_PER_S.get(int(generation), PCIE_BYTES_PER_S[3])
        return lane * int(width)

    def _link_generation(self, index: int) -> int:
        version = self._ask("nvmlDeviceGetNvLinkVersion", self._devices[index].handle, 0)
        return int(version) if version else 2

    def _link_ends(self, index: int) -> tuple[dict[str, int], int]:
        """Active links by the bus of the GPU at the other end, and those to switches."""
        handle = self._devices[index].handle
        direct: dict[str, int] = {}
        switched = 0
        for link in range(int(getattr(self._nvml, "NVML_NVLINK_MAX_LINKS", 18))):
            if not self._ask("nvmlDeviceGetNvLinkState", handle, link):
                continue
            kind = self._ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
            if kind == getattr(self._nvml, "NVML_NVLINK_DEVICE_TYPE_SWITCH", 2):
                switched += 1
                continue
            bus = _bus(self._ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link))
            if bus:
                direct[bus] = direct.get(bus, 0) + 1
        return direct, switched


def _bus(pci: Any) -> str:
    if pci is None:
        return ""
    return _text(pci.busId).lower()


def _text(value: Any) -> str:
    """Text, which older bindings give as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def available() -> Availability:
    """Whether this host has GPUs that NVML tells of, and how they are joined."""
    try:
        with Nvml() as nvml:
            found = nvml.topology()
    except UnavailableError as error:
        return Availability(False, error.message, error.hint)
    left_out = [note for note in found.notes if "is left out" in note]
    if not found.gpus:
        return Availability(False, "; ".join(left_out), "GPUs with their own memory are served")
    counts = Counter(gpu.name for gpu in found.gpus)
    parts = [f"{count} x {name}" for name, count in counts.items()]
    wide = int(found.nvlinks.max(initial=0))
    if len(found.gpus) > 1:
        parts.append(f"up to {wide} NVLinks a pair" if wide else "no NVLink")
    nodes = [str(gpu.numa_node) for gpu in found.gpus if gpu.numa_node is not None]
    if nodes:
        parts.append(f"memory as NUMA node {', '.join(nodes)}")
    return Availability(True, "; ".join([", ".join(parts), *left_out]))
