# SPDX-License-Identifier: Apache-2.0
"""DAMON's results through the tracepoint damon:damon_aggregated.

One event a region and aggregation, far cheaper to read than the four sysfs files a
region of `tried_regions`. The instance's buffer is bounded; the kernel counts what it
overwrote, and that count is reported as lost.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tierd._native import ffi, lib
from tierd.core.access import Availability
from tierd.core.errors import UnavailableError
from tierd.core.tuning import DAMON

TRACEFS = Path("sys/kernel/tracing")
INSTANCE = "tierd-damon"
EVENT = Path("events/damon/damon_aggregated")
_OVERRUN = re.compile(rb"^overrun: (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Regions:
    """Aggregated regions, in the order the kernel reported them.

    Attributes:
        table: uint64[n, 4]: target index, start byte, end byte, accesses seen.
        lost: events that the kernel overwrote before they were read.
    """

    table: npt.NDArray[np.uint64]
    lost: int


def parse(data: bytes) -> npt.NDArray[np.uint64]:
    """The regions, uint64[n, 4], in complete lines of trace text; other lines are passed over."""
    table = np.empty((data.count(b"\n") + 1, 4), np.uint64)
    space = ffi.from_buffer("uint64_t[]", table, require_writable=True)
    return table[: lib.tierd_damon_regions(data, len(data), space, len(table))]


class DamonTrace:
    """The private instance; opened by `open`, removed by `close`."""

    def __init__(self, root: Path) -> None:
        self._instance = root / TRACEFS / "instances" / INSTANCE
        self._event = root / TRACEFS / EVENT
        self._fd = -1
        self._tail = b""
        self._overrun = 0
        self._stats: list[str] = []

    def available(self) -> Availability:
        """Whether the tracepoint is there and instances can be made."""
        try:
            found = self._event.is_dir()
        except PermissionError:
            return Availability(False, "tracefs is readable by root only")
        if not found:
            return Availability(
                False,
                "tracefs is not mounted or the kernel lacks the tracepoint damon:damon_aggregated",
                "mount -t tracefs tracefs /sys/kernel/tracing",
            )
        return Availability(True, "damon:damon_aggregated")

    def open(self) -> None:
        """Make the instance (or take over one that a killed tierd left) and enable the event.

        Raises:
            UnavailableError: tracefs refused.
        """
        if self._fd >= 0:
            return
        try:
            self._instance.mkdir(exist_ok=True)
            (self._instance / EVENT / "enable").write_text("0")
            (self._instance / "buffer_size_kb").write_text(str(DAMON.trace_buffer_kib_per_cpu))
            (self._instance / "trace").write_text("")
            self._fd = os.open(self._instance / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
            # One folder for each CPU that there can be.
            self._stats = [str(path) for path in self._instance.glob("per_cpu/cpu*/stats")]
            self._overrun = self._count_overrun()
            (self._instance / EVENT / "enable").write_text("1")
        except OSError as error:
            self.close()
            raise UnavailableError(
                f"tracefs refused the instance {INSTANCE}: {error.strerror} ({error.filename})",
                hint="tierd needs to be root, with tracefs mounted at /sys/kernel/tracing",
            ) from error

    def read(self, limit_bytes: int = 16 << 20) -> Regions:
        """All that has been reported since the last call, at most `limit_bytes` of text."""
        parts = [self._tail]
        left = limit_bytes
        while self._fd >= 0 and left > 0:
            try:
                data = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                break
            if not data:
                break
            parts.append(data)
            left -= len(data)
        text = b"".join(parts)
        cut = text.rfind(b"\n") + 1
        self._tail = text[cut:]
        overrun = self._count_overrun()
        lost, self._overrun = overrun - self._overrun, overrun
        return Regions(parse(text[:cut]), max(0, lost))

    def _count_overrun(self) -> int:
        count = 0
        for stats in self._stats:
            with contextlib.suppress(OSError), open(stats, "rb", buffering=0) as file:  # noqa: PTH123 - speed
                match = _OVERRUN.search(file.read())
                count += int(match[1]) if match else 0
        return count

    def close(self) -> None:
        """Disable the event and remove the instance."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._tail = b""
        with contextlib.suppress(OSError):
            (self._instance / EVENT / "enable").write_text("0")
        with contextlib.suppress(OSError):
            self._instance.rmdir()
