# SPDX-License-Identifier: Apache-2.0
"""What a watched process is to everybody else, and the numbers that page keys carry."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tierd.core.bounds import MAX_TARGETS


@dataclass(frozen=True, slots=True)
class Target:
    """A watched process.

    Attributes:
        number: what page keys carry, 0 to 65535.
        pid: process id, valid while `pidfd` is held.
        start_time: clock ticks since boot.
        pidfd: descriptor of the process, owned by the registry.
        comm: its name at the last refresh; chosen by the process, for people only.
        cgroup: its cgroup at the last refresh.
        uid: its effective user at the last refresh.
        rss_bytes: resident memory at the last refresh.
        rule: index of the first rule that matched it at the last refresh, -1 for none.
        activity: `Stat.activity` at the last refresh. While it stays the same, cgroup and
            uid are not read anew.
    """

    number: int
    pid: int
    start_time: int
    pidfd: int
    comm: str
    cgroup: str
    uid: int
    rss_bytes: int
    rule: int = -1
    activity: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetChanges:
    """What one refresh changed. A process that executed a program is in both."""

    started: tuple[Target, ...] = ()
    ended: tuple[Target, ...] = ()


class Numbers:
    """Numbers from 0 to `MAX_TARGETS` - 1, the longest free first once all were in use.

    A number that was in use is handed out again only after `release`.
    """

    def __init__(self) -> None:
        self._unused = 0
        self._free: deque[int] = deque()
        self._unreleased: set[int] = set()

    @property
    def unreleased(self) -> int:
        """How many `retire` took that were not released yet."""
        return len(self._unreleased)

    def take(self) -> int | None:
        """A free number; None if there is none."""
        if self._free:
            return self._free.popleft()
        if self._unused < MAX_TARGETS:
            self._unused += 1
            return self._unused - 1
        return None

    def give_back(self, number: int) -> None:
        """Return a number that was taken and not used; it is the next to be taken."""
        self._free.appendleft(number)

    def retire(self, number: int) -> None:
        """Set aside the number of a target that ended: it may still stand in page keys."""
        self._unreleased.add(number)

    def release(self, number: int) -> None:
        """Let a retired number be taken again, as no page key has it any more.

        Raises:
            KeyError: it was not retired.
        """
        self._unreleased.remove(number)
        self._free.append(number)
