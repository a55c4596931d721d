# SPDX-License-Identifier: Apache-2.0
"""Instructions that control groups execute in user mode, as the CPU counts them: `Instructions`.

A perf event that is bound to a control group and a CPU counts while a task of the group, or of a
group below it, runs there (perf_event_open(2), PERF_FLAG_PID_CGROUP). Processes that come later are
counted as well.
"""

from __future__ import annotations

import os
import resource
import struct
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from tierd.core.errors import UnavailableError
from tierd.core.linux import CGROUP_ROOTS
from tierd.sources.ebpf.perf import EventAttr, Layout, ReadFormat, Sample, Type
from tierd.sources.ebpf.syscalls import perf_event_open
from tierd.topology.sysfs import parse_list

_COUNT: Final = struct.Struct("=QQQ")


class Instructions:
    """Counts from now on; `close` at the end.

    Args:
        groups: control groups, as in /proc/PID/cgroup. Those below another one are its part.

    Raises:
        UnavailableError: the CPU or the kernel does not count.
    """

    def __init__(
        self,
        groups: Collection[str],
        *,
        root: Path = Path("/"),
        opens: Callable[..., int] = perf_event_open,
    ) -> None:
        self._events: list[int] = []
        tops = [
            group
            for group in groups
            if not any(group != other and _within(group, other) for other in groups)
        ]
        if not tops:
            raise UnavailableError("there are no processes whose instructions could be counted")
        event = EventAttr(
            Type.HARDWARE,
            Layout.INSTRUCTIONS,
            0,
            Sample(0),
            exclude_kernel=True,
            read_format=ReadFormat.TIMES,
        )
        code = event.encode(counting=True)
        cpus = sorted(parse_list((root / "sys/devices/system/cpu/online").read_text()))
        # One for each group and CPU.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        try:
            for group in tops:
                try:
                    folder = os.open(_folder(root, group), os.O_RDONLY | os.O_CLOEXEC)
                except FileNotFoundError:
                    continue  # it has ended
                try:
                    self._events += [opens(code, folder, cpu, cgroup=True) for cpu in cpus]
                finally:
                    os.close(folder)
        except OSError as error:
            self.close()
            raise UnavailableError(
                f"instructions of control groups cannot be counted: {error.strerror}",
                hint="a virtual machine's CPU often has no counters, and perf_event must not be a "
                "version 1 controller; give a --measure",
            ) from None
        if not self._events:
            raise UnavailableError("the control groups of the watched processes have ended")
        self._before = [self._counts(event) for event in self._events]
        self._total = 0.0

    def read(self) -> float:
        """Instructions so far; where counters were shared, as if each had counted all the time.

        Raises:
            UnavailableError: a counter never ran since the last call, though its group did.
        """
        now = [self._counts(event) for event in self._events]
        for then, after in zip(self._before, now, strict=True):
            count, enabled, ran = (late - early for early, late in zip(then, after, strict=True))
            if ran:
                self._total += count * enabled / ran
            elif enabled:
                raise UnavailableError(
                    "other users of the CPU's counters leave none", hint="give a --measure"
                )
        self._before = now
        return self._total

    @staticmethod
    def _counts(event: int) -> tuple[int, int, int]:
        count, enabled, ran = _COUNT.unpack(os.read(event, _COUNT.size))
        return count, enabled, ran

    def close(self) -> None:
        """Count no more."""
        for event in self._events:
            os.close(event)
        self._events = []


def _within(group: str, other: str) -> bool:
    return f"{group}/".startswith(f"{other.rstrip('/')}/")


def _folder(root: Path, group: str) -> Path:
    for place in CGROUP_ROOTS:
        if (root / place / "cgroup.controllers").exists():
            return root / place / group.lstrip("/")
    raise UnavailableError("no cgroup v2 file system is mounted")
