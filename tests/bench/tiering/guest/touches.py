# SPDX-License-Identifier: Apache-2.0
"""In which order a process' pages are touched first, as the kernel's page faults tell it."""

from __future__ import annotations

import fcntl
import os

import memory
import numpy as np

from tierd.sources.ebpf.perf import (
    EventAttr,
    Layout,
    Ring,
    Sample,
    Type,
    decode,
    sample_dtype,
)
from tierd.sources.ebpf.syscalls import Event, perf_event_open

RING_PAGES = 1024
_SAMPLE = Sample.TID | Sample.ADDR


class Touches:
    """Records faults from its making on. Use as a context manager."""

    def __init__(self) -> None:
        attributes = EventAttr(Type.SOFTWARE, Layout.PAGE_FAULTS, period=1, sample=_SAMPLE)
        self._fd = perf_event_open(attributes.encode(), pid=-1, cpu=0)
        self._ring = Ring(self._fd, RING_PAGES)
        fcntl.ioctl(self._fd, Event.ENABLE, 0)

    def __enter__(self) -> Touches:
        return self

    def __exit__(self, *_: object) -> None:
        self._ring.close()
        os.close(self._fd)

    def order(self, pid: int) -> memory.Pages:
        """Virtual page numbers of a process in the order of their first fault.

        Raises:
            RuntimeError: faults were lost.
        """
        records = decode(self._ring.read(), sample_dtype(_SAMPLE))
        if records.lost or records.throttled or records.malformed:
            raise RuntimeError(f"page faults were lost: {records}")
        own = records.samples["addr"][records.samples["pid"] == pid] // np.uint64(memory.PAGE)
        _, first = np.unique(own, return_index=True)
        return np.asarray(own[np.sort(first)])
