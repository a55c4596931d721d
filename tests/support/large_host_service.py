# SPDX-License-Identifier: Apache-2.0
"""The service on a `LargeHost`: what of it is not real, and how it is put together."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Iterator, Mapping
from typing import Any, Self

from fake_proc import FakeEvents
from large_host import LargeHost
from large_host_meter import Meter

from tierd._native import lib
from tierd.core.migration import MigrationPlan, MigrationResult
from tierd.engine import build, loop
from tierd.engine.components import Components
from tierd.engine.loop import Service
from tierd.engine.pressure import CgroupPressureMonitor, PressureMonitor
from tierd.engine.tracking import Tracking
from tierd.migration import NativeMover
from tierd.observe import tick_record
from tierd.observe.metrics.state import MetricsState
from tierd.sources.scan import ScanSource
from tierd.sources.selection import SourceSelector
from tierd.workloads import bounded_reads, residency
from tierd.workloads.maps import MapReader
from tierd.workloads.registry import TargetRegistry
from tierd.workloads.residency import ResidencyScanner


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


class _Time:
    """The module `time`, with the threads' CPU time by `Meter`."""

    def __init__(self, meter: Meter) -> None:
        self.thread_time_ns = meter.thread_ns
        self.monotonic_ns = time.monotonic_ns


def make_service(host: LargeHost) -> Service:
    """The service as `engine.build` makes it, with the stand-ins."""
    config, proc = host.config, host.proc
    heat = build.make_heat(config)
    registry = TargetRegistry(
        config.targets,
        root=proc.root,
        own_pid=1 << 22,
        open_events=FakeEvents,
        pidfd_open=proc.pidfd_open,
        clock=lambda: host.now,
    )
    reads = bounded_reads.BoundedReads(wait_s=60.0)
    tracking = Tracking(
        registry,
        ResidencyScanner(),
        heat,
        MapReader(proc.root),
        config.residency.interval_ns,
        cpu_clock=host.meter.thread_ns,
        reads=reads,
    )
    scan = ScanSource(
        config.sources.scan,
        root=host.folder,
        clock=lambda: host.now,
        open_control=host.scanner.open_control,
        open_ring=host.scanner.open_ring,
    )
    sources, mover = SourceSelector([scan]), LargeMover(host)
    parts = Components(
        sources=sources,
        tracking=tracking,
        heat=heat,
        policy=build.make_policy(config),
        mover=mover,
        read_tiers=lambda: host.tiers,
        read_usage=lambda tiers: host.usage(),
        hotplug=Hotplug(),  # type: ignore[arg-type]
        fast_path=build.make_fast_path(config, heat, tracking, sources, mover, root=host.folder),
        pressure_monitor=PressureMonitor(host.folder),
        cgroup_pressure=CgroupPressureMonitor(host.folder / "cgroup"),
    )
    service = Service(config, parts, host.tiers, clock=lambda: host.now)
    service.observe(MetricsState(service))
    return service


@contextlib.contextmanager
def in_place(host: LargeHost) -> Iterator[None]:
    """The stand-ins are what the service's modules find."""
    library = Library(host)
    pids = {str(pid): pid for pid in host.pids.values()}

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
        (loop, "EventPoller", lambda fd, **given: Poller(host, fd, **given)),
        (tick_record, "time", _Time(host.meter)),
    ]
    before = [(where, name, getattr(where, name)) for where, name, _ in kept]
    try:
        for where, name, what in kept:
            setattr(where, name, what)
        yield
    finally:
        for where, name, what in before:
            setattr(where, name, what)
