# SPDX-License-Identifier: Apache-2.0
"""The real loop on this host, recorded and replayed: real processes, maps and residency.

Made up are a second, empty node and the accesses, for a host with one tier. Needs root.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from madeup_host import two_tiers

from tierd.config.whole import loads
from tierd.core.access import AccessBatch, AccessSource, Availability, WatchedTarget
from tierd.core.errors import ExitCode
from tierd.core.pagekey import make_keys
from tierd.core.tiermap import NodeUsage
from tierd.engine.build import make_policy
from tierd.engine.loop import Components, Service
from tierd.engine.tracking import Tracking
from tierd.migration import DryMover
from tierd.observe.recording.reader import Recording
from tierd.observe.recording.recorder import Recorder
from tierd.observe.recording.records import RecordingHeat
from tierd.replay.policy import Replay
from tierd.sources.selection import SourceSelector
from tierd.topology import HotplugWatcher
from tierd.workloads.maps import MapReader
from tierd.workloads.registry import TargetRegistry
from tierd.workloads.residency import ResidencyScanner

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

TICKS = 12
SCRIPT = (
    "import mmap, os\nheld = mmap.mmap(-1, 64 << 20, flags=0x22)\n"
    "for at in range(0, 64 << 20, 4096): held[at] = 1\n"
    "print(flush=True); os.read(0, 1)"
)


class Source(AccessSource):
    """Random pages of what is watched; ends the loop after some ticks."""

    name = "random"

    def __init__(self) -> None:
        self.random = np.random.default_rng(1)
        self.targets: list[WatchedTarget] = []
        self.polls = 0

    def available(self) -> Availability:
        return Availability(True, "made up")

    def watch(self, targets: Any) -> None:
        self.targets = list(targets)

    def poll(self) -> list[AccessBatch]:
        self.polls += 1
        if self.polls == TICKS:
            os.kill(os.getpid(), signal.SIGTERM)
        batches = []
        for target in self.targets:
            span = max(target.ranges, key=lambda each: each.end - each.start)
            vpn = self.random.integers(span.start, span.end, 2000, dtype=np.uint64)
            keys = make_keys(target.target, vpn)
            count = self.random.integers(1, 50, 2000).astype(np.float32)
            batches.append(AccessBatch(keys, count, 0, self.name))
        return batches

    def close(self) -> None:
        pass


def test_a_recording_of_the_real_loop_replays_bit_for_bit(tmp_path: Path) -> None:
    pages = 1 << 20
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            config = loads(
                f'[targets]\nmatch = {{ pid = {child.pid} }}\n[loop]\ninterval = "100ms"\n'
                '[residency]\ninterval = "200ms"\n'
            )
            recorder = Recorder(tmp_path / "a.rec", 1 << 30, dry_run=True)
            heat = RecordingHeat(recorder.take, capacity_pages=100_000, half_life_s=5.0)
            rooms = Components(
                sources=SourceSelector([Source()]),
                tracking=Tracking(
                    TargetRegistry(config.targets, own_pid=1 << 22),
                    ResidencyScanner(),
                    heat,
                    MapReader(),
                    config.residency.interval_ns,
                ),
                heat=heat,
                policy=make_policy(config),
                mover=DryMover(),
                read_tiers=lambda: two_tiers((pages, pages)),
                # The host's node is short of memory: its coldest pages are to go.
                read_usage=lambda _: {
                    0: NodeUsage(pages * 4096, 0, 1 << 20),
                    1: NodeUsage(pages * 4096, pages * 4096, 1 << 20),
                },
                hotplug=HotplugWatcher(),
            )
            service = Service(config, rooms, two_tiers((pages, pages)), observers=[recorder])
            service.work.on_decided = recorder.decided
            assert service.run() == ExitCode.OK
            stats = recorder.close()
        finally:
            child.kill()
    assert (stats.ticks, stats.dropped_ticks) == (TICKS, 0)
    replay = Replay(Recording(tmp_path / "a.rec"), make_policy)
    assert all(compared.difference == "" for compared in replay)
    assert replay.decisions == TICKS
    assert replay.recorded.planned["demoted"] > 0
    assert replay.recorded.served.total() > 0
