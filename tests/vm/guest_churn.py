# SPDX-License-Identifier: Apache-2.0
"""Moves a running workload's pages to and fro until a number of moves is reached.

usage: guest_churn.py --hotset PATH --moves N

Prints one JSON object: pages moved, by direction, every fate seen, and whether the
workload's checksum of its memory, which it updates all the time, is right.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from tierd.core.access import WatchedRange, WatchedTarget
from tierd.core.migration import Direction, Fate, MigrationPlan
from tierd.migration import NativeMover
from tierd.workloads.residency import ResidencyScanner

TARGET = 3


def main() -> int:
    """Churn; 0 if the number of moves was reached and the checksum is right."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hotset", required=True)
    parser.add_argument("--moves", type=int, default=1_000_000)
    parser.add_argument("--size", default="400M")
    args = parser.parse_args()
    hot_file = Path("/tmp/churn-hot")
    command = [args.hotset, "--size", args.size, "--scattered", "--seconds", "600"]
    command += ["--rate", "100000", "--interval", "5", "--hot-file", str(hot_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as workload:
        assert workload.stdout is not None
        workload.stdout.readline()
        base, pages, _ = hot_file.read_text().split("\n", 1)[0].split()
        first = int(base, 16) >> 12
        watched = WatchedTarget(TARGET, workload.pid, (WatchedRange(first, first + int(pages)),))
        mover = NativeMover(rate_bytes_per_s=10**12)
        scanner = ResidencyScanner()
        moved: Counter[str] = Counter()
        fates: Counter[str] = Counter()
        rounds = 0
        while moved.total() < args.moves and workload.poll() is None and rounds < 200:
            where = scanner.scan(watched, first, int(pages))
            # Every page goes to the other node; a third of them, at random, stays.
            chosen = np.random.default_rng(rounds).random(len(where.page)) < 2 / 3
            source = where.node[chosen]
            up = source == 1
            report = mover.execute(
                MigrationPlan(
                    page=where.page[chosen],
                    order=where.order[chosen],
                    source=source,
                    dest=(1 - source).astype(np.int16),
                    direction=np.where(up, Direction.PROMOTE, Direction.DEMOTE).astype(np.uint8),
                    heat=np.zeros(len(source), np.float32),
                ),
                {TARGET: workload.pid},
            )
            for direction in Direction:
                moved[direction.name.lower()] += report.count(Fate.MOVED, direction)
            for fate in Fate:
                fates[fate.name.lower()] += report.count(fate)
            rounds += 1
        mover.close()
        workload.terminate()
        end = [json.loads(line) for line in workload.stdout if '"end"' in line]
    result = {
        "moved": dict(moved),
        "fates": {name: count for name, count in fates.items() if count},
        "rounds": rounds,
        "updates": end[0]["updates"] if end else None,
        "checksum_ok": end[0]["checksum_ok"] if end else None,
    }
    print(json.dumps(result))
    return 0 if moved.total() >= args.moves and result["checksum_ok"] is True else 1


if __name__ == "__main__":
    sys.exit(main())
