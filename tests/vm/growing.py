# SPDX-License-Identifier: Apache-2.0
"""A target that grows: half of its memory is updated at random, and half of it left alone.

usage: growing.py --step MIB --most MIB

It grows by a step for each line that it reads, and prints a JSON line a second: its size, and
updates a second since the line before. It checks all memory when its input ends.
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


class Growing:
    """Its memory: of each page the first quarter is noise that all pages share."""

    def __init__(self, most_mib: int) -> None:
        self.rng = np.random.default_rng(1)
        self.quarter = self.rng.integers(0, 1 << 63, WORDS // 4, dtype=np.uint64)
        self.hot, self.cold = (region(most_mib // 2).reshape(-1, WORDS) for _ in range(2))
        self.pages = self.updates = 0

    @property
    def mib(self) -> int:
        """Its size."""
        return 2 * self.pages * PAGE // MIB

    def grow(self, mib: int) -> None:
        """By so much of both halves."""
        new = slice(self.pages, self.pages + mib * MIB // 2 // PAGE)
        for half in (self.hot, self.cold):
            half[new, : WORDS // 4] = self.quarter
            half[new, 0] = np.arange(new.start, new.stop)
        self.pages = new.stop

    def work(self) -> None:
        """A batch of updates."""
        at = self.rng.integers(0, self.pages, BATCH)
        np.add.at(self.hot[:, WORDS - 1], at, np.uint64(1))
        self.updates += BATCH

    def right(self) -> bool:
        """Whether each update is there, and nothing else has changed."""
        hot, cold = self.hot[: self.pages], self.cold[: self.pages]
        counted = int(hot[:, WORDS - 1].sum()) == self.updates
        return (
            counted
            and not cold[:, WORDS // 4 :].any()
            and not hot[:, WORDS // 4 : -1].any()
            and all(
                bool((half[:, 0] == np.arange(self.pages)).all())
                and bool((half[:, 1 : WORDS // 4] == self.quarter[1:]).all())
                for half in (hot, cold)
            )
        )


def main() -> None:
    """Grow and work until the input ends."""
    parser = argparse.ArgumentParser()
    for name in ("step", "most"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()
    asked: queue.Queue[str] = queue.Queue()
    threading.Thread(
        target=lambda: [*map(asked.put, sys.stdin), asked.put("")], daemon=True
    ).start()
    memory = Growing(args.most)
    last, before = time.monotonic(), 0
    while True:
        if not memory.pages or not asked.empty():
            if not asked.get():
                break
            memory.grow(args.step)
        memory.work()
        now = time.monotonic()
        if now - last >= 1:
            rate = round((memory.updates - before) / (now - last))
            print(json.dumps({"mib": memory.mib, "rate": rate}), flush=True)
            last, before = now, memory.updates
    print(json.dumps({"right": memory.right()}), flush=True)


if __name__ == "__main__":
    main()
