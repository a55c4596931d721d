# SPDX-License-Identifier: Apache-2.0
"""`tierd run` on a host with one tier: a second one, a source and a mover are made up.

Everything else is real: configuration, registry, maps, residency, heat, policy, loop,
figures, control socket, signals. The second tier is empty and the source names random
pages of the targets, `--rate` records a second. The mover says that it moved all, and
moves nothing.

    python tests/support/hostservice.py --config FILE [--rate N] [--stuck FILE] [--first]
                                        [--own-sources] [--own-mover]

With `--own-sources` the sources are those of the configuration, not the made-up one; with
`--own-mover` the mover is the service's, which asks the kernel to move pages to a node that is not
there.
With `--first` it prints, as JSON, when the first decision was made and the CPU time spent
until then.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tierd.cli._front import Endpoints
from tierd.cli.run import _set_up_logging, _start_agents
from tierd.config.whole import load
from tierd.core.access import AccessBatch, AccessSource, Availability, WatchedTarget
from tierd.core.migration import Fate, MigrationPlan, MigrationResult
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
from tierd.engine import process
from tierd.engine.build import build, make_mover
from tierd.engine.process import keep_heap, load_all
from tierd.engine.reload import Reloader
from tierd.migration import DryMover
from tierd.observe.tick_record import TickRecord
from tierd.sources.selection import SourceSelector


def two_tiers() -> TierMap:
    """Node 0 as the slow one, and an empty, fast node 1 before it."""
    tiers, nodes = [], {}
    for rank, (node, kind, latency) in enumerate(
        ((1, MemoryKind.DRAM, 118.0), (0, MemoryKind.CXL, 430.0))
    ):
        figures = (Quantity(latency, Provenance.DEFAULT), Quantity(1e11, Provenance.DEFAULT))
        nodes[node] = MemoryNode(node, 1 << 34, frozenset(), kind, *figures)
        tiers.append(Tier(rank, kind.value, kind, (node,), 1 << 34, *figures))
    return TierMap(tuple(tiers), nodes)


class SteadySource(AccessSource):
    """Random pages of the watched ranges, `rate` records a second."""

    name = "steady"

    def __init__(self, rate: int, stuck: Path | None) -> None:
        self._rate = rate
        self._stuck = stuck
        self._random = np.random.default_rng(1)
        self._targets: Sequence[WatchedTarget] = ()
        self._last = time.monotonic_ns()

    def available(self) -> Availability:
        """Always."""
        return Availability(True, "made up")

    def watch(self, targets: Sequence[WatchedTarget]) -> None:
        """Draw from these."""
        self._targets = [t for t in targets if t.ranges]

    def poll(self) -> list[AccessBatch]:
        """The records due since the last call. While the file `stuck` is there, it hangs."""
        while self._stuck is not None and self._stuck.exists():
            time.sleep(0.05)
        now = time.monotonic_ns()
        due = (now - self._last) * self._rate // 10**9
        self._last = now
        if not self._targets or not due:
            return []
        target = self._targets[int(self._random.integers(len(self._targets)))]
        span = max(target.ranges, key=lambda r: r.end - r.start)
        # A few pages get most of it, so that there is something to promote.
        end = min(span.end, span.start + 64)
        vpn = self._random.integers(span.start, end, due, dtype=np.uint64)
        keys = make_keys(target.target, vpn)
        count = np.ones(due, np.float32)
        return [AccessBatch(keys, count, now, self.name, lost=due // 4)]

    def close(self) -> None:
        """Nothing to close."""


class PretendMover(DryMover):
    """Says that it moved every page."""

    def execute(self, plan: MigrationPlan, pids: Mapping[int, int]) -> MigrationResult:
        """All MOVED."""
        fate = np.full(len(plan), Fate.MOVED, np.uint8)
        return MigrationResult(plan, fate, plan.dest, {}, plan.bytes_planned, 1000, 1000, 0)


class First:
    """Prints when the first decision was made."""

    def __init__(self) -> None:
        self._said = False

    def on_tick(self, tick: TickRecord) -> None:
        """An observer of ticks."""
        if not self._said and tick.budget is not None:
            self._said = True
            told = {"first_decision": time.time(), "cpu_seconds": time.process_time()}
            print(json.dumps(told), flush=True)


def main() -> int:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--stuck", type=Path)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--own-sources", action="store_true")
    parser.add_argument("--own-mover", action="store_true")
    args = parser.parse_args()
    config = load(args.config)
    _set_up_logging(config.log.level)
    _start_agents()
    keep_heap()
    load_all()
    service, _ = build(config, wait=True, dry_run=True)
    # What `build` found on this host, but for the parts that need two real tiers.
    steady = SourceSelector([SteadySource(args.rate, args.stuck)])
    service.work.components = dataclasses.replace(
        service.components,
        sources=service.components.sources if args.own_sources else steady,
        mover=make_mover(config, dry_run=False) if args.own_mover else PretendMover(),
        read_tiers=two_tiers,
        read_usage=lambda _: dict.fromkeys((0, 1), NodeUsage(1 << 34, 1 << 33, 1 << 26)),
    )
    service.work.tiers = two_tiers()
    if args.first:
        service.observe(First())
    service.reloader = Reloader(lambda: load(args.config), service.reconfigure)
    service.work.on_attached = process.settle
    front = Endpoints(config, service, dry_run=False)
    service.reloader.listeners.append(front.state)
    with front.open():
        code = service.run()
    logging.shutdown()
    return code


if __name__ == "__main__":
    sys.exit(main())
