# SPDX-License-Identifier: Apache-2.0
"""A target with memory of four kinds, which says each second how fast it is.

usage: cold_half.py --hot MIB --cold MIB --random MIB --written MIB

- hot: read and written at random all the time;
- cold: compressible, and left alone;
- random: left alone as well, and does not compress;
- written: compressible; each page is written every second.

It prints JSON lines: first where its memory is, then each second its updates. On SIGUSR1 it reads
all that is left alone and says whether each word is right; on SIGTERM it checks all and ends.
"""

from __future__ import annotations

import argparse
import json
import mmap
import signal
import time

import numpy as np
import numpy.typing as npt

MIB = 1 << 20
PAGE = 4096
HUGE = 2 << 20
WORDS = PAGE // 8
Words = npt.NDArray[np.uint64]


def region(mib: int) -> Words:
    """Anonymous memory in 4 KiB pages, which shares no 2 MiB with other memory in use."""
    length = max(mib * MIB, PAGE)
    memory = mmap.mmap(-1, length + 2 * HUGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    words = np.frombuffer(memory, np.uint64)
    first = -words.ctypes.data % HUGE // 8
    return words[first : first + length // 8]


def address(words: Words) -> tuple[int, int]:
    """[start, end) of a region."""
    return words.ctypes.data, words.ctypes.data + words.nbytes


def say(**what: object) -> None:
    """A line."""
    print(json.dumps(what), flush=True)


class ColdHalf:
    """The memory, and what is right of it."""

    def __init__(self, hot: int, cold: int, random: int, written: int) -> None:
        self.rng = np.random.default_rng(1)
        self.hot, self.cold = region(hot), region(cold)
        self.random, self.written = region(random), region(written)
        # A quarter of each page is noise, the rest repeats.
        self.quarter = self.rng.integers(0, 1 << 63, WORDS // 4, dtype=np.uint64)
        for words in (self.hot, self.cold, self.written):
            self.fill(words)
        step = MIB // 8
        for at in range(0, len(self.random), step):
            self.random[at : at + step] = self.noise(at, min(step, len(self.random) - at))
        self.sum = 0
        self.rounds = 0

    def fill(self, words: Words) -> None:
        """Each page is told from all others by its first word."""
        pages = words.reshape(-1, WORDS)
        pages[:, : WORDS // 4] = self.quarter
        pages[:, WORDS // 4 :] = 7
        pages[:, 0] = np.arange(len(pages), dtype=np.uint64)

    @staticmethod
    def noise(at: int, count: int) -> Words:
        """What stands in the random region from word `at` on."""
        return np.random.default_rng(at).integers(0, 1 << 63, count, dtype=np.uint64)

    def work(self, updates: int) -> None:
        """Random additions, each of which is counted."""
        at = self.rng.integers(0, len(self.hot) // WORDS, updates) * WORDS + WORDS - 1
        np.add.at(self.hot, at, np.uint64(1))
        self.sum += updates

    def write(self) -> None:
        """Write each page of the written region."""
        self.rounds += 1
        self.written[WORDS - 1 :: WORDS] = self.rounds

    def left_alone_right(self) -> bool:
        """Whether all that is left alone is right; reads it."""
        step = MIB // 8
        return self.pages_right(self.cold, 7) and all(
            np.array_equal(
                self.random[at : at + step], self.noise(at, min(step, len(self.random) - at))
            )
            for at in range(0, len(self.random), step)
        )

    def pages_right(self, words: Words, last: int) -> bool:
        """Whether pages are as `fill` left them, but for their last words."""
        pages = words.reshape(-1, WORDS)
        expected = np.full(WORDS, 7, np.uint64)
        expected[: WORDS // 4] = self.quarter
        expected[-1] = last
        for number, page in enumerate(pages):
            expected[0] = number
            if not np.array_equal(page, expected):
                return False
        return True

    def right(self) -> bool:
        """Whether all memory is right."""
        counted = int((self.hot[WORDS - 1 :: WORDS] - np.uint64(7)).sum())
        return (
            counted == self.sum
            and self.left_alone_right()
            and self.pages_right(self.written, self.rounds or 7)
        )


def main() -> None:
    """Work until SIGTERM."""
    parser = argparse.ArgumentParser()
    for name in ("hot", "cold", "random", "written"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--batch", type=int, default=2000)
    args = parser.parse_args()
    asked = {signal.SIGUSR1: False, signal.SIGTERM: False}
    for number in asked:
        signal.signal(number, lambda number, frame: asked.__setitem__(number, True))
    memory = ColdHalf(args.hot, args.cold, args.random, args.written)
    names = ("hot", "cold", "random", "written")
    say(event="start", **{name: address(getattr(memory, name)) for name in names})
    begun = last = time.monotonic()
    before = 0
    while not asked[signal.SIGTERM]:
        memory.work(args.batch)
        now = time.monotonic()
        if now - last >= 1:
            memory.write()
            rate = (memory.sum - before) / (now - last)
            say(event="sample", seconds=round(now - begun, 1), rate=round(rate))
            last, before = now, memory.sum
        if asked[signal.SIGUSR1]:
            asked[signal.SIGUSR1] = False
            say(event="read", right=memory.left_alone_right())
    say(event="end", right=memory.right(), updates=memory.sum, rounds=memory.rounds)


if __name__ == "__main__":
    main()
