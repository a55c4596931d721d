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

import contextlib
import errno
import os
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from fake_proc import FakeEvents, FakeProc
from fakering import FakeRing

from tierd._native import ffi, lib
from tierd.config.model import heat_bytes
from tierd.config.whole import loads
from tierd.core.migration import Fate, MigrationPlan, MigrationResult
from tierd.core.pagekey import HUGE_PAGES, PAGE_SIZE, VPN_BITS, target_of, vpn_of
from tierd.core.tiermap import NodeUsage
from tierd.engine import build, loop
from tierd.engine.components import Components
from tierd.engine.loop import Service
from tierd.engine.pressure import CgroupPressureMonitor, PressureMonitor
from tierd.engine.tracking import Tracking
from tierd.migration import NativeMover
from tierd.observe import tick_record
from tierd.observe.metrics.state import MetricsState
from tierd.sources.kmod.netlink import TargetState
from tierd.sources.kmod.ring import Ring
from tierd.sources.kmod.uapi import DEVICE, HISTORY, RECORD, Kind, PageFlags
from tierd.sources.scan import ScanSource
from tierd.sources.selection import SourceSelector
from tierd.workloads import bounded_reads, residency
from tierd.workloads.maps import MapReader
from tierd.workloads.registry import TargetRegistry
from tierd.workloads.residency import ResidencyScanner

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
COLD_S = 600.0
"""A cold page is used once in so many seconds. By chance, some are found in two of eight scans."""
BUSY = 0.01
"""Of the moves, so many fail because somebody uses the page."""
FIRST_PID = 1000
RING_RECORDS = 1 << 17


@dataclass(frozen=True)
class Kernel:
    """Nanoseconds of CPU time that a kernel uses for an answer about a page or folio.

    Measured on Linux 6.18 in a virtual machine, on a process of a GiB. `scan_ns` is what the
    module's scanner uses for an entry of a page table (docs/operate/scale.md).
    """

    query_ns: int = 190
    query_huge_ns: int = 700
    pagemap_ns: int = 10
    move_ns: int = 1500
    scan_ns: int = 20


KERNEL = Kernel()


class Meter:
    """CPU time of the service's threads, without that of stand-ins and with that of the kernel."""

    def __init__(self) -> None:
        self._own = threading.local()
        self.left_out_ns = self.kernel_ns = 0

    @contextlib.contextmanager
    def left_out(self) -> Iterator[None]:
        """What is done inside is no part of the service."""
        begun = lib.tierd_thread_cpu_ns()
        try:
            yield
        finally:
            spent = lib.tierd_thread_cpu_ns() - begun
            self.left_out_ns += spent
            self._own.ns = getattr(self._own, "ns", 0) - spent

    def kernel(self, spent_ns: int) -> None:
        """The kernel would have used so much for this thread."""
        self.kernel_ns += spent_ns
        self._own.ns = getattr(self._own, "ns", 0) + spent_ns

    def thread_ns(self) -> int:
        """As `tierd_thread_cpu_ns`."""
        return int(lib.tierd_thread_cpu_ns()) + int(getattr(self._own, "ns", 0))

    def process_ns(self) -> int:
        """Of all threads, without the kernel's part that is counted by `kernel`."""
        return time.process_time_ns() - self.left_out_ns


class Library:
    """The native library but for what a kernel answers."""

    def __init__(self, host: LargeHost) -> None:
        self._host = host

    def __getattr__(self, name: str) -> Any:
        return getattr(lib, name)

    def tierd_thread_cpu_ns(self) -> int:
        """See `Meter`."""
        return self._host.meter.thread_ns()

    def tierd_pagemap_scan(self, pid: int, start: int, end: int, need: int, *rest: Any) -> int:
        """PAGEMAP_SCAN; the descriptor is the process's number."""
        with self._host.meter.left_out():
            return self._host.pagemap_scan(pid, start, end, need, *rest)

    def tierd_move_pages(self, pid: int, n: int, address: Any, nodes: Any, status: Any) -> int:
        """move_pages(2) that asks for nodes."""
        with self._host.meter.left_out():
            return self._host.query(pid, n, address, status)


class Poller:
    """The loop's sleep, in which the host's time passes."""

    def __init__(self, host: LargeHost, fd: int, **signals: Any) -> None:
        del fd, signals
        self._host = host
        self.interrupt = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def listen(self, phase_change_fd: int) -> None:
        """Scans that end are told of by `wait`."""

    def wait(self, seconds: float) -> tuple[bool, bool, bool]:
        """Until the time is over, or a scan of a target has ended."""
        with self._host.meter.left_out():
            return False, False, self._host.sleep(int(seconds * 1e9))


class Hotplug:
    """Memory neither comes nor goes."""

    def fileno(self) -> int:
        """None."""
        return -1

    def changed(self) -> bool:
        """Never."""
        return False

    def close(self) -> None:
        """Nothing is open."""


class LargeMover(NativeMover):
    """Moves pages of the host; everything else of it is the service's."""

    def __init__(self, host: LargeHost) -> None:
        super().__init__(rate_bytes_per_s=host.config.migration.rate_limit_bytes_per_s)
        self._host = host

    def execute(self, plan: MigrationPlan, pids: Mapping[int, int]) -> MigrationResult:
        """See `LargeHost.move`."""
        with self._host.meter.left_out():
            return self._host.move(plan)


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
        self.tiers = _two_tiers(capacity)
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

    # ------------------------------------------------------------- the service

    def make_service(self) -> Service:
        """The service as `engine.build` makes it, with the stand-ins."""
        config, proc = self.config, self.proc
        heat = build.make_heat(config)
        registry = TargetRegistry(
            config.targets,
            root=proc.root,
            own_pid=1 << 22,
            open_events=FakeEvents,
            pidfd_open=proc.pidfd_open,
            clock=lambda: self.now,
        )
        reads = bounded_reads.BoundedReads(wait_s=60.0)
        tracking = Tracking(
            registry,
            ResidencyScanner(),
            heat,
            MapReader(proc.root),
            config.residency.interval_ns,
            cpu_clock=self.meter.thread_ns,
            reads=reads,
        )
        scan = ScanSource(
            config.sources.scan,
            root=self.folder,
            clock=lambda: self.now,
            open_control=self.scanner.open_control,
            open_ring=self.scanner.open_ring,
        )
        sources, mover = SourceSelector([scan]), LargeMover(self)
        parts = Components(
            sources=sources,
            tracking=tracking,
            heat=heat,
            policy=build.make_policy(config),
            mover=mover,
            read_tiers=lambda: self.tiers,
            read_usage=lambda tiers: self.usage(),
            hotplug=Hotplug(),  # type: ignore[arg-type]
            fast_path=build.make_fast_path(
                config, heat, tracking, sources, mover, root=self.folder
            ),
            pressure_monitor=PressureMonitor(self.folder),
            cgroup_pressure=CgroupPressureMonitor(self.folder / "cgroup"),
        )
        service = Service(config, parts, self.tiers, clock=lambda: self.now)
        service.observe(MetricsState(service))
        return service

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """The stand-ins are what the service's modules find."""
        library = Library(self)
        pids = {str(pid): pid for pid in self.pids.values()}

        @contextlib.contextmanager
        def pagemap(pid: int) -> Iterator[int]:
            if str(pid) not in pids:
                raise residency._host_error(errno.ESRCH, "opening pagemap")
            yield pid

        kept = [
            (residency, "lib", library),
            (residency, "_pagemap", pagemap),
            (bounded_reads, "lib", library),
            (loop, "lib", library),
            (loop, "EventPoller", lambda fd, **given: Poller(self, fd, **given)),
            (tick_record, "time", _Time(self.meter)),
        ]
        before = [(where, name, getattr(where, name)) for where, name, _ in kept]
        try:
            for where, name, what in kept:
                setattr(where, name, what)
            yield
        finally:
            for where, name, what in before:
                setattr(where, name, what)


class _Time:
    """The module `time`, with the threads' CPU time by `Meter`."""

    def __init__(self, meter: Meter) -> None:
        self.thread_time_ns = meter.thread_ns
        self.monotonic_ns = time.monotonic_ns


def _two_tiers(pages: Sequence[int]) -> Any:
    from madeup_host import two_tiers

    return two_tiers(pages)


def rss_bytes() -> tuple[int, int]:
    """Resident memory of this process, and the most since `forget_peak`."""
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("VmRSS", "VmHWM"):
            found[name] = int(rest.split()[0]) << 10
    return found["VmRSS"], found["VmHWM"]


def forget_peak() -> None:
    """The peak of `rss_bytes` begins anew (proc_pid_clear_refs(5))."""
    descriptor = os.open("/proc/self/clear_refs", os.O_WRONLY)
    os.write(descriptor, b"5")
    os.close(descriptor)
