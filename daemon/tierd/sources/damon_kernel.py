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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tierd._native import ffi, lib
from tierd.core import bounds
from tierd.core.access import Availability
from tierd.core.errors import UnavailableError
from tierd.core.tracefs import TRACEFS, TraceInstance

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


INSTANCE = "tierd-damon"
EVENT = "damon/damon_aggregated"


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
        self._instance = TraceInstance(root, INSTANCE, bounds.DAMON_TRACE_KIB)
        self._event = root / TRACEFS / "events" / EVENT

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
        """Make the instance and enable the event.

        Raises:
            UnavailableError: tracefs refused.
        """
        self._instance.open([EVENT])

    def read(self) -> Regions:
        """All that has been reported since the last call."""
        text, lost = self._instance.read()
        return Regions(parse(text), lost)

    def close(self) -> None:
        """Disable the event and remove the instance."""
        self._instance.close()
