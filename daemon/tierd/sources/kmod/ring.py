# SPDX-License-Identifier: Apache-2.0
"""`Ring`: the module's records, read where the kernel wrote them.

`views` gives NumPy arrays over the mapping itself, at most two of them (before and behind
the end of the ring); nothing is copied. `consume` hands the place back to the kernel,
which never overwrites a record before.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tierd.core.errors import UnavailableError
from tierd.core.process import preferring, roomiest_node
from tierd.sources.kmod.uapi import (
    DEVICE,
    INFO,
    IOC_KINDS,
    RECORD,
    RING_DATA,
    RING_HEAD,
    RING_MAGIC,
    RING_VERSION,
    Kind,
)

RecordArray = npt.NDArray[np.void]
"""Structured array of dtype `uapi.RECORD`."""


class Ring:
    """The reader's end; `open` makes one.

    Args:
        memory: the whole mapping (a test may hand in any writable buffer).
        fd: the device's descriptor, -1 without one; closed by `close`.

    Raises:
        UnavailableError: the mapping is of another version of the module.
    """

    def __init__(self, memory: Any, fd: int = -1) -> None:
        self._fd = fd
        self._memory = memory
        self._info: Any = np.frombuffer(memory, INFO, count=1)
        info = self._info[0]
        found = (int(info["magic"]), int(info["version"]), int(info["record_size"]))
        if found != (RING_MAGIC, RING_VERSION, RECORD.itemsize):
            self._info = None
            raise UnavailableError(
                f"the module's ring is of another version (magic, version, record: {found})",
                hint="use the module and the daemon of the same release",
            )
        self.capacity = int(info["capacity"])
        # (A field of the whole array: to take it of the one row is slower.)
        self._tail: Any = self._info["tail"]
        self._head: Any = np.frombuffer(memory, np.uint64, count=1, offset=RING_HEAD)
        self._records: Any = np.frombuffer(memory, RECORD, count=self.capacity, offset=RING_DATA)
        self._position = int(self._head[0])

    @classmethod
    def open(cls, root: Path = Path("/"), kinds: Collection[Kind] = ()) -> Ring:
        """Open and map the device; the ring lies where most memory is free.

        Args:
            kinds: records to get; none given: those of the scanner.

        Raises:
            UnavailableError: no device, no permission, no place, or the module is going.
        """
        path = root / DEVICE
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise UnavailableError(f"{path}: {_why(error)}", hint=_hint(error)) from error
        try:
            if kinds:
                mask = sum(1 << kind for kind in set(kinds))
                fcntl.ioctl(fd, IOC_KINDS, struct.pack("=I", mask))
            # It is written and read in order: far memory will do.
            with preferring(roomiest_node(root)):
                with mmap.mmap(fd, mmap.PAGESIZE) as first:
                    size = int(np.frombuffer(bytes(first), INFO, count=1)[0]["size"])
                return cls(mmap.mmap(fd, size), fd)
        except (OSError, ValueError) as error:
            os.close(fd)
            raise UnavailableError(f"{path} cannot be mapped: {error}") from error
        except BaseException:
            os.close(fd)
            raise

    def fileno(self) -> int:
        """The descriptor; it polls readable when a round has ended and there are records."""
        return self._fd

    @property
    def memory(self) -> Any:
        """The whole mapping; valid until `close`."""
        return self._memory

    @property
    def closing(self) -> bool:
        """True when the module asks its readers to close the device."""
        return bool(self._info["closing"][0])

    @property
    def dropped(self) -> int:
        """Records that found the ring full since it was opened."""
        return int(self._info["dropped"][0])

    @property
    def waiting(self) -> int:
        """Unread records."""
        return min(int(self._tail[0]) - self._position, self.capacity)

    @property
    def filled(self) -> float:
        """The share of the ring that is unread records, in [0, 1]."""
        return self.waiting / self.capacity

    def views(self) -> list[RecordArray]:
        """All unread records in their order, without copying; valid until `consume`."""
        count = self.waiting
        start = self._position % self.capacity
        first = min(count, self.capacity - start)
        parts = [self._records[start : start + first], self._records[: count - first]]
        return [part for part in parts if len(part)]

    def consume(self, count: int) -> None:
        """Hand the place of the next `count` records back to the kernel."""
        self._position += count
        self._head[0] = self._position

    def close(self) -> None:
        """Unmap and close. Views must be gone; one that is not keeps the mapping alive."""
        self._info = self._tail = self._head = self._records = None
        if isinstance(self._memory, mmap.mmap):
            # A view that is still used keeps the mapping until it goes.
            with contextlib.suppress(BufferError):
                self._memory.close()
        self._memory = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _why(error: OSError) -> str:
    if error.errno == errno.EBUSY:
        return "as many readers as max_readers allows have it open"
    if error.errno == errno.ESHUTDOWN:
        return "the module is about to be removed"
    return error.strerror or str(error)


def _hint(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "load the module: modprobe tierd"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "it needs root and CAP_SYS_PTRACE"
    return ""
