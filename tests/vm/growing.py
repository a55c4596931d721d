# SPDX-License-Identifier: Apache-2.0
"""A target that grows: half of its memory is updated at random, and half of it left alone.

usage: growing.py --step MIB --most MIB

It grows by a step for each line that it reads, and prints a JSON line a second: its size and
updates since the line before. It checks all memory when its input ends.
"""

from __future__ import annotations

import argparse
import json
import queue
import sys
import threading
import time

import numpy as np
from cold_half import MIB, PAGE, WORDS, region

BATCH = 2000


def read(asked: queue.Queue[str]) -> None:
    """Pass on lines, and an empty one at the end."""
    for line in sys.stdin:
        asked.put(line)
    asked.put("")


def main() -> None:
    """Grow and work until the input ends."""
    parser = argparse.ArgumentParser()
    for name in ("step", "most"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()
    rng = np.random.default_rng(1)
    quarter = rng.integers(0, 1 << 63, WORDS // 4, dtype=np.uint64)
    halves = [region(args.most // 2).reshape(-1, WORDS) for _ in range(2)]
    hot, cold = halves
    size = total = since = 0
    asked: queue.Queue[str] = queue.Queue()
    threading.Thread(
        target=lambda: [*map(asked.put, sys.stdin), asked.put("")], daemon=True
    ).start()
    last = time.monotonic()
    while True:
        if not asked.empty() or not size:
            if not asked.get():
                break
            new = slice(size, size + args.step * MIB // 2 // PAGE)
            for half in halves:
                half[new, : WORDS // 4] = quarter
                half[new, 0] = np.arange(new.start, new.stop)
            size = new.stop
        at = rng.integers(0, size, BATCH)
        np.add.at(hot[:, WORDS - 1], at, np.uint64(1))
        total += BATCH
        since += BATCH
        now = time.monotonic()
        if now - last >= 1:
            told = {"mib": 2 * size * PAGE // MIB, "rate": round(since / (now - last))}
            print(json.dumps(told), flush=True)
            last, since = now, 0
    right = int(hot[:size, WORDS - 1].sum()) == total
    for half in halves:
        right = right and bool(
            (half[:size, 0] == np.arange(size)).all()
            and (half[:size, 1 : WORDS // 4] == quarter[1:]).all()
        )
    print(json.dumps({"right": right and not cold[:size, WORDS - 1].any()}), flush=True)


if __name__ == "__main__":
    main()
