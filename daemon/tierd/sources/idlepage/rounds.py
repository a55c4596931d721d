# SPDX-License-Identifier: Apache-2.0
"""The scans of one process by idle page tracking, a step at a time.

A scan is as the kernel module's (docs/reference/kmod.md). Without a sampling interval a step checks
some pages and marks them again. With one, a part of the pages is marked, and checked so much later;
it is no more than can be marked in a quarter of the interval.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

import numpy as np

from tierd._native import ffi, lib
from tierd.core import bounds
from tierd.core.errors import TargetGoneError, UnavailableError
from tierd.core.pagekey import VPN_BITS
from tierd.core.tuning import SCAN
from tierd.sources.idlepage.native import END, MOST_UNITS, IdleHistories, IdlePages
from tierd.sources.kmod.ring import RecordArray
from tierd.sources.kmod.uapi import HISTORY, RECORD, WHOLE, Kind


@dataclass(frozen=True, slots=True)
class Settings:
    """How to scan; the module's settings of the same names."""

    period_us: int
    budget_ppm: int
    hot_scans: int
    cold_scans: int
    report_scans: int
    sampling_interval_us: int


class Speed:
    """How many units are handled in a time, by what they took lately."""

    def __init__(self) -> None:
        self._ns_per_unit = SCAN.idle_first_ns_per_unit

    def units(self, cpu_ns: float) -> int:
        """Units that take about this CPU time; a few at least."""
        return int(max(SCAN.idle_fewest_units, min(MOST_UNITS, cpu_ns / self._ns_per_unit)))

    def took(self, units: int, cpu_ns: int) -> None:
        """So many took this."""
        if units >= SCAN.idle_fewest_units:
            self._ns_per_unit += (max(1.0, cpu_ns / units) - self._ns_per_unit) / 4


@dataclass(slots=True)
class Part:
    """Pages that are marked and will be checked.

    Attributes:
        end: page number, or `END`.
        marked_ns, marked_to_ns: when marking began and ended.
        check_ns: when checking began; 0: not yet.
    """

    end: int
    marked_ns: int
    marked_to_ns: int
    check_ns: int = 0


class TargetScan:
    """Scans of one process.

    Args:
        pages: the kernel's flags.
        number: of the target.
        pid: of the process.
        ranges: page numbers to scan, ascending and apart.
        open_pagemap: opens its pagemap.
        clock, cpu: CLOCK_MONOTONIC, and the thread's CPU time, in ns.

    Attributes:
        stats: struct tierd_target_stats by field name.
        part: what is marked and not checked yet.
        stepped_ns: when the last step was made.

    Raises:
        TargetGoneError: there is no such process.
        UnavailableError: it may not be looked at.
    """

    def __init__(
        self,
        pages: IdlePages,
        number: int,
        pid: int,
        ranges: Sequence[tuple[int, int]],
        *,
        open_pagemap: Callable[[int], int],
        clock: Callable[[], int] = time.monotonic_ns,
        cpu: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self.number, self.pid = number, pid
        self._pages, self._clock, self._cpu = pages, clock, cpu
        self._histories = IdleHistories(pages)
        self._step = ffi.new("struct tierd_idle_step *")
        self._step.key = number << VPN_BITS
        self.stats = dict.fromkeys(("rounds", "ranges"), 0)
        self.set_ranges(ranges)
        # Last: nothing after it fails and leaves the file open.
        self._fd = self._opened(open_pagemap)
        self.part: Part | None = None
        self._interval_us = self._age = self._cursor = 0
        self._in_scan = False
        self.stepped_ns = self._start_ns = 0

    def _opened(self, open_pagemap: Callable[[int], int]) -> int:
        try:
            return open_pagemap(self.pid)
        except (FileNotFoundError, ProcessLookupError) as error:
            raise TargetGoneError(f"process {self.pid} has ended") from error
        except OSError as error:
            raise UnavailableError(f"/proc/{self.pid}/pagemap: {error.strerror}") from error

    def set_ranges(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Scan these page numbers from now on."""
        self._histories.set_ranges(ranges)
        self.stats["ranges"] = len(ranges)

    def due_ns(self, settings: Settings) -> int:
        """When the next step is due; a marked part is due in time, whatever the budget says."""
        if self.part is not None:
            return self.part.marked_ns + self._interval_us * 1000
        if self._in_scan:
            return self.stepped_ns
        return self._start_ns + settings.period_us * 1000 if self._start_ns else 0

    def step(self, settings: Settings, speed: Speed) -> list[RecordArray]:
        """Make a step; the records that came of it, valid until the next one of any target.

        Raises:
            TargetGoneError: the process has ended, or runs another program.
            UnavailableError: the kernel refused.
        """
        begun_ns, cpu_ns = self._clock(), self._cpu()
        if not self._in_scan:
            self._begin(settings, begun_ns)
        step = self._step
        step.now_ns, step.age, step.round = begun_ns, self._age, self.stats["rounds"] + 1
        step.hot_scans, step.cold_scans = settings.hot_scans, settings.cold_scans
        step.report_scans = settings.report_scans
        step.pagemap, step.start, step.stop = self._fd, self._cursor, END
        part, budget_ns = self.part, float(bounds.IDLE_STEP_NS)
        if part is not None:
            part.check_ns = part.check_ns or begun_ns
            step.mode, step.stop = lib.TIERD_IDLE_CHECK, part.end
        elif self._interval_us:
            step.mode = lib.TIERD_IDLE_MARK
            budget_ns = min(budget_ns, self._interval_us * 1000 * SCAN.idle_marking_fraction)
        else:
            step.mode = lib.TIERD_IDLE_BOTH
        step.most = speed.units(budget_ns)
        error = self._pages.scan(self._histories, step)
        self.stepped_ns = self._clock()
        if error:
            self._failed(-error)
        used_ns = self._cpu() - cpu_ns
        speed.took(int(step.units), used_ns)
        self._count(used_ns)
        return self._settle(begun_ns)

    def _begin(self, settings: Settings, now_ns: int) -> None:
        before, interval_us = self._interval_us, settings.sampling_interval_us
        apart = SCAN.interval_apart_factor
        if bool(before) != bool(interval_us) or not (
            before <= apart * interval_us and interval_us <= apart * before
        ):
            self._histories.forget()
            # The first check comes after marking, and says what others do.
            self._age = 1 if interval_us else 0
        self._interval_us = interval_us
        if self.stats["rounds"]:
            self.stats["period_ns"] = now_ns - self._start_ns
        self._start_ns, self._cursor, self._in_scan = now_ns, 0, True
        self._found = dict.fromkeys(_FOUND, 0)
        self._cpu_ns = self._intervals_ns = self._parts = 0

    def _failed(self, number: int) -> NoReturn:
        if number == errno.EPERM:
            raise UnavailableError("the kernel hides page frames from this process")
        if number != errno.ESRCH:
            raise UnavailableError(f"idle page tracking: {os.strerror(number)}")
        raise TargetGoneError(f"process {self.pid} has ended, or runs another program")

    def _count(self, used_ns: int) -> None:
        self._cpu_ns += used_ns
        for name in _FOUND:
            self._found[name] += int(getattr(self._step, name))

    def _settle(self, begun_ns: int) -> list[RecordArray]:
        """The cursor after a step, and its records."""
        step, part, ended = self._step, self.part, False
        if step.mode == lib.TIERD_IDLE_MARK:
            end = END if step.done else int(step.next)
            self.part = Part(end, begun_ns, self.stepped_ns)
            return []
        self._cursor = int(step.next)
        if part is None:
            ended = bool(step.done)
        elif step.done:
            # From the middle of marking to the middle of checking.
            marked_ns = part.marked_ns + part.marked_to_ns
            self._intervals_ns += (part.check_ns + self.stepped_ns - marked_ns) // 2
            self._parts += 1
            self.part, ended = None, part.end == END
            self._cursor = part.end
        records = [self._pages.record[: int(step.records)]]
        return [*records, self._end()] if ended else records

    def _end(self) -> RecordArray:
        """The scan is complete; the record of its end."""
        self._histories.sweep(self.stats["rounds"] + 1)
        self._in_scan, found = False, self._found
        self.stats["rounds"] += 1
        self.stats |= {
            "round_ns": self.stepped_ns - self._start_ns,
            "round_cpu_ns": self._cpu_ns,
            "round_pages": found["pages"],
            "round_accessed": found["accessed"],
            "sampling_interval_ns": self._intervals_ns // self._parts if self._parts else 0,
        }
        self._age = min(self._age + 1, HISTORY)
        made = np.zeros(1, RECORD)
        made["page"] = self.number << VPN_BITS | found["accessed"]
        counts = np.array([found["newly_hot"], found["newly_idle"]], np.uint32)
        made["pfn"] = counts.view(np.uint64)
        made["time_ns"], made["kind"], made["node"] = self.stepped_ns, Kind.ROUND, -1
        made["order"] = _fraction(found["newly_hot"], found["became_hot"])
        made["history"] = _fraction(found["newly_idle"], found["steady"])
        made["value"] = self.stats["rounds"] % (1 << 16)
        return made

    def close(self) -> None:
        """Let go of the process."""
        self._histories.close()
        os.close(self._fd)


_FOUND: Final = ("pages", "accessed", "became_hot", "newly_hot", "steady", "newly_idle")


def _fraction(part: int, whole: int) -> int:
    return part * WHOLE // whole if whole else 0
