# SPDX-License-Identifier: Apache-2.0
"""`Tracking`: the targets, the ranges of them that may be moved, and the node of each page.

It refreshes targets and mappings, locates their pages, and names the monitoring targets of sources.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from tierd._native import lib
from tierd.config.model import TargetsConfig
from tierd.config.rules import RuleConfig
from tierd.core import bounds
from tierd.core.access import WatchedRange, WatchedTarget
from tierd.core.errors import NotAnsweringError, TargetGoneError
from tierd.core.logfmt import logfmt
from tierd.core.migration import U8Array
from tierd.core.pagekey import VPN_BITS, BoolArray, I16Array, U64Array, make_keys, target_of, vpn_of
from tierd.engine.groups import ResidentBytes
from tierd.hotness.table import HeatTable
from tierd.workloads.bounded_reads import BoundedReads, Read, late_agents
from tierd.workloads.extents import TargetPages, watched
from tierd.workloads.maps import MapReader
from tierd.workloads.registry import TargetRegistry
from tierd.workloads.residency import ResidencyScanner
from tierd.workloads.target import Target

log = logging.getLogger(__name__)


class Tracking:
    """Tracks targets and page locations for the control loop.

    Args:
        heat: gets the nodes of pages, and drops those of ended targets.
        walk_interval_ns: pause between two residency scans of a target. A scan begins at once
            when more than a few of the target's pages are new, and later where scans take long.
    """

    def __init__(
        self,
        registry: TargetRegistry,
        scanner: ResidencyScanner,
        heat: HeatTable,
        maps: MapReader,
        walk_interval_ns: int,
        *,
        cpu_clock: Callable[[], int] = lib.tierd_thread_cpu_ns,
        reads: BoundedReads | None = None,
    ) -> None:
        self.registry = registry
        self._cpu_clock = cpu_clock
        self.reads = BoundedReads() if reads is None else reads
        self._silent: frozenset[int] = frozenset()
        self._scanner = scanner
        self._heat = heat
        self._maps = maps
        self._walk_interval_ns = walk_interval_ns
        self._pages: dict[int, TargetPages] = {}
        self.resident_bytes = ResidentBytes()
        self._turn = 0
        self._walk_from_ns = 0
        self._unseen: frozenset[int] = frozenset()
        self.left_alone: Callable[[], list[tuple[int, int]]] = list
        """Tells which page keys [start, end) the fast path shall not move, ascending."""
        self.on_forgotten: Callable[[int], None] = lambda number: None
        """Called with the number of each target that ended, which may be another's afterwards."""

    @property
    def pids(self) -> dict[int, int]:
        """Target number → pid."""
        return {number: t.pid for number, t in self.registry.targets.items()}

    @property
    def rules(self) -> dict[int, int]:
        """Target number → index of its rule, -1 for none."""
        return {number: t.rule for number, t in self.registry.targets.items()}

    def configure(
        self, targets: TargetsConfig, rules: Sequence[RuleConfig], walk_interval_ns: int
    ) -> None:
        """Use other settings from the next `refresh` on."""
        self.registry.configure(targets, rules)
        self._walk_interval_ns = walk_interval_ns

    @property
    def targets(self) -> Mapping[int, Target]:
        """Target number → target (a live view)."""
        return self.registry.targets

    def collect(self) -> bool:
        """Take in process events; true if they affect a target, which a refresh must follow."""
        return self.registry.collect()

    @property
    def skipped(self) -> Counter[str]:
        """Pages that may not be moved, by reason, over all targets."""
        total: Counter[str] = Counter()
        for pages in self._pages.values():
            total.update(pages.skipped)
        parts = [part for number in self._unseen for part in self._pages[number].ranges]
        if parts:
            total["second mmu"] = sum(part.end - part.start for part in parts)
        return total

    def leave_alone(self, numbers: frozenset[int]) -> None:
        """The source in use does not see the accesses of these targets: they are not moved.

        They stay watched, so that the source says when it sees them.
        """
        unseen = numbers & self._pages.keys()
        for number in unseen - self._unseen:
            log.warning(logfmt(event="second_mmu", target=number, pid=self.pids.get(number, 0)))
            self._heat.forget_target(number)
            self.resident_bytes.forget(number)
        for number in self._unseen - unseen:
            if number in self._pages:
                self._pages[number].walk_due_ns = self._walk_from_ns = 0
        self._unseen = unseen

    def refresh(self, now_ns: int) -> bool:
        """Find started and ended processes, and changed mappings; true if there are any."""
        self._walk_from_ns = 0
        self.reads.start_round()
        changes = self.registry.refresh(now_ns)
        for target in changes.ended:
            self._forget(target)
        changed = bool(changes.started or changes.ended)
        read = []
        for number, target in self.registry.targets.items():
            if not self._pages.setdefault(number, TargetPages()).quiet(target, now_ns):
                read.append(target)
        answers = self.reads.each(
            [
                Read(each.pid, each.start_time, partial(self._maps.movable_ranges, each, now_ns))
                for each in read
            ]
        )
        for target, found in zip(read, answers, strict=True):
            number, pages = target.number, self._pages[target.number]
            if isinstance(found, TargetGoneError):
                continue  # the registry says so at the next refresh
            if isinstance(found, Exception):
                raise found
            # The count of before the reading: the next refresh sees changes during it.
            pages.activity, pages.read_ns = target.activity, now_ns
            if "unread" in found.skipped:
                pages.activity = ()
            pages.skipped, pages.mappings = dict(found.skipped), found.mappings
            if found.ranges != pages.ranges:
                changed = True
                self._drop(number, pages.ranges, found.ranges)
                pages.renew(found.ranges)
        return self._see_silent() or changed

    def _see_silent(self) -> bool:
        """Find out who does not answer; true if others do than before."""
        before, self._silent = self._silent, self.reads.late | late_agents()[0]
        for pid in self._silent - before:
            log.warning(logfmt(event="not_answering", pid=pid))
        for pid in before - self._silent:
            log.info(logfmt(event="answers_again", pid=pid))
        return before != self._silent

    @property
    def given_up(self) -> int:
        """Reads and calls that had no answer in time, since the start."""
        return self.reads.given_up + late_agents()[1]

    @property
    def not_answering(self) -> list[int]:
        """Processes that are left out as the kernel gives no answer about them."""
        return sorted(self._silent & set(self.pids.values()))

    def _drop(
        self, number: int, before: Sequence[WatchedRange], now: Sequence[WatchedRange]
    ) -> None:
        """Have heat forget pages that are no more in a target's ranges.

        Few are named one by one: programs map and unmap memory all the time, and ranges that were
        added alone are no reason to go through the table.
        """
        had, has = ([(each.start, each.end) for each in ranges] for ranges in (before, now))
        gone = without(had, has)
        count = sum(end - start for start, end in gone)
        if count > bounds.FORGOTTEN_PAGES:
            self._heat.keep_ranges(number, now)
        elif count:
            vpn = np.concatenate([np.arange(*span, dtype=np.uint64) for span in gone])
            node = np.full(count, -errno.ENOENT, np.int16)
            orders = np.zeros(count, np.uint8)
            self._heat.place(make_keys(number, vpn), node, orders, insert_on=())

    def _forget(self, target: Target) -> None:
        if pages := self._pages.pop(target.number, None):
            self._drop(target.number, pages.ranges, ())
        self._unseen -= {target.number}
        self.on_forgotten(target.number)
        self.resident_bytes.forget(target.number)
        self._heat.forget_target(target.number)
        self._maps.forget(target)
        self.registry.release(target.number)

    def walk(self, now_ns: int, max_pages: int, insert_on: Collection[int]) -> int:
        """Go on with the residency scans; returns the number of pages seen.

        Args:
            max_pages: 4 KiB pages to locate, over all targets.
            insert_on: nodes whose cold pages heat tracks as well, for demotion.
        """
        if now_ns < self._walk_from_ns:
            return 0
        left = max_pages
        waiting = True
        walks_cpu_ns = sum(each.walk_cpu_ns for each in self._pages.values())
        self._walk_from_ns = now_ns + self._walk_interval_ns
        for number, pages in self._in_turn():
            if left <= 0:
                waiting = False
                break
            if pages.cursor is None:
                target = self.registry.targets[number]
                due_ns = pages.next_walk_ns(target, self._walk_interval_ns, walks_cpu_ns)
                if now_ns < due_ns:
                    self._walk_from_ns = min(self._walk_from_ns, due_ns)
                    continue
            waiting = False
            begun_ns = self._spent_ns()
            with contextlib.suppress(TargetGoneError):
                left -= self._walk_one(number, pages, left, insert_on)
                pages.walking_cpu_ns += self._spent_ns() - begun_ns
                if pages.cursor is None:
                    pages.walk_cpu_ns = pages.walking_cpu_ns
                    pages.walk_due_ns = now_ns + self._walk_interval_ns
                    pages.renew(pages.ranges)  # ranges that came during the scan
        if not waiting:
            self._walk_from_ns = 0
        return max_pages - left

    def _spent_ns(self) -> int:
        return self._cpu_clock() + self.reads.cpu_ns

    def _in_turn(self) -> Iterator[tuple[int, TargetPages]]:
        numbers = sorted((self._pages.keys() & self.registry.targets.keys()) - self._unseen)
        for step in range(len(numbers)):
            index = (self._turn + step) % len(numbers)
            yield numbers[index], self._pages[numbers[index]]
        if numbers:
            self._turn = (self._turn + 1) % len(numbers)

    def _walk_one(
        self, number: int, pages: TargetPages, max_pages: int, insert_on: Collection[int]
    ) -> int:
        cursor = pages.cursor
        if cursor is None:
            if not pages.ranges:
                return 0
            cursor = pages.begin_walk(self.registry.targets[number])
            self.resident_bytes.begin(number)
        pid = self.registry.targets[number].pid
        target = WatchedTarget(number, pid, pages.walking)
        scan = partial(self._scanner.scan, target, cursor, max_pages)
        found = self.reads.one(pid, ("walk", number, cursor, pages.walking), scan)
        if len(found.page):
            self._heat.place(found.page, found.node, found.order, insert_on=insert_on)
            pages.extents.add(vpn_of(found.page), found.node, found.order)
            self.resident_bytes.count(number, found.node, found.order)
        pages.cursor = found.next_vpn
        if found.next_vpn is None:
            pages.extents.finish()
            self.resident_bytes.finish(number)
            pages.walked = pages.walking
        return max(1, int((np.int64(1) << found.order.astype(np.int64)).sum()))

    def locate(self, max_pages: int, least: float = -1.0) -> int:
        """Locate the hottest pages whose node is not known; returns their number.

        Pages of no more heat than `least` are left to the residency scans.
        """
        keys = self._heat.unplaced(max_pages, least)
        if not len(keys):
            return 0
        for number, own, answer in self._queried(keys):
            if answer is None:
                continue
            node, order = answer
            vpn = vpn_of(keys[own])
            head = vpn & ~((np.uint64(1) << order.astype(np.uint64)) - np.uint64(1))
            self._heat.place(make_keys(number, head), node, order, insert_on=())
        return len(keys)

    def where(self, keys: U64Array) -> tuple[I16Array, U8Array]:
        """Nodes of pages, int16[n], and orders, uint8[n].

        The node of those that are gone is below 0, and `bounds.UNANSWERED` of those that nobody
        knows of.
        """
        nodes, orders = np.full(len(keys), -1, np.int16), np.zeros(len(keys), np.uint8)
        for _, own, answer in self._queried(keys):
            nodes[own], orders[own] = answer or (bounds.UNANSWERED, 0)
        return nodes, orders

    def _queried(
        self, keys: U64Array
    ) -> Iterator[tuple[int, BoolArray, tuple[I16Array, U8Array] | None]]:
        """Target numbers, in turns, which keys are theirs, and the nodes and orders of these.

        None for a process that does not answer.
        """
        numbers = target_of(keys)
        asked = np.flatnonzero(np.bincount(numbers.astype(np.intp))).tolist()
        first = self._turn % max(1, len(asked))
        for number in asked[first:] + asked[:first]:
            target = self.registry.targets.get(number)
            if target is None:
                continue
            own = numbers == number
            with contextlib.suppress(TargetGoneError):
                query = partial(self._scanner.query, target.pid, vpn_of(keys[own]))
                try:
                    answer = self.reads.one(target.pid, None, query)
                except NotAnsweringError:
                    answer = None
                yield number, own, answer

    def mappings(self, number: int) -> U64Array:
        """Pages [start, end) of a target's movable mappings, uint64[n, 2], ascending."""
        return self._pages.get(number, TargetPages()).mappings

    def watched(self) -> list[WatchedTarget]:
        """The monitoring targets of sources."""
        result = []
        for number, target in self.registry.targets.items():
            pages = self._pages.get(number)
            if pages is None or not pages.ranges or target.pid in self._silent:
                continue
            ranges, walked, complete = pages.shown_of
            if (
                ranges is not pages.ranges
                or walked is not pages.walked
                or complete is not pages.extents.complete
            ):
                made_of = (pages.ranges, pages.walked, pages.extents.complete)
                pages.shown, pages.shown_of = watched(*made_of), made_of
            result.append(WatchedTarget(number, target.pid, pages.shown))
        return result

    def spans(self) -> list[tuple[int, int]]:
        """Page keys [start, end) that the fast path may move now, ascending and apart."""
        return without(self.movable(), self.left_alone())

    def movable(self) -> list[tuple[int, int]]:
        """Page keys [start, end) that may be moved, ascending and apart."""
        found = []
        for number in sorted(self.registry.targets.keys() - self._unseen):
            pages = self._pages.get(number)
            base = number << VPN_BITS
            for part in sorted(pages.ranges if pages else (), key=lambda r: r.start):
                found.append((base | part.start, base | part.end))
        return found

    @property
    def all_walked(self) -> bool:
        """True when every target has had a complete residency scan."""
        seen = (p for number, p in self._pages.items() if number not in self._unseen)
        return all(p.extents.complete is not None for p in seen if p.ranges)

    def close(self) -> None:
        """Release the targets."""
        self.registry.close()
        self.reads.close()


def without(spans: list[tuple[int, int]], gone: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is in `spans` and not in `gone`; of either, spans ascend and are apart."""
    found, at = [], 0
    for start, end in spans:
        rest = start
        while at < len(gone) and gone[at][0] < end:
            if rest < gone[at][0]:
                found.append((rest, gone[at][0]))
            rest = max(rest, gone[at][1])
            if rest >= end:
                break  # it may reach into the next one
            at += 1
        if rest < end:
            found.append((rest, end))
    return found
