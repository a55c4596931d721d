# SPDX-License-Identifier: Apache-2.0
"""Processes that began a program a moment ago: looked at until one has grown to be a target.

A refresh comes every few seconds. A program that has just begun has no memory yet, so that
without this it would be found up to a whole interval after it has taken what it needs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Final

AGES_NS: Final = tuple(int(age * 10**9) for age in (0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8))
"""Ages at which a newcomer is looked at. Later than that it waits for the refresh."""
LIMIT: Final = 256
"""Newcomers at a time. More wait for the refresh."""


class NewProcesses:
    """Who began a program lately.

    Attributes:
        dropped: newcomers that were not taken in, as there were LIMIT.
    """

    def __init__(self) -> None:
        self._begun: dict[int, tuple[int, int]] = {}
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._begun)

    def begin(self, pids: Iterable[int], now_ns: int) -> None:
        """These executed a program, or were forked, since the last call."""
        for pid in pids:
            if pid in self._begun or len(self._begun) < LIMIT:
                self._begun[pid] = (now_ns, 0)
            else:
                self.dropped += 1

    def end(self, pids: Iterable[int]) -> None:
        """These have ended, or are watched."""
        for pid in pids:
            self._begun.pop(pid, None)

    def grown(self, now_ns: int, meant: Callable[[int], bool | None]) -> set[int]:
        """Those that are targets to be; they are newcomers no longer.

        Args:
            now_ns: CLOCK_MONOTONIC.
            meant: whether a process would be watched as it is now; None if it never will be.
        """
        found = set()
        for pid, (begun, looks) in list(self._begun.items()):
            age = now_ns - begun
            if age < AGES_NS[looks]:
                continue
            answer = meant(pid)
            done = bisect_right(AGES_NS, age)
            if answer:
                found.add(pid)
            if answer is False and done < len(AGES_NS):
                self._begun[pid] = (begun, done)
            else:
                del self._begun[pid]
        return found
