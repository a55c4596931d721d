# SPDX-License-Identifier: Apache-2.0
"""`Scanner`, the stand-in of the module's scanner on a `LargeHost`, and its ring."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fakering import FakeRing
from large_host_meter import KERNEL

from tierd.core.pagekey import HUGE_PAGES
from tierd.sources.kmod.netlink import TargetState
from tierd.sources.kmod.ring import Ring
from tierd.sources.kmod.uapi import HISTORY, RECORD, Kind, PageFlags

if TYPE_CHECKING:
    from large_host import LargeHost

COLD_S = 600.0
"""A cold page is used once in so many seconds. By chance, some are found in two of eight scans."""
RING_RECORDS = 1 << 17


class Scanner:
    """The module's scanner: `Control`, and the ring that it writes.

    It goes through all targets, one after the other, as fast as a twentieth of a CPU allows and no
    more than once a period.
    """

    def __init__(self, host: LargeHost) -> None:
        self._host = host
        self.ring = FakeRing(RING_RECORDS)
        self.settings = {"period_us": 800_000, "sampling_interval_us": 0, "report_scans": 3}
        self._targets: dict[int, dict[str, int]] = {}
        self._at = 0
        """The first page that is scanned next."""
        self._cycle = 0
        self._cycle_ns = self._debt_ns = 0
        self.records = 0

    def open_ring(self, root: Path) -> Ring:
        """Its ring."""
        return Ring(self.ring.memory)

    def open_control(self) -> Any:
        """A connection to it."""
        return self

    def scan_set(self, **settings: Any) -> None:
        """Scan so from now on."""
        self.settings |= {name: settings[name] for name in self.settings if name in settings}

    def target_add(self, target: int, pid: int, ranges: Any) -> None:
        """Scan it."""
        self._targets[target] = {"rounds": 0}

    def target_set(self, target: int, ranges: Any) -> None:
        """It stays."""

    def target_del(self, target: int) -> None:
        """Scan it no more."""
        self._targets.pop(target, None)

    def targets(self) -> list[TargetState]:
        """Statistics of all."""
        pids = self._host.pids
        return [TargetState(t, pids[t], dict(each)) for t, each in self._targets.items()]

    def close(self) -> None:
        """Scan nothing."""
        self._targets.clear()

    @property
    def _step_ns(self) -> float:
        """Time that a page takes."""
        host = self._host
        entries = host.pages / (HUGE_PAGES if host.huge else 1)
        cycle_ns = max(self.settings["period_us"] * 1000, entries * KERNEL.scan_ns / 0.05)
        return cycle_ns / host.pages

    @property
    def touched(self) -> float:
        """Of the cold pages, so many are reported in a scan: two of eight found them accessed."""
        once = self._step_ns * self._host.pages / 1e9 / COLD_S
        return min(0.05, 10 * once * once)

    def due_ns(self) -> int:
        """Until a target's scan ends."""
        host = self._host
        end = (self._at // host.each + 1) * host.each
        return max(1, int((end - self._at) * self._step_ns - self._debt_ns))

    def advance(self, elapsed_ns: int) -> bool:
        """Scan for so long; true if a target's scan has ended."""
        host, ended = self._host, False
        if not self._targets:
            return False
        step_ns, self._debt_ns = self._step_ns, self._debt_ns + elapsed_ns
        while (count := int(self._debt_ns / step_ns)) > 0:
            end = (self._at // host.each + 1) * host.each
            stop = min(end, self._at + count)
            self._debt_ns -= int((stop - self._at) * step_ns)
            self._scan(self._at, stop)
            self._at = stop
            if stop == end:
                ended = True
                self._end(
                    stop // host.each - 1, int(host.each * step_ns * (host.pages // host.each))
                )
            if self._at >= host.pages:
                self._at, self._cycle = 0, self._cycle + 1
        return ended

    def _scan(self, start: int, stop: int) -> None:
        host, report_scans = self._host, self.settings["report_scans"]
        if start // host.each not in self._targets:
            return
        hot = host.hot_between(start, stop)
        hot = hot[(hot // host.unit + self._cycle) % report_scans == 0]
        count = host.random.poisson((stop - start) // host.unit * self.touched)
        cold = host.random.integers(start // host.unit, -(-stop // host.unit), count) * host.unit
        made = np.zeros(len(hot) + len(cold), RECORD)
        index = np.concatenate([hot, cold])
        made["page"] = host.keys(index)
        made["history"][: len(hot)], made["history"][len(hot) :] = 0xFF, 0b01000100
        made["value"], made["kind"], made["flags"] = HISTORY, Kind.PAGE, PageFlags.HOT
        made["time_ns"], made["order"] = host.now, 9 if host.huge else 0
        made["node"] = host.node[index // host.unit]
        made = made[host.present(index)]
        self.records += len(made)
        self.ring.put(made)

    def _end(self, target: int, period_ns: int) -> None:
        host, stats = self._host, self._targets.get(target)
        if stats is None:
            return
        accessed = host.accessed(target)
        made = np.zeros(1, RECORD)
        made["page"], made["kind"], made["time_ns"] = accessed, Kind.ROUND, host.now
        fresh = host.fresh.pop(target, 0)
        made["pfn"] = int.from_bytes(struct.pack("=II", fresh, fresh), sys.byteorder)
        made["order"] = made["history"] = min(255, 255 * fresh // max(1, accessed))
        self.ring.put(made)
        stats |= {
            "rounds": stats["rounds"] + 1,
            "round_pages": host.each,
            "round_accessed": accessed,
            "period_ns": period_ns,
            "sampling_interval_ns": 1000 * self.settings["sampling_interval_us"] or period_ns,
        }
