# SPDX-License-Identifier: Apache-2.0
"""`Visits`: looks through the targets' memory, chunk by chunk, and pages out what may go."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

import numpy as np

from tierd.core import bounds
from tierd.core.access import WatchedTarget
from tierd.core.bounds import PAGE_OUT_PAGES
from tierd.core.errors import NotAnsweringError, TierdError
from tierd.core.logfmt import logfmt
from tierd.core.pagekey import HUGE_PAGES, BoolArray, U64Array, make_keys
from tierd.core.tuning import PAGE_OUT
from tierd.engine.page_out_known import Known
from tierd.migration.page_out import page_out
from tierd.policy.page_out import Chunk, steps
from tierd.workloads.bounded_reads import BoundedReads
from tierd.workloads.content import PageStates, compressed_fraction, page_states

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Memory:
    """What is asked of processes' memory, and done with it; a test has its own."""

    states: Callable[[int, int, int], PageStates] = page_states
    compressed: Callable[[int, Sequence[int]], float] = compressed_fraction
    page_out: Callable[[int, Sequence[tuple[int, int]]], int] = page_out


class Visits:
    """What is remembered of all chunks.

    Attributes:
        gone: is told the keys of pages that were paged out, uint64[n].
        pages: 4 KiB pages by what became of them: out, back, refused, incompressible.
        left_out: chunks that are not remembered, for there are too many.
        reads: reads of processes, which may never answer.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._chunks: dict[tuple[int, int, int], Chunk] = {}
        self._random = Random(0)
        self._now_ns = self._step_ns = 0
        self.gone: Callable[[U64Array], object] = len
        self.pages: Counter[str] = Counter()
        self.left_out = 0
        self.reads = BoundedReads()

    def round(self, known: Known, age_s: float, pages: int, now_ns: int) -> None:
        """Visit the chunks that are due, until so many pages were paged out."""
        self.reads.start_round()
        targets = {(each.target, each.pid): each for each in known.targets}
        for key in [key for key in self._chunks if key[:2] not in targets]:
            del self._chunks[key]
        self.left_out = sum(map(self._add, known.targets))
        due = sorted(key for key, chunk in self._chunks.items() if chunk.due_ns <= now_ns)
        self._random.shuffle(due)  # no target comes first for good
        # It takes some scans to find a page in use.
        age_s = max(age_s, PAGE_OUT.least_scans * known.scan_s)
        visits = steps(age_s, known.half_life_s)
        # Of a source that counts a part of the time, an age takes that much longer.
        longer = min(1 / known.counted, PAGE_OUT.most_longer)
        self._now_ns = now_ns
        self._step_ns = step_ns = int(age_s / visits * longer * 1e9)
        for key in due:
            if pages <= 0:
                return
            chunk = self._chunks[key]
            chunk.due_ns = now_ns + step_ns
            try:
                at = self._going(targets[key[:2]], key[2], known, visits)
                chunk.due_ns = now_ns + step_ns * chunk.waits
                if len(at) > pages:
                    chunk.put_off(_marks(at, key[2] * PAGE_OUT_PAGES), now_ns)
                pages -= self._page_out(targets[key[:2]], key[2], chunk, at[:pages])
            except NotAnsweringError:
                continue
            except TierdError:
                del self._chunks[key]  # it has ended

    def _add(self, target: WatchedTarget) -> int:
        """Remember the chunks of a target's ranges; how many there are too many."""
        left_out = 0
        for part in target.ranges:
            for number in range(part.start // PAGE_OUT_PAGES, -(-part.end // PAGE_OUT_PAGES)):
                key = (target.target, target.pid, number)
                if key in self._chunks:
                    continue
                if len(self._chunks) < bounds.PAGE_OUT_CHUNKS:
                    self._chunks[key] = Chunk()
                else:
                    left_out += 1
        return left_out

    def _going(self, target: WatchedTarget, number: int, known: Known, visits: int) -> U64Array:
        """Visit a chunk: page numbers that may go, ascending."""
        chunk, first = self._chunks[target.target, target.pid, number], number * PAGE_OUT_PAGES
        states = self._states(target.pid, first)
        own = states.own & _within(target, first)
        cold = np.zeros(PAGE_OUT_PAGES, np.bool_)
        pages = np.flatnonzero(own).astype(np.uint64) + np.uint64(first)
        cold[own] = known.heat_of(make_keys(target.target, pages)) < chunk.limit(known.heat.aged)
        going, back = chunk.visit(cold, states.present, known.heat, visits)
        self.pages["back"] += back
        found = np.flatnonzero(going).astype(np.uint64) + np.uint64(first)
        if self._now_ns >= chunk.dense_until_ns:
            chunk.dense = 0
            chunk.dense_until_ns = self._now_ns + self._step_ns * PAGE_OUT.dense_visits
        return found[self._compress(target.pid, chunk, found)]

    def _compress(self, pid: int, chunk: Chunk, pages: U64Array) -> BoolArray:
        """Which pages do, by samples of their blocks."""
        worth_it = np.zeros(len(pages), np.bool_)
        block_of = pages % np.uint64(PAGE_OUT_PAGES) // np.uint64(HUGE_PAGES)
        for block in np.unique(block_of).tolist():
            inside = block_of == block
            if chunk.dense >> block & 1:
                continue
            own = pages[inside].tolist()
            sample = self._random.sample(own, min(len(own), PAGE_OUT.sampled_pages))
            kept = self.reads.one(pid, None, partial(self._memory.compressed, pid, sample))
            if kept <= PAGE_OUT.most_compressed:
                worth_it[inside] = True
            else:
                chunk.dense |= 1 << block
                self.pages["incompressible"] += len(own)
        return worth_it

    def _states(self, pid: int, first: int) -> PageStates:
        read = partial(self._memory.states, pid, first, PAGE_OUT_PAGES)
        states: PageStates = self.reads.one(pid, None, read)
        return states

    def _page_out(self, target: WatchedTarget, number: int, chunk: Chunk, pages: U64Array) -> int:
        """Page out these pages of a chunk; how many went."""
        if not len(pages):
            return 0
        ends = np.flatnonzero(np.diff(pages) != 1) + 1
        runs = [(int(run[0]), int(run[-1]) + 1) for run in np.split(pages, ends)]
        result = self._memory.page_out(target.pid, runs)
        if result < 0:
            log.debug(logfmt(event="page_out_refused", pid=target.pid, errno=-result))
        first = number * PAGE_OUT_PAGES
        out = _marks(pages, first) & self._states(target.pid, first).swapped
        chunk.went(out)
        gone = np.flatnonzero(out).astype(np.uint64) + np.uint64(first)
        self.pages["out"] += len(gone)
        self.pages["refused"] += len(pages) - len(gone)
        if len(gone):
            self.gone(make_keys(target.target, gone))
        return len(gone)


def _marks(pages: U64Array, first: int) -> BoolArray:
    """Which of a chunk's pages these are."""
    marks = np.zeros(PAGE_OUT_PAGES, np.bool_)
    marks[(pages - np.uint64(first)).astype(np.intp)] = True
    return marks


def _within(target: WatchedTarget, first: int) -> BoolArray:
    """Which of a chunk's pages lie in the target's ranges."""
    inside = np.zeros(PAGE_OUT_PAGES, np.bool_)
    for part in target.ranges:
        inside[max(0, part.start - first) : max(0, part.end - first)] = True
    return inside
