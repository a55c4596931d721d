# SPDX-License-Identifier: Apache-2.0
"""A ring of records in this process's own memory, laid out as the kernel module's is."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np

from tierd.core.process import preferring, roomiest_node
from tierd.sources.kmod import uapi
from tierd.sources.kmod.ring import RecordArray, Ring
from tierd.sources.kmod.uapi import INFO, RECORD


class MemoryRing(Ring):
    """The reader's end. The descriptor is an eventfd, which the writer makes readable."""

    def consume(self, count: int) -> None:
        """Hand the place of the next `count` records back to the writer."""
        super().consume(count)
        drain(self.fileno())
        if self.waiting:  # A scan has ended meanwhile.
            os.eventfd_write(self.fileno(), 1)


def drain(eventfd: int) -> None:
    """Make an eventfd unreadable."""
    try:
        os.eventfd_read(eventfd)
    except BlockingIOError:
        return


class RingWriter:
    """The writer's end; `reader` is for the other one. Each end has its own thread."""

    def __init__(self, capacity: int, root: Path = Path("/")) -> None:
        size = uapi.RING_DATA + capacity * RECORD.itemsize
        with preferring(roomiest_node(root)):
            self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._memory.write(bytes(size))  # It has its place from now on.
        self.capacity = capacity
        self._info: Any = np.frombuffer(self._memory, INFO, count=1)
        self._head: Any = np.frombuffer(self._memory, np.uint64, count=1, offset=uapi.RING_HEAD)
        self._records: Any = np.frombuffer(
            self._memory, RECORD, count=capacity, offset=uapi.RING_DATA
        )
        self._info["magic"], self._info["version"] = uapi.RING_MAGIC, uapi.RING_VERSION
        self._info["record_size"], self._info["capacity"] = RECORD.itemsize, capacity
        self._info["size"] = size
        self._eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def reader(self) -> MemoryRing:
        """The reader's end, which has a descriptor of its own: either end may be closed first."""
        return MemoryRing(self._memory, os.dup(self._eventfd))

    @property
    def dropped(self) -> int:
        """Records that found no space."""
        return int(self._info["dropped"][0])

    def put(self, records: RecordArray) -> None:
        """Append records; what does not fit is dropped, and counted."""
        tail = int(self._info["tail"][0])
        space = self.capacity - (tail - int(self._head[0]))
        fits = records[:space]
        at = tail % self.capacity
        first = min(len(fits), self.capacity - at)
        self._records[at : at + first] = fits[:first]
        self._records[: len(fits) - first] = fits[first:]
        self._info["dropped"] += len(records) - len(fits)
        self._info["tail"] += len(fits)

    def wake(self) -> None:
        """A scan has ended: the reader's descriptor is readable if there are records."""
        if self._info["tail"][0] != self._head[0]:
            os.eventfd_write(self._eventfd, 1)

    def shut(self) -> None:
        """Ask the reader to let go."""
        self._info["closing"] = 1
        os.eventfd_write(self._eventfd, 1)

    def close(self) -> None:
        """Close the writer's end."""
        os.close(self._eventfd)
