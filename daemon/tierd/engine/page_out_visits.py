# SPDX-License-Identifier: Apache-2.0
"""`Visits`: looks through the targets' memory, chunk by chunk, and pages out what may go."""

from __future__ import annotations

import errno
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

import numpy as np

from tierd.core import bounds
from tierd.core.access import WatchedRange, WatchedTarget
from tierd.core.bounds import PAGE_OUT_PAGES
from tierd.core.errors import NotAnsweringError, TargetGoneError, TierdError
from tierd.core.logfmt import logfmt
from tierd.core.pagekey import HUGE_PAGES, VPN_BITS, VPN_MASK, BoolArray, U64Array, make_keys
from tierd.core.tuning import PAGE_OUT
from tierd.engine.page_out_known import Known
from tierd.migration.page_out import page_out
from tierd.policy.page_out import Chunk, HeatAge, Seen, steps
from tierd.workloads.bounded_reads import BoundedReads
from tierd.workloads.content import PageStates, compressed_fraction, page_states
from tierd.workloads.procs import start_time

log = logging.getLogger(__name__)

Key = tuple[int, int, int]
"""Target's number, pid, and number of the chunk."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What is asked of processes' memory, and done with it; a test has its own."""

    states: Callable[[int, int, int], PageStates] = page_states
    compressed: Callable[[int, Sequence[int]], float] = compressed_fraction
    page_out: Callable[[int, Sequence[tuple[int, int]]], int] = page_out
    start_time: Callable[[int], int] = start_time


class Visits:
    """What is remembered of all chunks.

    Attributes:
        pages: 4 KiB pages by what became of them: out, back, refused, incompressible.
        left_out: chunks that are not remembered, for there are too many.
        age_s: how long a page has to be without an access, in the last round.
        trouble: why no chunk could be visited in the last round; "" where one was, or none was due.
        reads: reads of processes, which may never answer.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._chunks: dict[Key, Chunk] = {}
        self._ranges: dict[tuple[int, int], tuple[WatchedRange, ...]] = {}
        self._random = Random(0)
        self._now_ns = self._age_ns = self._steps = 0
        self._due: list[Key] = []
        self.pages: Counter[str] = Counter()
        self.left_out = 0
        self.age_s = 0.0
        self.trouble = ""
        self.reads = BoundedReads()

    def round(
        self, known: Known, age_s: float, pages: int, now_ns: int, goes_on: Callable[[], bool]
    ) -> U64Array:
        """Visit the chunks that are due, until so many pages were paged out.

        Args:
            goes_on: is asked before each chunk; once it says no, the rest stays due.

        Returns:
            Keys of the pages that were paged out, uint64[n].
        """
        self.reads.start_round()
        self._follow(known)
        # A source that counts a part of the time needs longer, and some scans in any case.
        longer = min(1 / known.counted, PAGE_OUT.most_longer)
        self.age_s = max(age_s * longer, PAGE_OUT.least_scans * known.scan_s)
        self._now_ns, self._age_ns = now_ns, int(self.age_s * 1e9)
        self._steps = visits = steps(self.age_s, known.half_life_s)
        targets = {(each.target, each.pid): each for each in known.targets}
        if not self._due:
            self._due = self._find_due()
        gone: list[U64Array] = []
        trouble = ""
        # One at least, so that it ends some time however long it took to find out what is due.
        while pages > 0 and self._due:
            key = self._due.pop()
            target = targets.get(key[:2])
            if target is None or key not in self._chunks:
                continue
            try:
                gone.append(self._visit(target, key, known, pages, visits))
                pages -= len(gone[-1])
            except TierdError as error:
                # It does not answer, may not be read now, or has ended: then it is no target soon.
                self._chunks[key].due_ns = now_ns + self._age_ns
                trouble = str(error)
                log.debug(logfmt(event="page_out_not_visited", pid=target.pid, reason=str(error)))
            if not goes_on():
                break
        self.trouble = "" if gone else trouble
        return np.concatenate(gone) if gone else np.empty(0, np.uint64)

    def explain(self, key: int, now_ns: int) -> str:
        """What is known of a page."""
        target, page = key >> VPN_BITS, key & VPN_MASK
        number, at = divmod(page, PAGE_OUT_PAGES)
        for each, pid in tuple(self._ranges):
            if each == target and (chunk := self._chunks.get((target, pid, number))) is not None:
                return chunk.words(at, now_ns, self._steps)
        return (
            "it is not among the memory that page-outs look at: they have just begun, its source "
            "does not see its process, or there is too much"
        )

    def _find_due(self) -> list[Key]:
        """Chunks that are due, the first at the end; all are visited before others are found."""
        due = sorted(key for key, chunk in self._chunks.items() if chunk.due_ns <= self._now_ns)
        self._random.shuffle(due)  # no target comes first for good
        # Where there is not time for all, what was begun is finished.
        due.sort(key=lambda key: self._chunks[key].visits > 0)
        return due

    def _follow(self, known: Known) -> None:
        """Remember the chunks of the targets' ranges, and forget those of others."""
        ranges = {(each.target, each.pid): each.ranges for each in known.targets}
        if all(self._ranges.get(each) is ranges[each] for each in ranges) and len(ranges) == len(
            self._ranges
        ):
            return
        self._ranges = ranges
        wanted: set[Key] = set()
        self.left_out = 0
        for target, parts in ranges.items():
            for part in parts:
                first, end = part.start // PAGE_OUT_PAGES, -(-part.end // PAGE_OUT_PAGES)
                # A reservation of many TiB makes no more keys than are remembered.
                last = min(end, first + max(0, bounds.PAGE_OUT_CHUNKS - len(wanted)))
                wanted.update((*target, number) for number in range(first, last))
                self.left_out += end - last
        for key in [key for key in self._chunks if key not in wanted]:
            # What is paged out is in no range any more, and a target that is left out comes again.
            if key[0] not in known.started or (key[:2] in ranges and not self._chunks[key].out):
                del self._chunks[key]
        new = sorted(wanted - self._chunks.keys())
        space = max(0, bounds.PAGE_OUT_CHUNKS - len(self._chunks))
        self._chunks |= {key: Chunk() for key in new[:space]}
        self.left_out += len(new[space:])

    def _visit(
        self, target: WatchedTarget, key: Key, known: Known, most: int, visits: int
    ) -> U64Array:
        """Visit a chunk; page keys that were paged out."""
        chunk, first = self._chunks[key], key[2] * PAGE_OUT_PAGES
        states = self._states(target.pid, first)
        own = states.own & _within(target, first)
        heat, aged = known.heat_of(make_keys(target.target, _numbers(own, first)))
        cold = np.zeros(PAGE_OUT_PAGES, np.bool_)
        cold[own] = heat < chunk.limit(aged)
        seen = Seen(cold, states.present, states.swapped)
        found = chunk.visit(seen, HeatAge(known.unknown, aged), visits)
        self.pages["back"] += found.back
        wait_ns = self._age_ns * chunk.waits if found.ends else self._age_ns // visits
        chunk.due_ns = self._now_ns + wait_ns
        if not found.going.any():
            return np.empty(0, np.uint64)
        # Before anything of it is read: a number may be another process' by now.
        if self._memory.start_time(target.pid) != known.started.get(target.target):
            raise TargetGoneError(f"process {target.pid} is another one now")
        going = self._compress(target.pid, chunk, _numbers(found.going, first))
        if len(going) > most:
            chunk.put_off(_marks(going[most:], first), self._now_ns, visits)
        if not len(going):
            return going
        out = self._page_out(target.pid, first, going[:most])
        if not len(out):  # its control group has no swap, for instance
            chunk.waits = min(4 * chunk.waits, PAGE_OUT.most_waits)
            chunk.due_ns = self._now_ns + self._age_ns * chunk.waits
        chunk.went(_marks(out, first))
        return make_keys(target.target, out)

    def _compress(self, pid: int, chunk: Chunk, pages: U64Array) -> U64Array:
        """Those of some page numbers that do, by samples of each 2 MiB."""
        if self._now_ns >= chunk.dense_until_ns:
            chunk.dense = 0
            chunk.dense_until_ns = self._now_ns + self._age_ns * PAGE_OUT.dense_ages
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
        return pages[worth_it]

    def _states(self, pid: int, first: int) -> PageStates:
        read = partial(self._memory.states, pid, first, PAGE_OUT_PAGES)
        states: PageStates = self.reads.one(pid, None, read)
        return states

    def _page_out(self, pid: int, first: int, pages: U64Array) -> U64Array:
        """Page out these page numbers; those that went."""
        # A call keeps the process from changing its mappings: each is short.
        for at in range(0, len(pages), bounds.PAGE_OUT_CALL_PAGES):
            some = pages[at : at + bounds.PAGE_OUT_CALL_PAGES]
            ends = np.flatnonzero(np.diff(some) != 1) + 1
            runs = [(int(run[0]), int(run[-1]) + 1) for run in np.split(some, ends)]
            result = self._memory.page_out(pid, runs)
            if result in (-errno.ETIMEDOUT, -errno.EAGAIN):
                # It may go on: what has gone is seen at the next visit.
                raise NotAnsweringError(f"process {pid} was not paged out in time")
        swapped = self._states(pid, first).swapped
        out = pages[swapped[(pages - np.uint64(first)).astype(np.intp)]]
        self.pages["out"] += len(out)
        self.pages["refused"] += len(pages) - len(out)
        return out


def _numbers(marks: BoolArray, first: int) -> U64Array:
    """Page numbers of a chunk's marks, ascending."""
    return np.flatnonzero(marks).astype(np.uint64) + np.uint64(first)


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
