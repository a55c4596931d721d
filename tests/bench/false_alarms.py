# SPDX-License-Identifier: Apache-2.0
"""How often tier health takes this host's memory for slow, whatever else the host does.

usage: false_alarms.py [--hours H] [--interval S] [--nodes N] [WORKLOAD...]

Several nodes are made up, which all are the host's first node: what one of them shows and not the
others is noise, and each finding is a false alarm. The thread, the probes
and their budget are the service's. Names of workloads of the benchmark's suite run one after
another meanwhile, for equal shares of the time.

Prints one JSON line: seconds, probes by result, and what was found of which node, and when.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tierd import topology
from tierd.config.whole import loads
from tierd.core.tiermap import MemoryNode, NodeUsage, TierMap
from tierd.engine.tier_health import TierHealth
from tierd.topology.probe import Probed, Prober

SUITE = Path(__file__).resolve().parents[2] / "build/workloads"
FIRST = 100
"""Number of the first node that is made up."""


class Nodes:
    """Made-up nodes of one real one."""

    def __init__(self, count: int) -> None:
        tiers = topology.read()
        self.real = next(iter(tiers.nodes.values()))
        self.tiers = tiers
        self.probers = {FIRST + each: Prober() for each in range(count)}
        nodes = {number: replace(self.real, node=number) for number in self.probers}
        self.map = TierMap((), nodes)

    def usage(self, tiers: TierMap) -> Mapping[int, NodeUsage]:
        """All have enough free memory."""
        return dict.fromkeys(tiers.nodes, NodeUsage(1 << 40, 1 << 39, 0))

    def probe(self, node: MemoryNode, tiers: TierMap) -> Probed | int:
        """The real node, by a buffer of the made-up one's."""
        return self.probers[node.node](self.real, self.tiers)


class Found(logging.Handler):
    """The service's events about slow nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = time.monotonic()
        self.events: list[tuple[float, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "event=node_slow" in text or "event=node_as_usual" in text:
            self.events.append((round(time.monotonic() - self.begun, 1), text))
            print(*self.events[-1], file=sys.stderr, flush=True)


@contextlib.contextmanager
def running(command: Sequence[str]) -> Iterator[None]:
    """A program, begun again when it ends, for the length of a block; none without a command."""
    if not command:
        yield
        return
    again = ["sh", "-c", 'while "$@"; do :; done', "sh", *command]
    with subprocess.Popen(again, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            yield
            if process.poll() is not None:
                raise RuntimeError(f"{command[0]} failed")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)


def main() -> None:
    """Print what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--interval", default="5s")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("workloads", nargs="*")
    args = parser.parse_args()
    nodes, found = Nodes(args.nodes), Found()
    log = logging.getLogger("tierd.engine.tier_health")
    log.setLevel(logging.INFO)
    log.addHandler(found)
    config = loads(f'[tier_health]\nenabled = true\ninterval = "{args.interval}"\n').tier_health
    health = TierHealth(config, nodes.usage, probe=nodes.probe)
    health.tiers = lambda: nodes.map
    health.start()
    for name in args.workloads or [""]:
        with running([str(SUITE / name)] if name else []):
            time.sleep(3600 * args.hours / max(1, len(args.workloads)))
    health.close()
    results: Counter[str] = Counter()
    for (_, result), count in health.results.items():
        results[result] += count
    told: dict[str, Any] = {
        "seconds": round(time.monotonic() - found.begun),
        "workloads": args.workloads,
        "nodes": args.nodes,
        "probes": dict(results),
        "cpu_ns": {n: each.as_json() for n, each in health.probe_cpu_ns.items()},
        "events": found.events,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
