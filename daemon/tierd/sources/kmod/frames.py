# SPDX-License-Identifier: Apache-2.0
"""Whose page frames are: physical pages joined to the virtual pages of targets."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tierd.core.access import AccessBatch, Domain
from tierd.core.errors import UnavailableError
from tierd.core.pagekey import VPN_BITS, U64Array
from tierd.sources.kmod.uapi import DEVICE, IOC_RESOLVE, NO_TARGET, OWNER, RESOLVE_MAX, OwnerStatus


@dataclass(frozen=True, slots=True)
class FrameOwner:
    """Answers about frames, in the order of the question.

    Attributes:
        table: `uapi.OWNER`[n]: vpn, pid, target, order, status (`OwnerStatus`).
    """

    table: npt.NDArray[np.void]

    def count(self, status: OwnerStatus) -> int:
        """Number of frames with this status."""
        return int(np.count_nonzero(self.table["status"] == status))


@dataclass(slots=True)
class JoinCounts:
    """What became of the frames that were joined, since the start."""

    joined: int = 0
    others: int = 0
    """Of processes that are no targets."""
    not_joined: dict[str, int] = field(default_factory=dict)
    """By `OwnerStatus` name, in lower case."""


class FrameJoin:
    """Asks the module; `open` makes one.

    Args:
        fd: /dev/tierd, open; closed by `close`.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.counts = JoinCounts()

    @classmethod
    def open(cls, root: Path = Path("/")) -> FrameJoin:
        """Open the device.

        Raises:
            UnavailableError: no module, or no permission (CAP_SYS_ADMIN).
        """
        path = root / DEVICE
        try:
            return cls(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            raise UnavailableError(
                f"{path}: {error.strerror}", hint="load the module: modprobe tierd"
            ) from error

    def resolve(self, pfns: U64Array) -> FrameOwner:
        """Whose the frames `pfns`, uint64[n], are, each at the moment it was looked up.

        Raises:
            UnavailableError: the module refused.
        """
        pfns = np.ascontiguousarray(pfns, np.uint64)
        owners = np.zeros(len(pfns), OWNER)
        for start in range(0, len(pfns), RESOLVE_MAX):
            part = pfns[start : start + RESOLVE_MAX]
            request = struct.pack(
                "=QQII",
                part.ctypes.data,
                owners.ctypes.data + start * OWNER.itemsize,
                len(part),
                0,
            )
            buffer = ctypes.create_string_buffer(request, len(request))
            try:
                fcntl.ioctl(self._fd, IOC_RESOLVE, buffer)
            except OSError as error:
                raise UnavailableError(
                    f"the module refused to resolve frames: {error.strerror}",
                    hint="it needs CAP_SYS_ADMIN",
                ) from error
        return FrameOwner(owners)

    def join(self, batch: AccessBatch) -> AccessBatch:
        """The same accesses by page key; frames that are no target's are counted and left out.

        A page of a shared mapping is left out too: it cannot be moved for one process.

        Raises:
            UnavailableError: the module refused.
        """
        if batch.domain is Domain.VIRTUAL:
            return batch
        table = self.resolve(batch.page).table
        mapped = table["status"] == OwnerStatus.MAPPED
        ours = mapped & (table["target"] != NO_TARGET)
        self.counts.joined += int(np.count_nonzero(ours))
        self.counts.others += int(np.count_nonzero(mapped & ~ours))
        for status, count in zip(
            *np.unique(table["status"][~mapped], return_counts=True), strict=True
        ):
            name = OwnerStatus(status).name.lower()
            self.counts.not_joined[name] = self.counts.not_joined.get(name, 0) + int(count)
        keys = (table["target"][ours].astype(np.uint64) << np.uint64(VPN_BITS)) | table["vpn"][ours]
        return AccessBatch(
            domain=Domain.VIRTUAL,
            page=keys,
            count=batch.count[ours],
            time_ns=batch.time_ns,
            source=batch.source,
            is_write=None if batch.is_write is None else batch.is_write[ours],
            lost=batch.lost,
        )

    def close(self) -> None:
        """Close the device."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
