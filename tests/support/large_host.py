# SPDX-License-Identifier: Apache-2.0
"""A host with any number of watched pages, made of a few arrays, on which the service's loop runs.

Everything of the service is real but what only a kernel can answer: process files, page tables,
`move_pages`, the module's scanner and its ring, free memory, and time. Time passes while the loop
sleeps and at no other moment, so that an hour of a large host takes seconds.

The stand-ins are no more lenient than a kernel. Pages are missing here and there, memory of both
nodes alternates, some pages are busy, a full node takes nothing, programs allocate and free
mappings all the time, and cold pages are touched now and then. What a kernel would have used of the
CPU for an answer is counted by `KERNEL`; what the stand-ins themselves use is left out.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from fake_proc import FakeProc
from large_host_meter import KERNEL, Meter
from large_host_scanner import Scanner
from madeup_host import two_tiers

from tierd._native import ffi, lib
from tierd.config.model import heat_bytes
from tierd.config.whole import loads
from tierd.core.migration import Fate, MigrationPlan, MigrationResult
from tierd.core.pagekey import HUGE_PAGES, PAGE_SIZE, VPN_BITS, target_of, vpn_of
from tierd.core.tiermap import NodeUsage
from tierd.sources.kmod.uapi import DEVICE

FIRST_VPN = 0x7F0000000
SECOND = 10**9
START_NS = 86400 * SECOND
"""The host has been up for a day."""
FAST, SLOW = 0, 1
FAST_FRACTION = 1 / 4
"""Of the watched pages, so many fit into fast memory."""
HOT_FRACTION = 1 / 16
HOST_FACTOR = 9 / 8
"""Memory of the host for each byte that is watched."""
BLOCK = 4096
ABSENT = 16
"""The last pages of each block are not there."""
CHUNK = 2048
"""Pages that were allocated together on one node."""
BUSY = 0.01
"""Of the moves, so many fail because somebody uses the page."""
FIRST_PID = 1000


class LargeHost:
    """So many watched pages, of so many processes, and a service on them.

    Args:
        folder: for process files.
        pages: a multiple of targets times 4096.
        huge: memory is in folios of 2 MiB.
        moves_s: a 16th of the hot set changes each so many seconds; 0: never.
        churn: mappings that a process makes or ends between two readings of its files.

    Attributes:
        now: time, ns.
        unit: pages of a folio.
    """

    def __init__(
        self,
        folder: Path,
        pages: int,
        *,
        targets: int = 1,
        huge: bool = False,
        moves_s: float = 0.0,
        churn: int = 1,
        settings: str = "",
        seed: int = 1,
    ) -> None:
        self.random, self.meter = np.random.default_rng(seed), Meter()
        self.pages, self.huge, self.each = pages, huge, pages // targets
        self.unit = HUGE_PAGES if huge else 1
        self.now, self._moves_ns, self._churn = START_NS, int(moves_s * 1e9), churn
        self._next_move_ns, self._next_churn_ns = self.now + self._moves_ns, self.now
        self._rounds = 0
        units = pages // self.unit
        chunks = self.random.random(-(-pages // CHUNK)) < FAST_FRACTION * 0.95
        self.node = np.repeat(np.where(chunks, FAST, SLOW).astype(np.int8), CHUNK // self.unit)
        self.node = np.ascontiguousarray(self.node[:units])
        self._used = np.bincount(self.node, minlength=2).astype(np.int64) * self.unit
        self._hot = np.sort(self.random.choice(units, int(units * HOT_FRACTION), replace=False))
        self.fresh: dict[int, int] = {}
        self.config = loads(
            f'[targets]\nlimit = {max(targets, 256)}\nmin_rss = "1MiB"\n{settings}\n'
            f'[heat]\nmemory = "{self.heat_memory()}B"\n'
        )
        capacity = int(pages * FAST_FRACTION), int(pages * HOST_FACTOR)
        self._capacity = np.array(capacity, np.int64)
        self.tiers = two_tiers(capacity)
        self.pids = {target: FIRST_PID + target for target in range(targets)}
        self.ticks: list[tuple[int, int]] = []
        self._make_files(folder, targets)
        self.scanner = Scanner(self)

    def heat_memory(self) -> int:
        """By the formula of the service, on a host of this size."""
        return heat_bytes(loads(""), int(self.pages * HOST_FACTOR) * PAGE_SIZE)

    # ------------------------------------------------------------- processes

    def _make_files(self, folder: Path, targets: int) -> None:
        (folder / "proc").mkdir()
        (folder / DEVICE).parent.mkdir(parents=True)
        (folder / DEVICE).touch()
        self.folder, self.proc = folder, FakeProc(folder / "proc")
        for target in range(targets):
            group = f"/service-{target % 64}"
            self.proc.add(FIRST_PID + target, cgroup=group, rss_bytes=self.each * PAGE_SIZE)
            self._write_maps(target)
        for number in range(min(targets, 64)):
            (folder / f"cgroup/service-{number}").mkdir(parents=True)
            for what in ("memory", "cpu"):
                path = folder / f"cgroup/service-{number}/{what}.pressure"
                path.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
        self._active()

    def _write_maps(self, target: int) -> None:
        """Its memory, and small mappings that come and go."""
        lines, policies = [], []
        end = FIRST_VPN + self.each
        extra = [(end + 4096 + 64 * i) for i in range(self._rounds % 2 * self._churn)]
        for start, stop in [(FIRST_VPN, end), *((at, at + 32) for at in extra)]:
            low, high = start * PAGE_SIZE, stop * PAGE_SIZE
            lines.append(f"{low:x}-{high:x} rw-p 00000000 00:00 0 \n")
            policies.append(f"{low:x} default anon={stop - start} dirty=1 N0=1 N1=1\n")
        folder = self.proc.root / str(FIRST_PID + target)
        (folder / "maps").write_text("".join(lines))
        (folder / "numa_maps").write_text("".join(policies))

    def _active(self) -> None:
        """Processes run, and some of them allocate and free memory."""
        for target, pid in self.pids.items():
            path = self.proc.root / str(pid) / "stat"
            head, _, rest = path.read_bytes().rpartition(b") ")
            fields = rest.split()
            fields[7], fields[11] = b"%d" % self._rounds, b"%d" % self._rounds
            path.write_bytes(head + b") " + b" ".join(fields) + b"\n")
            if self._churn and (target + self._rounds) % 8 == 0:
                self._write_maps(target)
        self._rounds += 1

    # ------------------------------------------------------------- memory

    def keys(self, index: Any) -> Any:
        """Page keys of page indices."""
        target = (index // self.each).astype(np.uint64)
        vpn = (index % self.each + FIRST_VPN).astype(np.uint64)
        return target << np.uint64(VPN_BITS) | vpn

    def present(self, index: Any) -> Any:
        """Which pages are there."""
        if self.huge:
            return np.ones(len(index), np.bool_)
        return index % BLOCK < BLOCK - ABSENT

    def hot_between(self, start: int, stop: int) -> Any:
        """Hot pages (first ones of folios) from `start` to before `stop`."""
        at = np.searchsorted(self._hot, [-(-start // self.unit), -(-stop // self.unit)])
        return self._hot[at[0] : at[1]] * self.unit

    def accessed(self, target: int) -> int:
        """Pages of a target that a scan finds accessed."""
        hot = self.hot_between(target * self.each, (target + 1) * self.each)
        return len(hot) * self.unit + int(self.each * self.scanner.touched)

    def move_hot_set(self) -> None:
        """A 16th of the hot pages is used no more; as many others are."""
        units, count = self.pages // self.unit, max(1, len(self._hot) // 16)
        stays = np.delete(self._hot, self.random.choice(len(self._hot), count, replace=False))
        comes = np.setdiff1d(self.random.integers(0, units, count), stays)
        self._hot = np.sort(np.concatenate([stays, comes]))
        targets = np.bincount(comes * self.unit // self.each)
        self.fresh = {t: int(n) * self.unit for t, n in enumerate(targets.tolist()) if n}

    def pagemap_scan(self, pid: int, start: int, end: int, need: int, *rest: Any) -> int:
        """Runs of present pages as PAGEMAP_SCAN tells them."""
        _, most, regions, room, walk_end = rest
        base = FIRST_VPN
        low = max(start // PAGE_SIZE, base) - base
        high = min(end // PAGE_SIZE, base + self.each) - base
        walk_end[0] = end
        if low >= high or pid not in self.pids.values():
            return 0
        if need & lib.TIERD_PAGE_HUGE and not self.huge:
            self.meter.kernel((high - low) // HUGE_PAGES * KERNEL.pagemap_ns)
            return 0
        if self.huge:
            high = min(high, low + most) if most else high
            runs = np.array([[low, high]], np.int64)
            self.meter.kernel(-(-(high - low) // HUGE_PAGES) * KERNEL.pagemap_ns)
        else:
            blocks = np.arange(low // BLOCK, -(-high // BLOCK), dtype=np.int64)[: room + 1]
            runs = np.stack([blocks * BLOCK, (blocks + 1) * BLOCK - ABSENT], axis=1)
            runs = np.clip(runs, low, high)
            runs = runs[runs[:, 0] < runs[:, 1]][:room]
            if most:
                ends = np.cumsum(runs[:, 1] - runs[:, 0])
                last = int(np.searchsorted(ends, most))
                if last < len(runs):
                    runs = runs[: last + 1]
                    runs[-1, 1] -= max(0, int(ends[last]) - most)
            self.meter.kernel(int((runs[:, 1] - runs[:, 0]).sum()) * KERNEL.pagemap_ns)
            high = int(runs[-1, 1]) if len(runs) else high
        if high < min(end // PAGE_SIZE - base, self.each):
            walk_end[0] = (high + base) * PAGE_SIZE
        made = np.frombuffer(ffi.buffer(regions), np.uint64).reshape(-1, 3)
        made[: len(runs), 0] = (runs[:, 0] + base).astype(np.uint64) * np.uint64(PAGE_SIZE)
        made[: len(runs), 1] = (runs[:, 1] + base).astype(np.uint64) * np.uint64(PAGE_SIZE)
        kinds = lib.TIERD_PAGE_PRESENT | (lib.TIERD_PAGE_HUGE if self.huge else 0)
        made[: len(runs), 2] = kinds
        return len(runs)

    def query(self, pid: int, n: int, address: Any, status: Any) -> int:
        """The nodes of pages, or why there is none."""
        addresses = np.frombuffer(ffi.buffer(address), np.uint64)[:n]
        local = (addresses // np.uint64(PAGE_SIZE)).astype(np.int64) - FIRST_VPN
        there = (local >= 0) & (local < self.each)
        index = np.where(there, local, 0) + (pid - FIRST_PID) * self.each
        found = np.frombuffer(ffi.buffer(status), np.int32)
        found[:n] = np.where(
            there & self.present(index), self.node[index // self.unit], -errno.ENOENT
        )
        found[:n][~there] = -errno.EFAULT
        self.meter.kernel(n * (KERNEL.query_huge_ns if self.huge else KERNEL.query_ns))
        return 0

    def usage(self) -> Mapping[int, NodeUsage]:
        """How full the nodes are."""
        free = np.maximum(self._capacity - self._used, 0) * PAGE_SIZE
        return {
            node: NodeUsage(int(self._capacity[node]) * PAGE_SIZE, int(free[node]), 64 << 20)
            for node in (FAST, SLOW)
        }

    def move(self, plan: MigrationPlan) -> MigrationResult:
        """As the kernel does: in order, while there is room; some are busy, or gone."""
        index = (target_of(plan.page).astype(np.int64)) * self.each
        index += vpn_of(plan.page).astype(np.int64) - FIRST_VPN
        size = np.int64(1) << plan.order.astype(np.int64)
        fate = np.full(len(plan), Fate.MOVED, np.uint8)
        fate[self.random.random(len(plan)) < BUSY] = Fate.BUSY
        fate[~self.present(index)] = Fate.GONE
        for node in (FAST, SLOW):
            own = np.flatnonzero((plan.dest == node) & (fate == Fate.MOVED))
            # Demotions come first in a plan, and make room.
            left = np.count_nonzero((plan.source == node) & (fate == Fate.MOVED)) * self.unit
            room = self._capacity[node] - self._used[node] + left
            fate[own[np.cumsum(size[own]) > room]] = Fate.NO_ROOM
        moved = fate == Fate.MOVED
        at = index[moved] // self.unit
        old = self.node[at].astype(np.int64)
        self._used -= np.bincount(old, size[moved], 2).astype(np.int64)
        self._used += np.bincount(plan.dest[moved], size[moved], 2).astype(np.int64)
        self.node[at] = plan.dest[moved]
        end = np.where(moved, plan.dest, plan.source).astype(np.int16)
        end[fate == Fate.GONE] = -1
        spent = len(plan) * KERNEL.move_ns
        bytes_moved = int(size[moved].sum()) * PAGE_SIZE
        return MigrationResult(plan, fate, end, {}, bytes_moved, spent, spent, 0)

    # ------------------------------------------------------------- time

    def sleep(self, most_ns: int) -> bool:
        """Let time pass until a scan has ended, which is true then."""
        step = max(1, min(most_ns, self.scanner.due_ns()))
        self.now += step
        if self._moves_ns and self.now >= self._next_move_ns:
            self._next_move_ns += self._moves_ns
            self.move_hot_set()
        if self.now >= self._next_churn_ns:
            self._next_churn_ns = self.now + 5 * SECOND
            self._active()
        return self.scanner.advance(step)
