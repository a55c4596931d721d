# SPDX-License-Identifier: Apache-2.0
"""What host and guest hand each other of a cell: before it, and when it is over.

It lies in the window's file behind what the plugin uses (fpga/include/neoprof_window.h), which is
memory to the guest: nothing in it comes at a time.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import Final

WINDOW_BYTES: Final = 16 << 20
"""Of the whole file: a PCI BAR is a power of 2."""
PARTS: Final = {
    "request": (1 << 20, 1 << 20),
    "counts": (2 << 20, 6 << 20),
    "pages": (8 << 20, 6 << 20),
    "symbols": (14 << 20, 2 << 20),
}
"""Where a part begins and how much room it has: a 64-bit length, and so many bytes."""


class Parcel:
    """The parts in a window's file, or in the guest's device for it."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR)
        try:
            self._map = mmap.mmap(fd, WINDOW_BYTES, mmap.MAP_SHARED)
        finally:
            os.close(fd)

    def put(self, part: str, data: bytes) -> None:
        """Fill a part.

        Raises:
            ValueError: it has not as much room.
        """
        begin, room = PARTS[part]
        if 8 + len(data) > room:
            raise ValueError(f"{len(data)} bytes do not fit the parcel's {part}")
        self._map[begin : begin + 8] = struct.pack("<Q", len(data))
        self._map[begin + 8 : begin + 8 + len(data)] = data

    def get(self, part: str) -> bytes:
        """What a part holds; empty if nobody filled it."""
        begin, room = PARTS[part]
        (length,) = struct.unpack("<Q", self._map[begin : begin + 8])
        if 8 + length > room:
            raise ValueError(f"the parcel's {part} says that it has {length} bytes")
        return bytes(self._map[begin + 8 : begin + 8 + length])
