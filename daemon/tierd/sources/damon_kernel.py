# SPDX-License-Identifier: Apache-2.0
"""DAMON in the kernel: `DamonTree`, its sysfs tree, and `DamonTrace`, its results.

tierd uses one kdamond with one context (Documentation/admin-guide/mm/damon/usage.rst). Results come
through the tracepoint damon:damon_aggregated, one event a region and aggregation, far cheaper to
read than the four sysfs files a region of `tried_regions`. The buffer of the trace instance is
bounded; the kernel counts what it overwrote, and that count is reported as lost.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tierd._native import ffi, lib
from tierd.core import bounds
from tierd.core.access import Availability
from tierd.core.errors import UnavailableError

ADMIN = Path("sys/kernel/mm/damon/admin")
OPERATIONS = "fvaddr"
"""Fixed virtual ranges: tierd gives the ranges, so the heap and small areas are not missed."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """Monitoring attributes; intervals in microseconds."""

    sample_us: int
    aggregation_us: int
    min_regions: int
    max_regions: int


@dataclass(frozen=True, slots=True)
class TargetRegions:
    """One DAMON target: a pid and its [start, end) byte ranges, ascending."""

    pid: int
    ranges: Sequence[tuple[int, int]]


class DamonTree:
    """Writes the tree. Errors are `UnavailableError`s that name the file."""

    def __init__(self, root: Path, owner_file: Path) -> None:
        self._kdamonds = root / ADMIN / "kdamonds"
        self._kdamond = self._kdamonds / "0"
        self._context = self._kdamond / "contexts" / "0"
        self._owner_file = owner_file
        self._made = False
        self._written: list[TargetRegions] = []

    def available(self) -> Availability:
        """Whether the tree is there, can be written, and nobody else uses it."""
        if not self._kdamonds.is_dir():
            return Availability(
                False,
                "the kernel has no DAMON sysfs interface",
                "use a kernel with CONFIG_DAMON_SYSFS and CONFIG_DAMON_VADDR",
            )
        try:
            count = int((self._kdamonds / "nr_kdamonds").read_text())
        except PermissionError:
            return Availability(False, "DAMON's sysfs files are readable by root only")
        for number in range(count):
            if self._is_ours(number):
                continue
            with contextlib.suppress(OSError):
                if (self._kdamonds / str(number) / "state").read_text().strip() == "on":
                    pid = (self._kdamonds / str(number) / "pid").read_text().strip()
                    return Availability(
                        False,
                        f"another user runs DAMON (kdamond {number}, pid {pid})",
                        "stop it (damo stop), or choose another source",
                    )
        return Availability(True, "DAMON for virtual addresses")

    def _is_ours(self, number: int) -> bool:
        """True for the kdamond that we, or a tierd that was killed, started."""
        try:
            owned = self._owner_file.read_text().split()
            return owned == [(self._kdamonds / str(number) / "pid").read_text().strip()]
        except OSError:
            return False

    def start(self, attributes: Attributes, targets: Sequence[TargetRegions]) -> None:
        """Make the context, or change the running one, and let it run."""
        if not self._made:
            self.stop()
            self._write(self._kdamonds / "nr_kdamonds", 1)
            self._write(self._kdamond / "contexts" / "nr_contexts", 1)
            self._write(self._context / "operations", OPERATIONS)
            self._made = True
        monitoring = self._context / "monitoring_attrs"
        self._write(monitoring / "intervals" / "sample_us", attributes.sample_us)
        self._write(monitoring / "intervals" / "aggr_us", attributes.aggregation_us)
        self._write(monitoring / "intervals" / "update_us", 10 * attributes.aggregation_us)
        self._write(monitoring / "nr_regions" / "max", attributes.max_regions)
        self._write(monitoring / "nr_regions" / "min", attributes.min_regions)
        if list(targets) != self._written:
            self._write_targets(targets)
        if self.running():
            try:
                self._write(self._kdamond / "state", "commit")
                return
            except UnavailableError:
                # A target that just died makes the commit fail: start afresh.
                self._off()
        self._write(self._kdamond / "state", "on")
        self._owner_file.parent.mkdir(parents=True, exist_ok=True)
        self._owner_file.write_text((self._kdamond / "pid").read_text())

    def _write_targets(self, targets: Sequence[TargetRegions]) -> None:
        self._written = []
        folder = self._context / "targets"
        self._write(folder / "nr_targets", len(targets))
        for index, target in enumerate(targets):
            own = folder / str(index)
            self._write(own / "pid_target", target.pid)
            self._write(own / "regions" / "nr_regions", len(target.ranges))
            for number, (start, end) in enumerate(target.ranges):
                self._write(own / "regions" / str(number) / "start", start)
                self._write(own / "regions" / str(number) / "end", end)
        self._written = list(targets)

    def running(self) -> bool:
        """True while the kdamond runs (it ends by itself when all targets are gone)."""
        try:
            return (self._kdamond / "state").read_text().strip() == "on"
        except OSError:
            return False

    def kdamond_pid(self) -> int | None:
        """The kdamond's pid while it runs."""
        try:
            pid = int((self._kdamond / "pid").read_text())
        except (OSError, ValueError):
            return None
        return pid if pid > 0 else None

    def _off(self) -> None:
        with contextlib.suppress(UnavailableError):
            self._write(self._kdamond / "state", "off")

    def stop(self) -> None:
        """Stop the kdamond if it is ours, and remove the tree."""
        if self._kdamond.is_dir() and (self._made or self._is_ours(0)):
            self._off()
            with contextlib.suppress(UnavailableError):
                self._write(self._kdamonds / "nr_kdamonds", 0)
        self._owner_file.unlink(missing_ok=True)
        self._made = False
        self._written = []

    def _write(self, path: Path, value: int | str) -> None:
        text = str(value).encode()
        error = -lib.tierd_write_damon(os.fsencode(path), text, len(text))
        if error:
            raise _refusal(value, path, error)


def _refusal(value: int | str, path: Path, error: int) -> UnavailableError:
    return UnavailableError(
        f"DAMON refused {value!r} for {path}: {os.strerror(error)}",
        hint="tierd doctor tells what this kernel's DAMON can do",
    )


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
            (self._instance / "buffer_size_kb").write_text(str(bounds.DAMON_TRACE_KIB))
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
