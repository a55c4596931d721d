# SPDX-License-Identifier: Apache-2.0
"""Small recordings of made-up hosts, the same every time: what a replay must agree with.

`make golden` makes those under tests/fixtures/recordings anew. Policy, heat, scan controller,
detectors and native path are the real ones; the kernel, cards and processes are made up.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from golden_cards import CardHost, fake_native, on_fake_kernel
from golden_hosts import START_NS, ScanHost
from golden_rules import Rules
from madeup_module import FAST, Pages
from tierloop import Loop
from tiersim import Array, Machine, Program, SimTier

from tierd.config.model import Config
from tierd.config.whole import loads
from tierd.core.migration import MigrationPlan
from tierd.core.tiermap import MemoryKind
from tierd.engine.build import make_policy
from tierd.observe.recording import recorder as recorder_module
from tierd.observe.recording.recorder import Recorder, RecorderStats
from tierd.observe.recording.records import Meta, RecordingHeat
from tierd.observe.tick_record import TickRecord
from tierd.policy.inputs import Inputs

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "recordings"
LIMIT = 1 << 28
SCAN = """
[loop]
interval = "500ms"
max_interval = "1s"
[policy]
migration_cooldown = "2s"
[heat]
memory = "4MiB"
"""
CARDS = """
[loop]
interval = "500ms"
max_interval = "1s"
[policy]
migration_cooldown = "2s"
promotion_rate_limit = "4MB/s"
break_even_time = "500ms"
# The made-up card counts the same whatever was moved.
stand_down = false
[fast_path]
interval = "10ms"
[heat]
memory = "4MiB"
"""


def meta(dry_run: bool) -> Meta:
    """Nothing of the host that made it."""
    return Meta("golden", "2026-01-01T00:00:00Z", START_NS, dry_run, {})


@contextlib.contextmanager
def recorded(path: Path) -> Iterator[tuple[Recorder, list[RecorderStats]]]:
    """A recorder of a golden recording; its last counters, once it is closed."""
    stats: list[RecorderStats] = []
    with mock.patch.object(recorder_module, "_meta", meta):
        recorder = Recorder(path, LIMIT)
    try:
        yield recorder, stats
    finally:
        stats.append(recorder.close())


def record_scan(path: Path, times: int = 1) -> RecorderStats:
    """Accessed bits of a process that sleeps, uses all, then a hot set that moves, and grows."""
    with recorded(path) as (recorder, stats):
        pages = Pages(1, 900, 120, hot_rate=40.0, cold_rate=0.3)
        made = ScanHost(recorder, loads(SCAN), pages, 80)
        pages.live = 400
        pages.rate[:] = 0.0
        made.run(6, made.step)
        pages.rate[:] = 300.0
        made.run(4, made.step)
        for _ in range(times):
            pages.live, pages.hot_rate, pages.hot, pages.cold_rate = 400, 40.0, 120, 0.3
            for seconds in (10, 6, 6, 3, 3):
                pages.move_hot_set()
                made.run(seconds, made.step)
            pages.live = 900
            pages.move_hot_set()
            made.run(6, made.step)
            pages.hot_rate, pages.hot, pages.cold_rate = 2.0, 20, 0.0
            pages.move_hot_set()
            made.run(8, made.step)
    return stats[0]


def record_cards(path: Path, native: Any, times: int = 1) -> RecorderStats:
    """A card and the native path: a hot set that moves, others who take memory, little quota."""
    with (
        tempfile.TemporaryDirectory() as folder,
        on_fake_kernel(native),
        recorded(path) as (recorder, stats),
    ):
        pages = Pages(3, 900, 300, hot_rate=400.0, cold_rate=2.0)
        made = CardHost(recorder, loads(CARDS), pages, 220, native=native, root=Path(folder))
        for drift, held in times * ((0, 0), (4, 20), (1, 5), (0, 30)):
            made.drift = drift
            # CPUs hold on to pages that were freed.
            made.lib.fake_hold(FAST, held)
            made.run(7, made.step)
            pages.move_hot_set()
        made.service.components.fast_path.close()  # type: ignore[union-attr]
    return stats[0]


class RecordedLoop(Loop):
    """A loop on a made-up machine whose ticks are recorded."""

    def __init__(self, recorder: Recorder, config: Config, machine: Machine) -> None:
        super().__init__(machine, make_policy(config), samples=300)
        self._decides, self.policy = self.policy, self  # type: ignore[assignment]
        self._config, self._recorder = config, recorder
        pages = len(self.node)
        self.heat = RecordingHeat(
            recorder.take, capacity_pages=2 * pages, half_life_s=self.HALF_LIFE_S
        )

    def decide(self, inputs: Inputs) -> MigrationPlan:
        """The policy's plan, and what it was made of."""
        self._recorder.decided()
        self._inputs, self._plan = inputs, self._decides.decide(inputs)
        return self._plan

    def tick(self) -> None:
        """One, recorded."""
        super().tick()
        inputs = self._inputs
        record = TickRecord(
            number=len(self.history),
            time_ns=self.now_ns,
            end_ns=self.now_ns,
            source="sim",
            batches=(),
            located=0,
            walked=0,
            targets=1,
            tiers=inputs.tiers,
            usage=inputs.usage,
            budget=inputs.budget,
            plan=self._plan,
            report=self.last,
            ms={},
            config=self._config,
            traffic=inputs.traffic,
        )
        self._recorder.on_tick(record)


def record_cost(path: Path, times: int = 1) -> RecorderStats:
    """The policy cost with traffic: streams and random accesses whose shares change."""
    tiers = (
        SimTier(MemoryKind.DRAM, 900, 118.0, 60e9),
        SimTier(MemoryKind.HBM, 600, 130.0, 400e9),
        SimTier(MemoryKind.CXL, 3000, 430.0, 20e9),
    )
    arrays = [Array("a", 300, 2, 1.0, 0.3), Array("b", 400, 1, 0.0, skew=0.8),
              Array("c", 300, 1, 0.5, skew=0.5), Array("d", 500, 1, 0.0, 0.2)]  # fmt: skip
    config = loads('[policy]\nname = "cost"\nmigration_cooldown = "2s"\n')
    with recorded(path) as (recorder, stats):
        machine = Machine(tiers, [Program(arrays[:2], 8), Program(arrays[2:], 8)], seed=3)
        loop = RecordedLoop(recorder, config, machine)
        loop.place({name: [2, 0, 1] for name in "dcba"})
        for lines in times * ((2.0, 1.0, 1.0, 1.0), (0.2, 3.0, 1.0, 0.0), (3.0, 0.2, 0.0, 3.0)):
            for array, each in zip(arrays, lines, strict=True):
                array.lines = each
            machine.refresh()
            loop.run(6)
    return stats[0]


def record_rules(path: Path, times: int = 1) -> RecorderStats:
    """The scan controller, the detectors and the pace, told anything around their thresholds."""
    with recorded(path) as (recorder, stats):
        rules = Rules(recorder, START_NS)
        for number in range(1, 25 * times + 1):
            rules.tick(number)
    return stats[0]


Maker = Callable[[Path, int], RecorderStats]


def makers(native: Any) -> dict[str, Maker]:
    """What makes each recording, so many times as long; `native`: as of `fake_native`."""
    return {
        "scan": record_scan,
        "cards": lambda path, times: record_cards(path, native, times),
        "cost": record_cost,
        "rules": record_rules,
    }


def main() -> int:
    """Make all of them anew."""
    parser = argparse.ArgumentParser(description="Makes golden recordings; replaces what is there.")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--times", type=int, default=1, help="so many times as long")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, make in makers(fake_native(Path(folder))).items():
            path = args.folder / f"{name}.rec"
            path.unlink(missing_ok=True)
            stats = make(path, args.times)
            print(f"{path}: {stats.ticks} ticks, {stats.bytes} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
