# SPDX-License-Identifier: Apache-2.0
"""The scans of one process by idle page tracking, a step at a time.

A scan is as the kernel module's (docs/reference/kmod.md). Without a sampling interval a step checks
some pages and marks them again. With one, a part of the pages is marked, and checked so much later;
it is no more than can be marked in a quarter of the interval.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

import numpy as np

from tierd._native import ffi, lib
from tierd.core import bounds
from tierd.core.errors import NotAnsweringError, TargetGoneError, UnavailableError
from tierd.core.pagekey import VPN_BITS
from tierd.core.tuning import SCAN
from tierd.sources.idlepage.host import Pagemap, PagemapReads
from tierd.sources.idlepage.native import END, MOST_UNITS, IdleHistories, IdlePages, spans_of
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
    """Scans of one process; another thread may call `set_ranges`, and read `stats`.

    Args:
        ranges: page numbers to scan, ascending and apart.
        clock, cpu: CLOCK_MONOTONIC, and the CPU time of scans, in ns.

    Attributes:
        stats: struct tierd_target_stats by field name, and whether it is passed over; replaced
            whole.
        part: what is marked and not checked yet.
    """

    def __init__(
        self,
        pages: IdlePages,
        number: int,
        pagemap: Pagemap,
        ranges: Sequence[tuple[int, int]],
        *,
        clock: Callable[[], int],
        cpu: Callable[[], int],
    ) -> None:
        self.number, self.pid = number, pagemap.pid
        self._pages, self._pagemap, self._clock, self._cpu = pages, pagemap, clock, cpu
        self._histories: IdleHistories | None = None
        self._step = ffi.new("struct tierd_idle_step *")
        self._step.key = number << VPN_BITS
        self.stats = dict.fromkeys(("rounds", "ranges", "passed_over"), 0)
        self._ranges, self._spans = ranges, spans_of([])
        self._ranges_used: Sequence[tuple[int, int]] | None = None
        self.part: Part | None = None
        self._interval_us = self._age = self._cursor = 0
        self._in_scan = False
        self.stepped_ns = self._start_ns = self._resume_ns = 0

    def set_ranges(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Scan these page numbers from the next step on."""
        self._ranges = ranges

    def due_ns(self, settings: Settings) -> int:
        """When the next step is due; a marked part is due in time, whatever the budget says."""
        if self.part is not None:
            return self.part.marked_ns + self._interval_us * 1000
        if self._in_scan:
            return self.stepped_ns
        due_ns = self._start_ns + settings.period_us * 1000 if self._start_ns else 0
        return max(due_ns, self._resume_ns)

    def pass_over(self, until_ns: int) -> None:
        """Its pages cannot be read now: begin a new scan, with new histories, at that time."""
        self.stats = {**self.stats, "passed_over": 1}
        self.part, self._in_scan, self._resume_ns = None, False, until_ns

    def step(self, settings: Settings, speed: Speed, reads: PagemapReads) -> list[RecordArray]:
        """Make a step; the records that came of it, valid until the next one of any target.

        Raises:
            TargetGoneError: the process has ended, or runs another program.
            NotAnsweringError: its pages cannot be read now.
            UnavailableError: the kernel refused what no target can be scanned without.
        """
        begun_ns, cpu_ns = self._clock(), self._cpu()
        histories = self._use_ranges()
        if not self._in_scan:
            self._begin(settings, begun_ns, histories)
        step, stop = self._step, END
        step.now_ns, step.age, step.round = begun_ns, self._age, self.stats["rounds"] + 1
        step.hot_scans, step.cold_scans = settings.hot_scans, settings.cold_scans
        step.report_scans = settings.report_scans
        part, budget_ns = self.part, float(bounds.IDLE_STEP_NS)
        if part is not None:
            part.check_ns = part.check_ns or begun_ns
            step.mode, stop = lib.TIERD_IDLE_CHECK, part.end
        elif self._interval_us:
            step.mode = lib.TIERD_IDLE_MARK
            budget_ns = min(budget_ns, self._interval_us * 1000 * SCAN.idle_marking_fraction)
        else:
            step.mode = lib.TIERD_IDLE_BOTH
        most = speed.units(budget_ns)
        reader, error = reads.read(self._pagemap, self._spans, self._cursor, stop, most)
        if error:
            self._unread(-error)
        if self.stats["passed_over"]:
            self.stats = {**self.stats, "passed_over": 0}
        error = self._pages.scan(histories, reader, step)
        self.stepped_ns = self._clock()
        if error:
            raise UnavailableError(f"idle page tracking: {os.strerror(-error)}")
        used_ns = self._cpu() - cpu_ns
        speed.took(int(step.units), used_ns)
        self._count(used_ns)
        return self._settle(begun_ns, histories)

    def _use_ranges(self) -> IdleHistories:
        """The histories, of the ranges that were set last."""
        ranges = self._ranges
        try:
            histories = self._histories or IdleHistories(self._pages)
            self._histories = histories
            if ranges is not self._ranges_used:
                self._spans = spans_of(ranges)
                histories.set_ranges(self._spans)
                self._ranges_used = ranges
                self.stats = {**self.stats, "ranges": len(ranges)}
        except UnavailableError as error:  # There is no memory.
            raise NotAnsweringError(error.message) from error
        return histories

    def _begin(self, settings: Settings, now_ns: int, histories: IdleHistories) -> None:
        before, interval_us = self._interval_us, settings.sampling_interval_us
        apart, passed_over = SCAN.interval_apart_factor, self.stats["passed_over"]
        if (
            passed_over
            or bool(before) != bool(interval_us)
            or not (before <= apart * interval_us and interval_us <= apart * before)
        ):
            histories.forget()
            # The first check comes after marking, and says what others do.
            self._age = 1 if interval_us else 0
        self._interval_us = interval_us
        if self.stats["rounds"] and not passed_over:
            self.stats = {**self.stats, "period_ns": now_ns - self._start_ns}
        self._start_ns, self._cursor, self._in_scan = now_ns, 0, True
        self._found = dict.fromkeys(_FOUND, 0)
        self._cpu_ns = self._intervals_ns = self._parts = 0

    def _unread(self, number: int) -> NoReturn:
        if number == errno.EPERM:
            raise UnavailableError("the kernel hides page frames from this process")
        if number == errno.ESRCH:
            raise TargetGoneError(f"process {self.pid} has ended, or runs another program")
        raise NotAnsweringError(f"/proc/{self.pid}/pagemap: {os.strerror(number)}")

    def _count(self, used_ns: int) -> None:
        self._cpu_ns += used_ns
        for name in _FOUND:
            self._found[name] += int(getattr(self._step, name))

    def _settle(self, begun_ns: int, histories: IdleHistories) -> list[RecordArray]:
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
        return [*records, self._end(histories)] if ended else records

    def _end(self, histories: IdleHistories) -> RecordArray:
        """The scan is complete; the record of its end."""
        rounds = self.stats["rounds"] + 1
        histories.sweep(rounds)
        self._in_scan, found = False, self._found
        self.stats = self.stats | {
            "rounds": rounds,
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
        made["value"] = rounds % (1 << 16)
        return made

    def close(self) -> None:
        """Free the histories; the pagemap is closed when nobody reads it any more."""
        if self._histories is not None:
            self._histories.close()
            self._histories = None


_FOUND: Final = ("pages", "accessed", "became_hot", "newly_hot", "steady", "newly_idle")


def _fraction(part: int, whole: int) -> int:
    return part * WHOLE // whole if whole else 0
