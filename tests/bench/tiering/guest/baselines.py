# SPDX-License-Identifier: Apache-2.0
"""Simple daemons to compare with: a PTE scan, and sampling in two qualities.

- pte-scan: the accessed bits of all pages every 5 s (read through tierd's kernel module, as
  this kernel tells programs of none); what was seen is promoted, at most 256 MiB a second.
- pebs-weak: one in 997 accesses that missed the cache is sampled; a page on the slow node is
  promoted at once. The kernel demotes.
- pebs-histogram: the same samples, counted by page and halved when a page reaches 18 (HeMem);
  once a second pages are sorted into bins by the logarithm of their count, and those above
  the bin that still fits the fast node (MEMTIS) are promoted, the coldest there demoted.

The samples come from the lab's plugin (NPW_SAMPLES_*, fpga/include/neoprof_window.h).

usage: baselines.py pte-scan|pebs-weak|pebs-histogram, and the process' id as a line of input
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import signal
import sys
import time
from pathlib import Path

import memory
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "support"))

from card_window import BYTES, find_device

from tierd.sources.kmod.netlink import Control
from tierd.sources.kmod.ring import Ring
from tierd.sources.kmod.uapi import Kind, PageFlags

PERIOD = 997
LOOK_S = 0.01
DECIDE_S = 1.0
COOL_AT = 18
SCAN_US = 5_000_000
SCAN_BYTES_PER_S = 256 << 20

stopping = False


def stop(_signal: int, _frame: object) -> None:
    """SIGTERM."""
    global stopping
    stopping = True


class Samples:
    """The plugin's ring of samples."""

    def __init__(self, period: int) -> None:
        fd = os.open(find_device(), os.O_RDWR | os.O_SYNC)
        self._map = mmap.mmap(fd, 128 << 10, mmap.MAP_SHARED)
        os.close(fd)
        self._words = np.frombuffer(self._map, np.uint32)
        self._quads = np.frombuffer(self._map, np.uint64)
        self._base = BYTES
        self._slots = 4096
        self._tail = self._head()
        self.taken = self.lost = 0
        self.set_period(period)

    def set_period(self, period: int) -> None:
        """One sample in so many misses of a node; 0: none."""
        self._words[self._base // 4] = period

    def _head(self) -> int:
        return int(self._quads[(self._base + 8) // 8])

    def take(self) -> tuple[memory.Pages, memory.Pages]:
        """Page numbers and nodes since the last time."""
        head = self._head()
        lost = max(0, head - self._tail - self._slots)
        self.lost += lost
        at = np.arange(self._tail + lost, head) % self._slots + (self._base + 0x40) // 8
        self._tail = head
        self.taken += len(at)
        words = self._quads[at]
        return words >> np.uint64(8), words >> np.uint64(1) & np.uint64(63)


class Weak:
    """Promotes what was sampled on the slow node."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._samples = Samples(PERIOD)
        self.promoted = self.demoted = 0

    def step(self) -> None:
        pages, nodes = self._samples.take()
        slow = np.unique(pages[nodes == memory.SLOW])
        if len(slow):
            self.promoted += memory.move(self._pid, slow, memory.FAST)

    def figures(self) -> dict[str, int]:
        self._samples.set_period(0)
        return {"samples": self._samples.taken, "samples_lost": self._samples.lost}


class Histogram:
    """Counts samples, and swaps the hottest for the coldest."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._samples = Samples(PERIOD)
        self._pages = np.sort(memory.page_table(pid)[0])
        self._count = np.zeros(len(self._pages), np.uint32)
        self._fast = memory.nodes_of(pid, self._pages) == memory.FAST
        self._next = time.monotonic() + DECIDE_S
        self.promoted = self.demoted = self._unknown = self._coolings = 0

    def step(self) -> None:
        pages, _ = self._samples.take()
        if len(pages):
            at = np.searchsorted(self._pages, pages)
            at[at == len(self._pages)] = 0
            known = self._pages[at] == pages
            self._unknown += int((~known).sum())
            np.add.at(self._count, at[known], 1)
            while self._count.max() >= COOL_AT:
                self._count >>= 1
                self._coolings += 1
        if time.monotonic() >= self._next:
            self._next += DECIDE_S
            self._decide()

    def _decide(self) -> None:
        room = int(self._fast.sum())
        bins = np.frexp(self._count)[1]
        above = np.cumsum(np.bincount(bins, minlength=32)[::-1])[::-1]
        threshold = max(1, int(np.argmax(above <= room)))
        up = np.flatnonzero((bins >= threshold) & ~self._fast)
        here = np.flatnonzero((bins < threshold) & self._fast)
        down = here[np.argsort(self._count[here], kind="stable")[: len(up)]]
        up = up[np.argsort(-self._count[up].astype(np.int64), kind="stable")[: len(down)]]
        if not len(up):
            return
        self.demoted += self._move(down, memory.SLOW)
        self.promoted += self._move(up, memory.FAST)

    def _move(self, at: np.ndarray, node: int) -> int:
        memory.move(self._pid, self._pages[at], node)
        there = memory.nodes_of(self._pid, self._pages[at]) == node
        self._fast[at[there]] = node == memory.FAST
        return int(there.sum())

    def figures(self) -> dict[str, int]:
        self._samples.set_period(0)
        return {
            "samples": self._samples.taken,
            "samples_lost": self._samples.lost,
            "of_new_pages": self._unknown,
            "coolings": self._coolings,
        }


class PteScan:
    """Promotes what a look at the accessed bits found used."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._page, self._hot = Kind.PAGE, PageFlags.HOT
        self._ring, self._control = Ring.open(), Control.open()
        self._control.scan_set(
            period_us=SCAN_US,
            budget_ppm=1_000_000,
            hot_scans=1,
            cold_scans=0,
            report_scans=1,
            hot_nodes=[memory.SLOW],
        )
        self._control.target_add(1, pid)
        self._waiting = np.zeros(0, np.uint64)
        self._begun, self._sent = time.monotonic(), 0
        self.promoted = self.demoted = self._seen = 0

    def step(self) -> None:
        found = [self._waiting]
        for view in self._ring.views():
            used = (view["kind"] == self._page) & (view["flags"] & self._hot != 0)
            used &= view["history"] & 1 != 0
            found.append(view["page"][used] & np.uint64((1 << 48) - 1))
            self._seen += int(used.sum())
            self._ring.consume(len(view))
        allowed = (time.monotonic() - self._begun) * SCAN_BYTES_PER_S - self._sent
        now, self._waiting = np.split(np.concatenate(found), [max(0, int(allowed // memory.PAGE))])
        if len(now):
            self._sent += len(now) * memory.PAGE
            self.promoted += memory.move(self._pid, now, memory.FAST)

    def figures(self) -> dict[str, int]:
        dropped = self._ring.dropped
        self._control.close()
        self._ring.close()
        return {"seen": self._seen, "records_lost": dropped, "left_waiting": len(self._waiting)}


DAEMONS = {"pte-scan": PteScan, "pebs-weak": Weak, "pebs-histogram": Histogram}


def main() -> None:
    """Run until SIGTERM; a JSON line when it runs, one when it watches, one at the end."""
    signal.signal(signal.SIGTERM, stop)
    print(json.dumps({"event": "running"}), flush=True)
    daemon = DAEMONS[sys.argv[1]](int(sys.stdin.readline()))
    print(json.dumps({"event": "watching"}), flush=True)
    gone = False
    while not stopping:
        time.sleep(LOOK_S)
        try:
            if not gone:
                daemon.step()
        except OSError as error:
            if error.errno not in (errno.ESRCH, errno.EINVAL):
                raise
            gone = True  # the workload ended; whoever started us says when to stop
    figures = {"promoted": daemon.promoted, "demoted": daemon.demoted, **daemon.figures()}
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
