# SPDX-License-Identifier: Apache-2.0
"""Perf ring buffers and the records in them.

Records are decoded by NumPy, a run of samples at a time; Python looks at single records
only where another kind stands between samples.

Source: include/uapi/linux/perf_event.h (struct perf_event_mmap_page; enum
perf_event_type with each record's layout; the order of a sample's fields).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tierd.core.pagekey import U64Array
from tierd.sources.ebpf.attr import Sample

RECORD_LOST: Final = 2
RECORD_THROTTLE: Final = 5
RECORD_SAMPLE: Final = 9
RECORD_LOST_SAMPLES: Final = 13
_HEADER: Final = struct.Struct("=IHH")
_DATA_HEAD: Final = 1024
_RUN: Final = 8192
"""Samples looked at in one step of decoding."""

_FIELDS: Final[tuple[tuple[Sample, list[tuple[str, str]]], ...]] = (
    (Sample.IP, [("ip", "u8")]),
    (Sample.TID, [("pid", "u4"), ("tid", "u4")]),
    (Sample.TIME, [("time", "u8")]),
    (Sample.ADDR, [("addr", "u8")]),
    (Sample.CPU, [("cpu", "u4"), ("cpu_spare", "u4")]),
    (Sample.PERIOD, [("period", "u8")]),
    (Sample.DATA_SRC, [("data_src", "u8")]),
    (Sample.PHYS_ADDR, [("phys_addr", "u8")]),
)
"""Sample fields in the order in which the kernel writes them."""

MEM_OP_STORE: Final = 0x4
"""PERF_MEM_OP_STORE in the lowest five bits of a sample's data source."""


def sample_dtype(sample: Sample) -> np.dtype[np.void]:
    """The record, header included, of a sample with these fields."""
    fields = [("type", "u4"), ("misc", "u2"), ("size", "u2")]
    for flag, own in _FIELDS:
        if flag & sample:
            fields += own
    return np.dtype(fields)


@dataclass(frozen=True, slots=True)
class Records:
    """Decoded records.

    Attributes:
        samples: structured array with the fields of `sample_dtype`.
        lost: samples that the kernel says it had no room for.
        throttled: times that the kernel stopped the event for taking too much time.
        malformed: bytes that made no sense.
    """

    samples: npt.NDArray[np.void]
    lost: int = 0
    throttled: int = 0
    malformed: int = 0


def decode(data: bytes, dtype: np.dtype[np.void]) -> Records:
    """The records in `data`, which holds whole records."""
    runs: list[npt.NDArray[np.void]] = []
    at = lost = throttled = 0
    size = dtype.itemsize
    while at + _HEADER.size <= len(data):
        kind, _, length = _HEADER.unpack_from(data, at)
        if kind == RECORD_SAMPLE and length == size and at + size <= len(data):
            space = min((len(data) - at) // size, _RUN)
            block = np.frombuffer(data, dtype, space, at)
            other = (block["type"] != RECORD_SAMPLE) | (block["size"] != size)
            run = int(other.argmax()) if other.any() else space
            runs.append(block[:run])
            at += run * size
            continue
        if length < _HEADER.size or at + length > len(data):
            break
        if kind == RECORD_LOST and length >= 24:
            lost += int(struct.unpack_from("=Q", data, at + 16)[0])
        elif kind == RECORD_LOST_SAMPLES and length >= 16:
            lost += int(struct.unpack_from("=Q", data, at + 8)[0])
        elif kind == RECORD_THROTTLE:
            throttled += 1
        at += length
    return Records(joined(runs, dtype), lost, throttled, len(data) - at)


def joined(runs: Sequence[npt.NDArray[np.void]], dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """One array of several."""
    if len(runs) == 1:
        return runs[0]
    return np.concatenate(runs) if runs else np.empty(0, dtype)


def is_store(data_src: U64Array) -> npt.NDArray[np.bool_]:
    """Which samples, by their data source, uint64[n], were stores."""
    stores: npt.NDArray[np.bool_] = (data_src & np.uint64(MEM_OP_STORE)) != 0
    return stores


class Ring:
    """The ring buffer of one event; `close` before the event is closed.

    Args:
        fd: the event.
        pages: of data, a power of two.

    Raises:
        OSError: the kernel refused (perf_event_mlock_kb, RLIMIT_MEMLOCK).
    """

    def __init__(self, fd: int, pages: int) -> None:
        self._size = pages * mmap.PAGESIZE
        self._memory = mmap.mmap(
            fd, self._size + mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE
        )
        marks: Any = np.frombuffer(self._memory, np.uint64, 2, _DATA_HEAD)
        self._marks = marks

    def read(self) -> bytes:
        """The whole records written since the last call, and room for new ones."""
        head, tail = int(self._marks[0]), int(self._marks[1])
        if head == tail:
            return b""
        first, length = tail % self._size, head - tail
        base = mmap.PAGESIZE
        until_end = min(length, self._size - first)
        data = self._memory[base + first : base + first + until_end]
        if length > until_end:
            data += self._memory[base : base + length - until_end]
        self._marks[1] = head
        return data

    def close(self) -> None:
        """Unmap."""
        self._marks = np.zeros(2, np.uint64)
        self._memory.close()
