# SPDX-License-Identifier: Apache-2.0
"""Where QEMU puts a machine's memory in the guest's physical address space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

GIB: Final = 2**30
_ABOVE: Final = 4 * GIB
"""Where memory goes on behind the PCI hole."""
_ALL_BELOW: Final = 0xB000_0000
"""A machine with less memory than this has all of it below the hole."""
_LOW: Final = 2 * GIB
"""What lies below the hole of a larger one (QEMU, hw/i386/pc_q35.c, pc_q35_init)."""


@dataclass(frozen=True, slots=True)
class PhysicalRange:
    """Guest-physical bytes [base, base + size)."""

    base: int
    size: int


def pieces(offset: int, size: int, total: int) -> tuple[PhysicalRange, ...]:
    """Guest-physical ranges of `size` bytes at `offset` of `total` bytes of memory, ascending."""
    low = total if total < _ALL_BELOW else _LOW
    found = []
    if offset < low:
        found.append(PhysicalRange(offset, min(size, low - offset)))
    if offset + size > low:
        begin = max(offset, low)
        found.append(PhysicalRange(_ABOVE + begin - low, offset + size - begin))
    return tuple(found)


def node_ranges(sizes: Sequence[int]) -> tuple[tuple[PhysicalRange, ...], ...]:
    """Guest-physical ranges of each node of a machine whose nodes have `sizes` bytes."""
    total = sum(sizes)
    begins = [sum(sizes[:node]) for node in range(len(sizes))]
    return tuple(pieces(begin, size, total) for begin, size in zip(begins, sizes, strict=True))
