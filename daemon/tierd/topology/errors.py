# SPDX-License-Identifier: Apache-2.0
"""Memory errors that the kernel tells of: `MemoryErrors`.

| kind | told by |
|---|---|
| memory_failure | tracepoint ras:memory_failure_event (include/ras/ras_event.h) |
| soft_offline | HardwareCorrupted in /proc/meminfo, where it exceeds those |
| poison | tracepoint cxl:cxl_poison (drivers/cxl/core/trace.h), an entry of a device's list |
| media_corrected, | tracepoints cxl:cxl_general_media and cxl:cxl_dram, event records of a device |
| media_uncorrected | (CXL 3.1, 8.2.9.2.1) |
| corrected, uncorrected | EDAC, `ce_count` and `ue_count` (Documentation/admin-guide/ras.rst) |

An address becomes a node by the memory block that it is in. Nothing here reads the memory itself.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from tierd.core import bounds
from tierd.core.errors import UnavailableError
from tierd.core.logfmt import logfmt
from tierd.core.pagekey import PAGE_SIZE
from tierd.core.tracefs import TraceInstance
from tierd.topology.error_report import ErrorReport, ErrorTotals, Kind, described, parse
from tierd.topology.node_meminfo import node_frames

log = logging.getLogger(__name__)

INSTANCE: Final = "tierd-errors"
EVENTS: Final = (
    "ras/memory_failure_event",
    "cxl/cxl_poison",
    "cxl/cxl_general_media",
    "cxl/cxl_dram",
)
EDAC: Final = "sys/devices/system/edac/mc"
_CORRUPTED: Final = re.compile(r"^HardwareCorrupted: +(\d+) kB$", re.MULTILINE)
LOST_LINE: Final = b" EVENTS]\n"
"""The end of a line that says how many were lost, which `TraceInstance` counts."""


class MemoryErrors:
    """Reads and counts errors, and logs them.

    Args:
        root: of the host's files.
        clock_ns: for the limit of lines in the log.

    Attributes:
        totals: replaced as a whole by `poll`, so any thread may read it.
    """

    def __init__(
        self, root: Path = Path("/"), clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._root = root
        self._clock_ns = clock_ns
        self._trace = TraceInstance(root, INSTANCE, bounds.ERROR_TRACE_KIB)
        self._refused = ""
        self._poison: dict[tuple[str, int], None] = {}
        self._edac: dict[tuple[str, Kind], int] = {}
        self._corrupted = -1
        self._owed = 0
        self._window_ns = -bounds.ERROR_LOG_NS
        self._lines = 0
        self.totals = ErrorTotals()

    @property
    def events(self) -> frozenset[str]:
        """Tracepoints that are read."""
        return frozenset(self._trace.enabled)

    def poll(self) -> None:
        """Take in what happened since the last call; what was before the first one is no news."""
        self._open()
        # Before the events: each is traced before it is counted here (mm/memory-failure.c).
        corrupted = self._read_corrupted()
        text, lost = self._trace.read()
        lines = text.decode("ascii", "replace").splitlines()
        known = [each for line in lines if (each := parse(line)) is not None]
        reports = [each for each in known if self._is_new(each)]
        failures = sum(_takes_a_page(each) for each in known)
        reports += self._soft_offlined(corrupted, failures, lost)
        reports += self._counted_by_edac()
        frames = node_frames(self._root) if any(r.address is not None for r in reports) else []
        reports = [replace(each, node=_node(frames, each.address)) for each in reports]
        counts, latest = dict(self.totals.counts), dict(self.totals.latest)
        for each in reports:
            place = each.node, each.kind
            counts[place] = counts.get(place, 0) + each.count
            latest[place] = each
        self.totals = ErrorTotals(
            counts,
            latest,
            self.totals.lost + lost,
            self.totals.malformed + len(lines) - len(known) - text.count(LOST_LINE),
            self.totals.not_logged + self._log(reports),
        )

    def close(self) -> None:
        """End."""
        self._trace.close()

    def _open(self) -> None:
        """Read the tracepoints that there are; where none can be read, the rest is."""
        try:
            self._trace.open(())
            self._trace.enable(EVENTS)
        except (OSError, UnavailableError) as error:
            if str(error) != self._refused:
                self._refused = str(error)
                log.warning(logfmt(event="memory_errors_not_read", reason=self._refused))

    def _is_new(self, report: ErrorReport) -> bool:
        """Whether it is to be counted: a list of poison has what earlier ones had."""
        if report.kind is not Kind.POISON or report.device_address is None:
            return True
        place = report.device, report.device_address
        if not report.count:
            self._poison.pop(place, None)
            return False
        if place in self._poison:
            return False
        if len(self._poison) >= bounds.ERROR_ADDRESSES:
            self._poison.pop(next(iter(self._poison)))
        self._poison[place] = None
        return True

    def _read_corrupted(self) -> int:
        """Pages of 4 KiB that the kernel took away; -1 where it does not tell."""
        try:
            found = _CORRUPTED.search((self._root / "proc/meminfo").read_text())
        except OSError:
            return -1
        return int(found[1]) * 1024 // PAGE_SIZE if found else -1

    def _soft_offlined(self, corrupted: int, failures: int, lost: int) -> Iterator[ErrorReport]:
        """Pages that were taken away without a memory failure.

        A failure is traced a moment before it is counted, so that one may be owed to the next call.
        """
        before, self._corrupted = self._corrupted, corrupted
        owed, self._owed = self._owed, 0
        if min(before, corrupted) < 0 or corrupted < before:
            return  # memory was removed, or a test took poison back
        others = corrupted - before - failures - owed
        self._owed = min(failures, max(0, -others))
        if others > 0:
            # Where failures are not told, or some were lost, it may have been one.
            told = EVENTS[0] in self.events and not lost
            yield ErrorReport(Kind.SOFT_OFFLINE if told else Kind.MEMORY_FAILURE, count=others)

    def _counted_by_edac(self) -> Iterator[ErrorReport]:
        """What memory controllers counted since the last call."""
        for folder in sorted((self._root / EDAC).glob("mc[0-9]*"))[: bounds.ERROR_CONTROLLERS]:
            for name, kind in (("ce_count", Kind.CORRECTED), ("ue_count", Kind.UNCORRECTED)):
                try:
                    now = int((folder / name).read_text())
                except (OSError, ValueError):
                    continue
                before = self._edac.get((folder.name, kind), now)
                self._edac[folder.name, kind] = now
                if now > before:
                    yield ErrorReport(kind, device=folder.name, count=now - before)

    def _log(self, reports: list[ErrorReport]) -> int:
        """Log reports; how many were left out."""
        now = self._clock_ns()
        if now - self._window_ns >= bounds.ERROR_LOG_NS:
            self._window_ns, self._lines = now, 0
        room = max(0, bounds.ERROR_LOG_LINES - self._lines)
        for each in reports[:room]:
            log.warning(logfmt(event="memory_error", **described(each)))
        self._lines += len(reports[:room])
        left_out = len(reports) - len(reports[:room])
        if left_out:
            log.warning(logfmt(event="memory_errors_not_logged", reports=left_out))
        return left_out


def _takes_a_page(report: ErrorReport) -> bool:
    """Whether the kernel counts a page as taken away (mm/memory-failure.c, action_result)."""
    return report.kind is Kind.MEMORY_FAILURE and not report.detail.startswith("already poisoned")


def _node(frames: list[tuple[int, int, int]], address: int | None) -> int | None:
    """The node whose frames, [first, end), an address is in."""
    if address is None:
        return None
    frame = address // PAGE_SIZE
    return next((node for first, end, node in frames if first <= frame < end), None)
