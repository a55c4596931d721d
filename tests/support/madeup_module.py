# SPDX-License-Identifier: Apache-2.0
"""The kernel module's scanner over made-up pages, and a process that uses them.

The scanner reads accessed bits as the module does: one scan a period, after a sampling interval,
with a history of eight scans a page, and records of pages that are hot or cooled and of each scan's
end.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
from fakering import FakeRing

from tierd.sources.kmod import uapi
from tierd.sources.kmod.netlink import TargetState
from tierd.sources.kmod.ring import Ring
from tierd.sources.kmod.uapi import RECORD, Kind, PageFlags

FIRST_VPN = 0x1000
FAST, SLOW = 0, 1
ONES = np.array([int(each).bit_count() for each in range(256)], np.uint8)


class Pages:
    """A process' pages, how often each is used, and where it is.

    Args:
        seed: of all that is drawn.
        count: pages.
        hot: so many are used `hot_rate` times a second, the others `cold_rate` times.

    Attributes:
        live: the first so many are there; the others come later.
        node: int16[count] where each is.
        rate: float64[count] uses a second.
    """

    def __init__(
        self, seed: int, count: int, hot: int, hot_rate: float = 60.0, cold_rate: float = 0.05
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.count, self.hot, self.live = count, hot, count
        self.hot_rate, self.cold_rate = hot_rate, cold_rate
        self.node = np.full(count, SLOW, np.int16)
        self.rate = np.full(count, cold_rate)
        self.move_hot_set()

    def move_hot_set(self) -> None:
        """Other pages are hot from now on."""
        self.rate[:] = self.cold_rate
        chosen = self.random.choice(self.live, self.hot, replace=False)
        self.rate[chosen] = self.hot_rate * self.random.uniform(0.3, 2.0, self.hot)

    def drift(self, pages: int) -> None:
        """So many pages change how often they are used with as many others."""
        one, other = self.random.choice(self.live, (2, pages), replace=False)
        self.rate[one], self.rate[other] = self.rate[other].copy(), self.rate[one].copy()

    @property
    def key(self) -> Any:
        """uint64[count] keys; the target has number 0."""
        return np.arange(FIRST_VPN, FIRST_VPN + self.count, dtype=np.uint64)


class MadeUpModule:
    """`tierd.sources.kmod.netlink.Control` and the ring of a scanner.

    Args:
        pages: what it looks at.
        now_ns: CLOCK_MONOTONIC.
    """

    def __init__(self, pages: Pages, now_ns: int) -> None:
        self._pages = pages
        self._history = np.zeros(pages.count, np.uint8)
        self._hot = np.zeros(pages.count, np.bool_)
        self._turn = np.zeros(pages.count, np.int64)
        self._depth = 0
        self._looked_ns = now_ns
        self._watches = False
        self._stats: dict[str, int] = {}
        self._ring = FakeRing(1 << 14)
        self.settings = {
            "period_us": 800_000,
            "sampling_interval_us": 0,
            "hot_scans": 2,
            "cold_scans": 1,
            "report_scans": 3,
        }

    def open_control(self) -> Any:
        """A connection to it."""
        return self

    def open_ring(self, root: Path) -> Ring:
        """Its ring."""
        self._ring = FakeRing(1 << 14)
        return Ring(self._ring.memory)

    # Control
    def scan_set(self, **settings: Any) -> None:
        """Look so from now on."""
        self.settings |= {name: settings[name] for name in self.settings if name in settings}

    def target_add(self, target: int, pid: int, ranges: Any) -> None:
        """Begin with no history."""
        self._watches, self._depth, self._stats = True, 0, {"rounds": 0}
        self._history[:], self._hot[:] = 0, False

    def target_set(self, target: int, ranges: Any) -> None:
        """All pages stay."""

    def target_del(self, target: int) -> None:
        """Nobody is watched."""
        self._watches = False

    def targets(self) -> list[TargetState]:
        """The one target's statistics."""
        return [TargetState(0, 100, dict(self._stats))] if self._watches else []

    def close(self) -> None:
        """Nobody is watched."""
        self._watches = False

    # The scanner
    def advance(self, now_ns: int) -> bool:
        """Let time pass; true if a look has ended."""
        period_ns = 1000 * self.settings["period_us"]
        if not self._watches or now_ns - self._looked_ns < period_ns:
            return False
        self._look(now_ns, now_ns - self._looked_ns)
        self._looked_ns = now_ns
        return True

    def _look(self, now_ns: int, period_ns: int) -> None:
        sampling_interval_ns = 1000 * self.settings["sampling_interval_us"] or period_ns
        pages, before = self._pages, self._history.copy()
        chance = -np.expm1(-pages.rate * sampling_interval_ns / 1e9)
        accessed = pages.random.random(pages.count) < chance
        accessed[pages.live :] = False
        self._history = (self._history << 1 | accessed).astype(np.uint8)
        self._depth = min(uapi.HISTORY, self._depth + 1)
        seen = ONES[self._history]
        was, cooled = self._hot, self._hot & (seen <= self.settings["cold_scans"])
        became = ~was & (seen >= self.settings["hot_scans"])
        self._hot = (was | became) & ~cooled
        self._turn += 1
        again = self._hot & (became | (self._turn % self.settings["report_scans"] == 0))
        self._put(np.flatnonzero(again | cooled), cooled, now_ns)
        steady = before & 7 == 7
        self._end(now_ns, accessed, became, became & (self._history & 0xFC == 0), steady)
        self._stats = {
            "rounds": self._stats["rounds"] + 1,
            "round_pages": pages.live,
            "round_accessed": int(accessed.sum()),
            "period_ns": period_ns,
            "sampling_interval_ns": sampling_interval_ns,
        }

    def _put(self, chosen: Any, cooled: Any, now_ns: int) -> None:
        made = np.zeros(len(chosen), RECORD)
        made["page"], made["history"] = self._pages.key[chosen], self._history[chosen]
        made["value"], made["time_ns"], made["kind"] = self._depth, now_ns, Kind.PAGE
        made["node"] = self._pages.node[chosen]
        made["flags"] = np.where(cooled[chosen], PageFlags.CHANGED, PageFlags.HOT)
        self._ring.put(made)

    def _end(self, now_ns: int, accessed: Any, became: Any, fresh: Any, steady: Any) -> None:
        silent = steady & ~accessed
        made = np.zeros(1, RECORD)
        counts = struct.pack("=II", int(fresh.sum()), int(silent.sum()))
        made["page"] = int(accessed.sum())
        made["pfn"] = int.from_bytes(counts, sys.byteorder)
        made["order"] = round(255 * fresh.sum() / max(1, became.sum()))
        made["history"] = round(255 * silent.sum() / max(1, steady.sum()))
        made["time_ns"], made["kind"] = now_ns, Kind.ROUND
        self._ring.put(made)
