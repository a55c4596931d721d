# SPDX-License-Identifier: Apache-2.0
"""Whether a machine that boots gets on, told by its console and by what QEMU does.

A busy host makes a boot slow, and QEMU's emulation now and then loses a processor's timer for
good, after which the guest goes no further. The two are told apart without a clock of the guest:
a slow QEMU waits for a processor (its threads are runnable), a lost one sleeps, or turns for ever.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_NO_TIMER: Final = re.compile(r"kthread timer wakeup didn't happen")
SLEEP_S: Final = 30.0
"""A machine that boots is never idle for so long."""
SLEEP_SHARE: Final = 0.02
"""Of a processor: less than this is sleep."""
BOOT_CPU_S: Final = 240.0
"""Of processor time: a boot takes 16 s, 37 s with KASAN and lockdep."""


def activity(pid: int) -> tuple[float, float]:
    """Seconds that a process's threads have run, and waited for a processor, since their start.

    Source: Documentation/scheduler/sched-stats.rst, `/proc/PID/schedstat`. (0, 0) where it cannot
    be read: the process has ended, or this kernel does not count.
    """
    ran = waited = 0
    try:
        for each in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            words = each.read_text().split()
            ran, waited = ran + int(words[0]), waited + int(words[1])
    except OSError:
        return 0.0, 0.0
    return ran / 1e9, waited / 1e9


class BootWatch:
    """Asked now and then while a machine boots.

    Args:
        measure: gives `activity` of a process.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        measure: Callable[[int], tuple[float, float]] = activity,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._measure, self._clock = measure, clock
        self._since = clock()
        self._active = 0.0

    def stuck(self, pid: int, console: str) -> str:
        """Why the machine will never answer; empty while it may. `pid` is 0 before QEMU's start."""
        if _NO_TIMER.search(console):
            return "its kernel says that a processor's timer does not come"
        ran, waited = self._measure(pid) if pid else (0.0, 0.0)
        if ran > BOOT_CPU_S:
            return f"QEMU used {ran:.0f} s of processor time"
        now, active = self._clock(), ran + waited
        if not active or abs(active - self._active) > SLEEP_SHARE * SLEEP_S:
            self._since, self._active = now, active
        elif now - self._since >= SLEEP_S:
            return f"QEMU slept for {now - self._since:.0f} s"
        return ""
