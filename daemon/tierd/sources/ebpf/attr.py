# SPDX-License-Identifier: Apache-2.0
"""`EventAttr`: a perf_event_attr, and its 128 bytes.

Source: include/uapi/linux/perf_event.h, PERF_ATTR_SIZE_VER7 (128 bytes; a kernel that
knows a shorter one accepts it as long as the rest is 0).
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final

ATTR_SIZE: Final = 128
TYPE_SOFTWARE: Final = 1
TYPE_TRACEPOINT: Final = 2
SW_PAGE_FAULTS: Final = 2


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


DISABLED: Final = 1 << 0
EXCLUDE_KERNEL: Final = 1 << 5
PRECISE_SHIFT: Final = 15
WATERMARK: Final = 1 << 14
USE_CLOCKID: Final = 1 << 25
CLOCK_MONOTONIC: Final = 1


@dataclass(frozen=True, slots=True)
class EventAttr:
    """What to count and what a sample carries.

    Attributes:
        type: number of the PMU (/sys/bus/event_source/devices/NAME/type).
        config: the event's encoding; `config1` its second word (load latency and such).
        period: events between two samples.
        sample: what a sample carries.
        precise: 0 to 3, how near the sampled instruction must be (precise_ip).
        exclude_kernel: count user mode only.
    """

    type: int
    config: int
    period: int
    sample: Sample
    config1: int = 0
    config2: int = 0
    precise: int = 0
    exclude_kernel: bool = False

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
        flags = DISABLED | WATERMARK | USE_CLOCKID | self.precise << PRECISE_SHIFT
        if self.exclude_kernel:
            flags |= EXCLUDE_KERNEL
        if counting:
            flags = 0
        head = struct.pack(
            "=IIQQQQQ",
            self.type,
            ATTR_SIZE,
            self.config,
            self.period,
            int(self.sample),
            0,  # read_format
            flags,
        )
        # wakeup_watermark (never wake: the ring is polled), bp_type, config1, config2,
        # branch_sample_type, sample_regs_user, sample_stack_user, clockid.
        wake, clock = (0, 0) if counting else (0x7FFF_FFFF, CLOCK_MONOTONIC)
        tail = struct.pack("=IIQQQQIi", wake, 0, self.config1, self.config2, 0, 0, 0, clock)
        return (head + tail).ljust(ATTR_SIZE, b"\0")
