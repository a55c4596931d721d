# SPDX-License-Identifier: Apache-2.0
"""The kernel module as the scan source needs it: is it there, how shall it scan, and what."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tierd.core.access import Availability, WatchedTarget, join_ranges
from tierd.core.errors import SecondMmuError, TargetGoneError
from tierd.sources.kmod.uapi import DEVICE, MAX_RANGES, PARAMETERS

if TYPE_CHECKING:
    from tierd.sources.idlepage.scanner import IdleScanner
    from tierd.sources.kmod.netlink import Control


def module_availability(root: Path) -> Availability:
    """Whether the module is loaded and lets us in; `root` is of /dev and /sys."""
    if not (root / DEVICE).exists():
        return Availability(
            False,
            "the tierd kernel module is not loaded",
            "modprobe tierd (docs/reference/kmod.md)",
        )
    if not os.access(root / DEVICE, os.R_OK | os.W_OK):
        return Availability(False, "/dev/tierd belongs to root", "run tierd as root")
    if parameter(root, "closing", default=False):
        return Availability(
            False,
            "the tierd kernel module asks its users to let go",
            "remove it, or write 0 to /sys/module/tierd/parameters/closing",
        )
    return Availability(True, "accessed bits through the tierd kernel module")


def parameter(root: Path, name: str, default: bool) -> bool:
    """A parameter of the module; `default` if it is not loaded, or has none of that name."""
    try:
        return (root / PARAMETERS / name).read_text().strip() == "Y"
    except OSError:
        return default


def merged(target: WatchedTarget) -> list[tuple[int, int]]:
    """The target's ranges as the module takes them: ascending, apart, not too many."""
    parts: list[tuple[int, int]] = []
    for part in sorted(target.ranges, key=lambda r: r.start):
        if parts and part.start <= parts[-1][1]:
            parts[-1] = (parts[-1][0], max(parts[-1][1], part.end))
        elif part.end > part.start:
            parts.append((part.start, part.end))
    return join_ranges(parts, MAX_RANGES)


ScannerControl: TypeAlias = "Control | IdleScanner"
"""What the source asks for scans: the module, or a scanner in this process."""


class ScanTargets:
    """What one connection to the module has registered; `number in targets` asks for one.

    Attributes:
        unseen: targets whose memory a second MMU uses, each with the pid and the ranges that the
            module refused: it is asked again when they change, as they do when a program executes.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, list[tuple[int, int]]]] = {}
        self.unseen: dict[int, tuple[int, list[tuple[int, int]]]] = {}

    def keep(self, numbers: Set[int]) -> None:
        """The module has these. Others it dropped: they ended, or a second MMU uses them now."""
        for number in self._known.keys() - numbers:
            self.unseen[number] = self._known.pop(number)

    def __contains__(self, number: int) -> bool:
        return number in self._known

    def apply(self, control: ScannerControl, targets: Sequence[WatchedTarget]) -> bool:
        """Bring the module's targets to what is wanted; what stays keeps its histories.

        Returns:
            Whether a target came.

        Raises:
            UnavailableError: the module refused, or is about to be removed.
        """
        wanted = {t.target: (t.pid, merged(t)) for t in targets if t.ranges}
        for number, (pid, _) in list(self._known.items()):
            if number not in wanted or wanted[number][0] != pid:
                self._known.pop(number)
                _quietly(control.target_del, number)
        self.unseen = {
            number: each for number, each in self.unseen.items() if wanted.get(number) == each
        }
        before = set(self._known)
        for number, (pid, ranges) in wanted.items():
            known = self._known.get(number)
            if number in self.unseen:
                continue
            if known is None:
                try:
                    if _quietly(control.target_add, number, pid, ranges):
                        self._known[number] = (pid, ranges)
                except SecondMmuError:
                    self.unseen[number] = (pid, ranges)
            elif known[1] != ranges:
                if _quietly(control.target_set, number, ranges):
                    self._known[number] = (pid, ranges)
                else:
                    self._known.pop(number)
        return not self._known.keys() <= before


def _quietly(action: Callable[..., None], *args: object) -> bool:
    # False if the process is gone (the registry of targets will find out), or if its address
    # space is scanned already.
    try:
        action(*args)
    except (TargetGoneError, FileExistsError):
        return False
    return True
