# SPDX-License-Identifier: Apache-2.0
"""`GpuTopology`: the GPUs of a host and how wide the ways between them are.

Places are GPU numbers; `HOST` (-1) is host memory. Matrices have a last row and
column for the host, so that a place indexes them as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

F64Array = npt.NDArray[np.float64]

HOST: Final = -1
CHUNK_BYTES: Final = 2 << 20
"""The driver's block of managed memory, and the unit of every move."""
NVLINK_BYTES_PER_S: Final = {
    1: (20e9, 40e9),
    2: (25e9, 48e9),
    3: (25e9, 48e9),
    4: (25e9, 48e9),
    5: (50e9, 96e9),
}
"""A link's bandwidth in one direction by NVLink generation, and that measured on two
links side by side (48 GB/s on doubled NVLink 2 pairs: HUVM, USENIX ATC 2022, section 5)."""
PCIE_BYTES_PER_S: Final = {1: 0.2e9, 2: 0.4e9, 3: 0.75e9, 4: 1.5e9, 5: 3.1e9, 6: 6.2e9}
"""What a PCIe lane carries in one direction by generation, protocol overhead taken off."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU.

    Attributes:
        index: tierd's number for it: NVML's index, without the GPUs that are left out.
        uuid: 16 bytes, what clients know it by.
        name: the product's name.
        total_bytes: its memory.
        pci_bus: "00000000:10:00.0".
        numa_node: the NUMA node its memory is (coherent GPUs), or None.
    """

    index: int
    uuid: bytes
    name: str
    total_bytes: int
    pci_bus: str = ""
    numa_node: int | None = None


@dataclass(frozen=True, slots=True)
class GpuTopology:
    """All GPUs of a host.

    Attributes:
        gpus: by number.
        bytes_per_s: float64[n+1, n+1], from place to place; 0 where there is no way.
        nvlinks: int64[n, n], NVLinks between two GPUs (through switches, all of one's).
        notes: what could not be read and what was assumed.
    """

    gpus: tuple[Gpu, ...]
    bytes_per_s: F64Array
    nvlinks: npt.NDArray[np.int64]
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        size = len(self.gpus) + 1
        if self.bytes_per_s.shape != (size, size):
            raise ValueError(f"{len(self.gpus)} GPUs but bandwidths of {self.bytes_per_s.shape}")

    @property
    def chunk_ns(self) -> F64Array:
        """float64[n+1, n+1]: nanoseconds one chunk takes from place to place."""
        with np.errstate(divide="ignore"):
            times: F64Array = CHUNK_BYTES / self.bytes_per_s * 1e9
        np.fill_diagonal(times, 0.0)
        return times

    def index_of(self, uuid: bytes) -> int | None:
        """The number of the GPU with `uuid`, or None."""
        return next((gpu.index for gpu in self.gpus if gpu.uuid == uuid), None)


def pair_bandwidth(generation: int, links: int) -> float:
    """Bytes per second in one direction over `links` NVLinks of one generation.

    The first and the doubled figure are measured; more links scale like the doubled one.
    """
    if links <= 0:
        return 0.0
    single, double = NVLINK_BYTES_PER_S.get(generation, NVLINK_BYTES_PER_S[2])
    return single if links == 1 else double / 2 * links
