# SPDX-License-Identifier: Apache-2.0
"""The control loop's own CPU share at a steady rate of samples, on this host.

Runs the real service (registry, maps, residency, heat, policy) on a real process, the
workload, with two things made up, for they need a machine with two tiers: a source that
delivers random page records of that process at the wanted rate, and a second, empty
node in the tier map. Nothing is moved (dry run).

Prints samples delivered, CPU seconds by part (user and system, of this process), and
the share of one core.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tierd.config.model import heat_bytes
from tierd.config.whole import loads
from tierd.core import bounds
from tierd.core.access import AccessBatch, AccessSource, Availability, WatchedTarget
from tierd.core.pagekey import make_keys
from tierd.core.tiermap import (
    MemoryKind,
    MemoryNode,
    NodeUsage,
    Provenance,
    Quantity,
    Tier,
    TierMap,
)
from tierd.engine.build import make_policy
from tierd.engine.components import Components
from tierd.engine.loop import Service
from tierd.engine.tracking import Tracking
from tierd.hotness.table import HeatTable
from tierd.migration import DryMover
from tierd.sources.selection import SourceSelector
from tierd.topology import HotplugWatcher
from tierd.workloads.maps import MapReader
from tierd.workloads.registry import TargetRegistry
from tierd.workloads.residency import ResidencyScanner

HOTSET = Path(__file__).resolve().parents[2] / "build/workloads/hotset"


class SteadySource(AccessSource):
    """Random pages of the watched ranges, `rate` records a second."""

    name = "steady"

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._random = np.random.default_rng(1)
        self._targets: Sequence[WatchedTarget] = ()
        self._last = time.monotonic_ns()
        self.delivered = 0
        self.cpu_s = 0.0

    def available(self) -> Availability:
        """Always."""
        return Availability(True, "made up")

    def watch(self, targets: Sequence[WatchedTarget]) -> None:
        """Draw from these."""
        self._targets = [t for t in targets if t.ranges]

    def poll(self) -> list[AccessBatch]:
        """The records due since the last call; the cost of making them is left out."""
        begun = time.thread_time()
        now = time.monotonic_ns()
        due = (now - self._last) * self._rate // 10**9
        self._last = now
        batches = []
        if self._targets and due:
            target = self._targets[0]
            span = max(target.ranges, key=lambda r: r.end - r.start)
            vpn = self._random.integers(span.start, span.end, due, dtype=np.uint64)
            keys = make_keys(target.target, vpn)
            batches = [AccessBatch(keys, np.ones(due, np.float32), now, self.name)]
            self.delivered += due
        self.cpu_s += time.thread_time() - begun
        return batches

    def close(self) -> None:
        """Nothing to close."""


def two_tiers() -> TierMap:
    """Node 0 as it is, and an empty node 1 behind it."""
    tiers, nodes = [], {}
    for node, (kind, latency) in enumerate(((MemoryKind.DRAM, 118.0), (MemoryKind.CXL, 430.0))):
        figures = (Quantity(latency, Provenance.DEFAULT), Quantity(1e11, Provenance.DEFAULT))
        nodes[node] = MemoryNode(node, 1 << 34, frozenset(), kind, *figures)
        tiers.append(Tier(node, kind.value, kind, (node,), 1 << 34, *figures))
    return TierMap(tuple(tiers), nodes)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--size", default="800M")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    command = [str(HOTSET), "--size", args.size, "--rate", "1000", "--seconds", "600"]
    with subprocess.Popen([*command, "--no-check"], stdout=subprocess.PIPE) as workload:
        assert workload.stdout is not None
        workload.stdout.readline()
        config = loads(f"[targets]\nmatch = {{ pid = {workload.pid} }}\n")
        source = SteadySource(args.rate)
        heat = HeatTable(
            capacity_pages=heat_bytes(config) // bounds.HEAT_BYTES_PER_PAGE,
            half_life_s=config.heat.half_life_ns / 1e9,
        )
        # The workload is this process's child, which tierd would never watch.
        registry = TargetRegistry(config.targets, own_pid=1 << 22)
        rooms = Components(
            sources=SourceSelector([source]),
            tracking=Tracking(
                registry,
                ResidencyScanner(),
                heat,
                MapReader(),
                config.residency.interval_ns,
            ),
            heat=heat,
            policy=make_policy(config),
            mover=DryMover(),
            read_tiers=two_tiers,
            read_usage=lambda _: dict.fromkeys((0, 1), NodeUsage(1 << 34, 1 << 33, 1 << 26)),
            hotplug=HotplugWatcher(),
        )
        service = Service(dataclasses.replace(config), rooms, two_tiers())
        threading.Timer(args.seconds, os.kill, (os.getpid(), signal.SIGTERM)).start()
        before, begun = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        service.run()
        after, wall = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - begun
        workload.kill()
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    figures = {
        "bench": "loop_cpu",
        "wall_s": round(wall, 2),
        "ticks": service.totals.ticks,
        "samples": service.totals.samples,
        "samples_per_s": round(service.totals.samples / wall),
        "user_s": round(user, 3),
        "system_s": round(system, 3),
        "making_samples_s": round(source.cpu_s, 3),
        "loop_cpu_share": round((user + system - source.cpu_s) / wall, 4),
        "tracked_pages": heat.stats().tracked,
        "max_rss_mib": round(after.ru_maxrss / 1024, 1),
    }
    print(json.dumps(figures) if args.json else "\n".join(f"{k}: {v}" for k, v in figures.items()))


if __name__ == "__main__":
    main()
