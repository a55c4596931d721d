# SPDX-License-Identifier: Apache-2.0
"""Which ranges of which processes the kernel module scans."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tierd.core.access import WatchedTarget
from tierd.core.errors import TargetGoneError
from tierd.sources.damon import join_ranges
from tierd.sources.kmod.netlink import Control
from tierd.sources.kmod.uapi import MAX_RANGES


def merged(target: WatchedTarget) -> list[tuple[int, int]]:
    """The target's ranges as the module takes them: ascending, apart, not too many."""
    parts: list[tuple[int, int]] = []
    for part in sorted(target.ranges, key=lambda r: r.start):
        if parts and part.start <= parts[-1][1]:
            parts[-1] = (parts[-1][0], max(parts[-1][1], part.end))
        elif part.end > part.start:
            parts.append((part.start, part.end))
    return join_ranges(parts, MAX_RANGES)


class ScanTargets:
    """What one connection to the module has registered; `number in targets` asks for one."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, list[tuple[int, int]]]] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._known

    def apply(self, control: Control, targets: Sequence[WatchedTarget]) -> None:
        """Bring the module's targets to what is wanted; what stays keeps its histories.

        Raises:
            UnavailableError: the module refused, or is about to be removed.
        """
        wanted = {t.target: (t.pid, merged(t)) for t in targets if t.ranges}
        for number, (pid, _) in list(self._known.items()):
            if number not in wanted or wanted[number][0] != pid:
                self._known.pop(number)
                _quietly(control.target_del, number)
        for number, (pid, ranges) in wanted.items():
            known = self._known.get(number)
            if known is None:
                if _quietly(control.target_add, number, pid, ranges):
                    self._known[number] = (pid, ranges)
            elif known[1] != ranges:
                if _quietly(control.target_set, number, ranges):
                    self._known[number] = (pid, ranges)
                else:
                    self._known.pop(number)


def _quietly(action: Callable[..., None], *args: object) -> bool:
    # False if the process is gone (the registry of targets will find out), or shares its
    # memory with one that is scanned already.
    try:
        action(*args)
    except (TargetGoneError, FileExistsError):
        return False
    return True
