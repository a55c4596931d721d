# SPDX-License-Identifier: Apache-2.0
"""Asks the module whose page frames are: TIERD_IOC_RESOLVE, docs/reference/kmod-resolve.md."""

from __future__ import annotations

import contextlib
import enum
import fcntl
import os
import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tierd.sources.kmod.uapi import DEVICE

IOC_RESOLVE = 0x40187481
"""_IOW('t', 0x81, struct tierd_resolve)."""
RESOLVE_MAX = 1 << 20
NO_TARGET = 0xFFFF
OwnerStatus = enum.IntEnum("OwnerStatus", "GONE MAPPED SHARED FILE OTHER BUSY", start=0)
OWNER = np.dtype(
    [("vpn", "=u8"), ("pid", "=u4"), ("target", "=u2"), ("order", "u1"), ("status", "u1")]
)
"""struct tierd_owner."""


class FrameOwners:
    """Asks through `fd`, /dev/tierd opened with CAP_SYS_ADMIN."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def resolve(self, pfns: npt.NDArray[np.uint64]) -> npt.NDArray[np.void]:
        """Whose the frames `pfns`, uint64[n], are: `OWNER`[n], each when it was looked up.

        Raises:
            OSError: the module refused.
        """
        pfns = np.ascontiguousarray(pfns, np.uint64)
        owners = np.zeros(len(pfns), OWNER)
        for start in range(0, len(pfns), RESOLVE_MAX):
            part = pfns[start : start + RESOLVE_MAX]
            places = part.ctypes.data, owners.ctypes.data + start * OWNER.itemsize
            request = struct.pack("=QQII", *places, len(part), 0)
            fcntl.ioctl(self._fd, IOC_RESOLVE, request)
        return owners


@contextlib.contextmanager
def frame_owners() -> Iterator[FrameOwners]:
    """An open device for the length of a block."""
    fd = os.open(f"/{DEVICE}", os.O_RDWR | os.O_CLOEXEC)
    try:
        yield FrameOwners(fd)
    finally:
        os.close(fd)
