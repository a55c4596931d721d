# SPDX-License-Identifier: Apache-2.0
"""Perf events: what is asked for (`EventAttr`), and the ring buffers with the records that come.

Records are decoded by NumPy, a run of samples at a time; Python looks at single records
only where another kind stands between samples.

Source: include/uapi/linux/perf_event.h (struct perf_event_attr, PERF_ATTR_SIZE_VER7 of 128
bytes: a kernel that knows a shorter one accepts it as long as the rest is 0; struct
perf_event_mmap_page; enum perf_event_type with each record's layout; the order of a sample's
fields).
"""

from __future__ import annotations

import enum
import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tierd.core import bounds
from tierd.core.pagekey import U64Array

_HEADER: Final = struct.Struct("=IHH")


class Type(enum.IntEnum):
    """PERF_TYPE_*: whose event it is."""

    HARDWARE = 0
    SOFTWARE = 1
    TRACEPOINT = 2


class Flag(enum.IntFlag):
    """Bits of struct perf_event_attr behind read_format."""

    DISABLED = 1 << 0
    EXCLUDE_KERNEL = 1 << 5
    WATERMARK = 1 << 14
    PRECISE = 1 << 15
    USE_CLOCKID = 1 << 25


class ReadFormat(enum.IntFlag):
    """PERF_FORMAT_*: what a read of a counter gives."""

    COUNT = 0
    """The count alone."""
    TIMES = 0b11
    """The count, and the ns for which it was enabled and for which it ran."""


class Record(enum.IntEnum):
    """PERF_RECORD_*: what a record is."""

    LOST = 2
    THROTTLE = 5
    SAMPLE = 9
    LOST_SAMPLES = 13


class Layout:
    """Other numbers of the interface."""

    ATTR_SIZE: Final = 128
    INSTRUCTIONS: Final = 1
    """PERF_COUNT_HW_INSTRUCTIONS."""
    PAGE_FAULTS: Final = 2
    """PERF_COUNT_SW_PAGE_FAULTS."""
    CLOCK_MONOTONIC: Final = 1
    DATA_HEAD: Final = 1024
    """Of struct perf_event_mmap_page."""
    OP_STORE: Final = 0x4
    """PERF_MEM_OP_STORE in the lowest five bits of a sample's data source."""


class Sample(enum.IntFlag):
    """PERF_SAMPLE_*: what a record in the ring buffer carries."""

    IP = 1 << 0
    TID = 1 << 1
    TIME = 1 << 2
    ADDR = 1 << 3
    CPU = 1 << 7
    PERIOD = 1 << 8
    DATA_SRC = 1 << 15
    PHYS_ADDR = 1 << 19


@dataclass(frozen=True, slots=True)
class EventAttr:
    """What to count and what a sample carries.

    Attributes:
        type: number of the PMU (/sys/bus/event_source/devices/NAME/type).
        config: the event's encoding; `config1` its second word (load latency and such).
        precise: 0 to 3, how near the sampled instruction must be (precise_ip).
    """

    type: int
    config: int
    period: int
    sample: Sample
    config1: int = 0
    config2: int = 0
    precise: int = 0
    exclude_kernel: bool = False
    read_format: ReadFormat = ReadFormat.COUNT

    def encode(self, *, counting: bool = False) -> bytes:
        """The 128 bytes; the event starts disabled, with CLOCK_MONOTONIC times.

        Args:
            counting: it only counts, without samples, and does so at once: all that uncore
                PMUs can.

        Raises:
            ValueError: `precise` is not between 0 and 3.
        """
        if not 0 <= self.precise <= 3:
            raise ValueError(f"precise {self.precise} is not between 0 and 3")
        # Events that fire in NMI context take NMI-safe clocks only; CLOCK_MONOTONIC is one.
        flags: int = Flag.DISABLED | Flag.WATERMARK | Flag.USE_CLOCKID | self.precise * Flag.PRECISE
        if counting:
            flags = 0
        if self.exclude_kernel:
            flags |= Flag.EXCLUDE_KERNEL
        head = struct.pack(
            "=IIQQQQQ",
            self.type,
            Layout.ATTR_SIZE,
            self.config,
            self.period,
            int(self.sample),
            int(self.read_format),
            flags,
        )
        # wakeup_watermark (never wake: the ring is polled), bp_type, config1, config2,
        # branch_sample_type, sample_regs_user, sample_stack_user, clockid.
        wake, clock = (0, 0) if counting else (0x7FFF_FFFF, Layout.CLOCK_MONOTONIC)
        tail = struct.pack("=IIQQQQIi", wake, 0, self.config1, self.config2, 0, 0, 0, clock)
        return (head + tail).ljust(Layout.ATTR_SIZE, b"\0")


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
        if kind == Record.SAMPLE and length == size and at + size <= len(data):
            space = min((len(data) - at) // size, bounds.BPF_DECODE_SAMPLES)
            block = np.frombuffer(data, dtype, space, at)
            other = (block["type"] != Record.SAMPLE) | (block["size"] != size)
            run = int(other.argmax()) if other.any() else space
            runs.append(block[:run])
            at += run * size
            continue
        if length < _HEADER.size or at + length > len(data):
            break
        if kind == Record.LOST and length >= 24:
            lost += int(struct.unpack_from("=Q", data, at + 16)[0])
        elif kind == Record.LOST_SAMPLES and length >= 16:
            lost += int(struct.unpack_from("=Q", data, at + 8)[0])
        elif kind == Record.THROTTLE:
            throttled += 1
        at += length
    return Records(joined(runs, dtype), lost, throttled, len(data) - at)


def joined(runs: Sequence[npt.NDArray[np.void]], dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Runs of records as one array; a single run is not copied."""
    if len(runs) == 1:
        return runs[0]
    return np.concatenate(runs) if runs else np.empty(0, dtype)


def is_store(data_src: U64Array) -> npt.NDArray[np.bool_]:
    """Which samples, by their data source, uint64[n], were stores."""
    stores: npt.NDArray[np.bool_] = (data_src & np.uint64(Layout.OP_STORE)) != 0
    return stores


class Ring:
    """The ring buffer of one event; `close` before the event is closed.

    Args:
        pages: of data, a power of two.

    Raises:
        OSError: the kernel refused (perf_event_mlock_kb, RLIMIT_MEMLOCK).
    """

    def __init__(self, fd: int, pages: int) -> None:
        self._size = pages * mmap.PAGESIZE
        self._memory = mmap.mmap(
            fd, self._size + mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE
        )
        marks: Any = np.frombuffer(self._memory, np.uint64, 2, Layout.DATA_HEAD)
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
