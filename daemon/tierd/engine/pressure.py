# SPDX-License-Identifier: Apache-2.0
"""Whether the host or a control group is under pressure: stalls (PSI), and ping-pong of pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from tierd.core import bounds
from tierd.core.migration import MigrationResult
from tierd.core.pagekey import target_of
from tierd.core.tuning import PACING
from tierd.policy.limits import Pressure

_SOME: Final = re.compile(rb"^some avg10=(\d+\.\d+) ", re.MULTILINE)


def parse_pressure(text: bytes) -> float:
    """PSI's "some avg10" as a fraction; 0 where the text has none."""
    match = _SOME.search(text)
    return min(1.0, float(match[1]) / 100) if match else 0.0


def _bytes_of(path: str) -> bytes:
    """A kernel file, which a single read returns whole."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - speed
        return file.read()


class PressureMonitor:
    """Reads PSI and ping-pong of the host, at most every two seconds.

    Args:
        folder: of the kernel's pressure files; it is missing with psi=0.
    """

    def __init__(self, folder: Path = Path("/proc/pressure")) -> None:
        self._folder = folder
        self._due_ns = 0
        self._now = Pressure()
        self._moved = self._ping_pong = 0

    def read(self, now_ns: int, migrations: Any = None) -> Pressure:
        """The pressure now.

        Args:
            migrations: running totals with `by_tierd`, `by_kernel`, `by_others` and
                `ping_pong`, or None where migrations are not traced.
        """
        if now_ns >= self._due_ns:
            self._due_ns = now_ns + PACING.upkeep_interval_ns
            self._now = Pressure(self._file("memory"), self._file("cpu"), self._bounces(migrations))
        return self._now

    def _file(self, name: str) -> float:
        try:
            return parse_pressure(_bytes_of(f"{self._folder}/{name}"))
        except OSError:
            return 0.0

    def _bounces(self, migrations: Any) -> float:
        if migrations is None or not migrations.watched:
            return 0.0
        total = migrations.by_tierd + migrations.by_kernel + migrations.by_others
        moved, ping_pong = total - self._moved, migrations.ping_pong - self._ping_pong
        if moved < PACING.few_pages:
            # Too few to judge; a former value is dropped once nothing moves.
            return self._now.ping_pong if moved > 0 else 0.0
        self._moved, self._ping_pong = total, migrations.ping_pong
        return min(1.0, max(0.0, float(ping_pong / moved)))


class CgroupPressureMonitor:
    """Finds targets whose control groups are under memory or CPU pressure.

    Reads only the groups whose pages move, and those that were under pressure at the last
    reading. On an idle host it reads no file.

    Args:
        root: of the cgroup v2 hierarchy; without it no group is under pressure.

    Attributes:
        deferred: readings that were deferred because there were too many groups to read.
    """

    def __init__(self, root: Path = Path("/sys/fs/cgroup")) -> None:
        self._root = root
        self._due_ns = 0
        self.strained: frozenset[str] = frozenset()
        self._moving: set[int] = set()
        self._waiting: list[str] = []
        self.deferred = 0

    def note(self, targets: Iterable[int]) -> None:
        """Pages of these targets, by number, are being moved."""
        self._moving.update(targets)

    def note_moves(self, report: MigrationResult) -> None:
        """Pages of the targets in `report` were moved."""
        if len(report.plan):
            target = target_of(report.plan.page)
            first = int(target[0])
            self.note(
                [first]
                if np.count_nonzero(target == first) == len(target)
                else np.unique(target).tolist()
            )

    def read(
        self,
        now_ns: int,
        group_of: Callable[[], Mapping[int, str]],
        most_memory: float,
        most_cpu: float,
    ) -> frozenset[str]:
        """The targets whose groups stall for more than these fractions of the time.

        Args:
            group_of: returns the control group of each target; called only when it is time.
            most_memory, most_cpu: fractions from 0 to 1; 1 turns the limit off.
        """
        if now_ns >= self._due_ns and (self._moving or self._waiting or self.strained):
            self._due_ns = now_ns + PACING.upkeep_interval_ns
            known = group_of() if self._moving else {}
            moving = sorted({known[number] for number in self._moving if number in known})
            self._moving.clear()
            groups = [
                group
                for group in dict.fromkeys([*self.strained, *self._waiting, *moving])
                if group != "/" and ".." not in group  # the root group; outside of this namespace
            ]
            self._waiting = groups[bounds.PRESSURE_CGROUPS :]
            self.deferred += len(self._waiting)
            self.strained = frozenset(
                group
                for group in groups[: bounds.PRESSURE_CGROUPS]
                if self._waits(group, "memory") > most_memory
                or self._waits(group, "cpu") > most_cpu
            )
        return self.strained

    def _waits(self, group: str, what: str) -> float:
        try:
            return parse_pressure(_bytes_of(f"{self._root}/{group[1:]}/{what}.pressure"))
        except (OSError, ValueError):
            return 0.0
