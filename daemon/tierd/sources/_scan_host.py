# SPDX-License-Identifier: Apache-2.0
"""How the module is asked to scan, and whether it is there to be asked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tierd.core.access import Availability
from tierd.sources.kmod.uapi import DEVICE, PARAMETERS


@dataclass(frozen=True, slots=True)
class ScanSettings:
    """How the module scans.

    Attributes:
        period_us: least time between two looks at a page.
        cpu_share: most of one CPU that the scanner's thread may take; it looks less
            often then.
        hot_scans: a page is reported while it was accessed in at least this many of the
            last eight looks.
        cold_scans: ... and until it was accessed in no more than these.
        report_scans: a page that stays hot is reported in one look of so many (in turns).
        dirty: tell writes from reads by the dirty bit (needs a TLB flush a page table).
        flush: flush the TLB after each page table; for emulators.
        nodes: nodes whose pages are reported; none named: all.
        least_exposure_us: no look is sooner than this after the page's accessed bit was
            cleared; from half the period on it is never cleared but by looks.
        alone: nobody else tells of pages that become hot.
    """

    period_us: int = 800_000
    cpu_share: float = 0.05
    hot_scans: int = 2
    cold_scans: int = 1
    report_scans: int = 3
    dirty: bool = False
    flush: bool = False
    nodes: tuple[int, ...] = ()
    min_sampling_interval_us: int = 2_000
    alone: bool = True


def module_availability(root: Path) -> Availability:
    """Whether the module is loaded and lets us in; `root` is of /dev and /sys."""
    if not (root / DEVICE).exists():
        return Availability(
            False, "the tierd kernel module is not loaded", "modprobe tierd (docs/kmod.md)"
        )
    if not os.access(root / DEVICE, os.R_OK | os.W_OK):
        return Availability(False, "/dev/tierd belongs to root", "run tierd as root")
    try:
        closing = (root / PARAMETERS / "closing").read_text().strip()
    except OSError:
        closing = "N"
    if closing == "Y":
        return Availability(
            False,
            "the tierd kernel module asks its users to let go",
            "remove it, or write 0 to /sys/module/tierd/parameters/closing",
        )
    return Availability(True, "accessed bits through the tierd kernel module")
