# SPDX-License-Identifier: Apache-2.0
"""Targets and their pages: ranges that may be moved, and where the pages are.

Owns: keeping heat's idea of nodes, and what sources watch, close to the truth.
Must not touch: decisions and moves.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tierd.access import WatchedRange, WatchedTarget
from tierd.config import RuleConfig, TargetsConfig
from tierd.errors import TargetGoneError
from tierd.heat.table import HeatTable
from tierd.pagekey import VPN_BITS, make_keys, target_of, vpn_of
from tierd.residency import ResidencyScanner
from tierd.service.extents import Extents, outside, watched
from tierd.service.shares import Residents
from tierd.targets.maps import MapReader
from tierd.targets.registry import TargetRegistry
from tierd.targets.target import Target

log = logging.getLogger(__name__)

QUIET_NS = 30 * 10**9
"""Mappings of a process that did nothing since they were read are read anew after this time:
only the process itself can change them, and that takes CPU time or page faults."""
QUIET_WALKS = 6
"""A walk over such a process, whose pages only others may have moved, waits so many times
longer."""
FEW_NEW = 1 / 8
"""Where a smaller share of a process' pages is new since its last walk, that is no reason for
another: a heap that grows, a thread's stack that is hardly used. Each page costs a question."""


@dataclass
class _Pages:
    """One target's ranges and the walk over its residency."""

    ranges: tuple[WatchedRange, ...] = ()
    skipped: dict[str, int] = field(default_factory=dict)
    walked: tuple[WatchedRange, ...] = ()
    walking: tuple[WatchedRange, ...] = ()
    cursor: int | None = None
    walk_due_ns: int = 0
    extents: Extents = field(default_factory=Extents)
    activity: tuple[bytes, ...] = ()
    """The target's when its mappings were read; () to have them read."""
    read_ns: int = 0
    walk_activity: tuple[bytes, ...] = ()
    """The target's when its last walk began."""
    shown: tuple[WatchedRange, ...] = ()
    """What `watched` gave, and what it was made of."""
    shown_of: tuple[object, object, object] = (None, None, None)

    def quiet(self, target: Target, now_ns: int) -> bool:
        """Whether what was read of its mappings is good for now."""
        return (
            bool(self.activity)
            and self.activity == target.activity
            and now_ns - self.read_ns < QUIET_NS
        )

    def renew(self, ranges: tuple[WatchedRange, ...]) -> None:
        """These are its ranges now; many new pages are walked at once."""
        self.ranges = ranges
        every = sum(part.end - part.start for part in ranges)
        if outside(ranges, self.walked) > FEW_NEW * every:
            self.walk_due_ns = 0

    def next_walk_ns(self, target: Target, interval_ns: int) -> int:
        """When a new walk is due, as far as is known now."""
        idle = bool(self.walk_activity) and self.walk_activity == target.activity
        late_ns = (QUIET_WALKS - 1) * interval_ns if idle and self.walk_due_ns else 0
        return self.walk_due_ns + late_ns


class Tracking:
    """Follows targets for the control loop.

    Args:
        registry: who is watched.
        scanner: asks the kernel where pages are.
        heat: told of nodes, and of what went away.
        maps: reads targets' movable ranges.
        walk_interval_ns: pause between two whole walks over one target; it is walked at once
            when more than a few of its pages are new.
    """

    def __init__(
        self,
        registry: TargetRegistry,
        scanner: ResidencyScanner,
        heat: HeatTable,
        maps: MapReader,
        walk_interval_ns: int,
    ) -> None:
        self._registry = registry
        self._scanner = scanner
        self._heat = heat
        self._maps = maps
        self._walk_interval_ns = walk_interval_ns
        self._pages: dict[int, _Pages] = {}
        self.residents = Residents()
        self._turn = 0
        self._walk_from_ns = 0

    @property
    def pids(self) -> dict[int, int]:
        """Target number → pid."""
        return {number: t.pid for number, t in self._registry.targets.items()}

    @property
    def rules(self) -> dict[int, int]:
        """Target number → index of its rule, -1 for none."""
        return {number: t.rule for number, t in self._registry.targets.items()}

    def configure(
        self, targets: TargetsConfig, rules: Sequence[RuleConfig], walk_interval_ns: int
    ) -> None:
        """Use other settings from the next `refresh` on."""
        self._registry.configure(targets, rules)
        self._walk_interval_ns = walk_interval_ns

    @property
    def targets(self) -> Mapping[int, Target]:
        """Target number → target (a live view)."""
        return self._registry.targets

    @property
    def left_out(self) -> int:
        """Processes that matched at the last refresh but exceed the limit."""
        return self._registry.left_out

    @property
    def newcomers_dropped(self) -> int:
        """Processes that began when too many had, and were left to the refresh."""
        return self._registry.newcomers_dropped

    def collect(self) -> bool:
        """Take in process events; true when a target is affected: refresh soon."""
        return self._registry.collect()

    @property
    def skipped(self) -> Counter[str]:
        """Pages that may not be moved, by reason, over all targets."""
        total: Counter[str] = Counter()
        for pages in self._pages.values():
            total.update(pages.skipped)
        return total

    def refresh(self, now_ns: int) -> bool:
        """Look for started and ended processes, and changed mappings; true if any."""
        self._walk_from_ns = 0
        changes = self._registry.refresh(now_ns)
        for target in changes.ended:
            self._forget(target)
        changed = bool(changes.started or changes.ended)
        for number, target in list(self._registry.targets.items()):
            pages = self._pages.setdefault(number, _Pages())
            if pages.quiet(target, now_ns):
                continue
            try:
                found = self._maps.movable_ranges(target, now_ns)
            except TargetGoneError:
                continue  # the registry says so at the next refresh
            # Of before the reading: what changed meanwhile is seen at the next refresh.
            pages.activity, pages.read_ns = target.activity, now_ns
            if "unread" in found.skipped:
                pages.activity = ()
            pages.skipped = dict(found.skipped)
            if found.ranges != pages.ranges:
                changed = True
                pages.renew(found.ranges)
                self._heat.keep_ranges(number, found.ranges)
        return changed

    def _forget(self, target: Target) -> None:
        self._pages.pop(target.number, None)
        self.residents.forget(target.number)
        self._heat.forget_target(target.number)
        self._maps.forget(target)
        self._registry.release(target.number)

    def walk(self, now_ns: int, max_pages: int, insert_on: Collection[int]) -> int:
        """Go on with the walks over where pages are; returns the number of pages seen.

        Args:
            now_ns: CLOCK_MONOTONIC.
            max_pages: 4 KiB pages to look at, over all targets.
            insert_on: nodes whose cold pages heat shall know of (to demote them).
        """
        if now_ns < self._walk_from_ns:
            return 0
        left = max_pages
        waiting = True
        self._walk_from_ns = now_ns + self._walk_interval_ns
        for number, pages in self._in_turn():
            if left <= 0:
                waiting = False
                break
            if pages.cursor is None:
                target = self._registry.targets[number]
                due_ns = pages.next_walk_ns(target, self._walk_interval_ns)
                if now_ns < due_ns:
                    self._walk_from_ns = min(self._walk_from_ns, due_ns)
                    continue
            waiting = False
            with contextlib.suppress(TargetGoneError):
                left -= self._walk_one(number, pages, left, insert_on)
                if pages.cursor is None:
                    pages.walk_due_ns = now_ns + self._walk_interval_ns
                    pages.renew(pages.ranges)  # what came while the walk was under way
        if not waiting:
            self._walk_from_ns = 0
        return max_pages - left

    def _in_turn(self) -> Iterator[tuple[int, _Pages]]:
        numbers = sorted(set(self._pages) & set(self._registry.targets))
        for step in range(len(numbers)):
            index = (self._turn + step) % len(numbers)
            yield numbers[index], self._pages[numbers[index]]
        if numbers:
            self._turn = (self._turn + 1) % len(numbers)

    def _walk_one(
        self, number: int, pages: _Pages, max_pages: int, insert_on: Collection[int]
    ) -> int:
        if pages.cursor is None:
            if not pages.ranges:
                return 0
            pages.walking, pages.cursor = pages.ranges, pages.ranges[0].start
            pages.extents = _restarted(pages.extents)
            pages.walk_activity = self._registry.targets[number].activity
            self.residents.begin(number)
        pid = self._registry.targets[number].pid
        target = WatchedTarget(number, pid, pages.walking)
        found = self._scanner.scan(target, pages.cursor, max_pages)
        if len(found.page):
            self._heat.place(found.page, found.node, found.order, insert_on=insert_on)
            pages.extents.add(vpn_of(found.page), found.node, found.order)
            self.residents.count(number, found.node, found.order)
        pages.cursor = found.next_vpn
        if found.next_vpn is None:
            pages.extents.finish()
            self.residents.finish(number)
            pages.walked = pages.walking
        return max(1, int((np.int64(1) << found.order.astype(np.int64)).sum()))

    def locate(self, max_pages: int, least: float = -1.0) -> int:
        """Ask where the hottest pages are whose node is not known; returns their number.

        Pages of no more heat than `least` are left to the walks.
        """
        keys = self._heat.unplaced(max_pages, least)
        if not len(keys):
            return 0
        numbers = target_of(keys)
        for number in np.flatnonzero(np.bincount(numbers.astype(np.intp))).tolist():
            target = self._registry.targets.get(number)
            if target is None:
                continue
            own = vpn_of(keys[numbers == number])
            with contextlib.suppress(TargetGoneError):
                node, order = self._scanner.query(target.pid, own)
                head = own & ~((np.uint64(1) << order.astype(np.uint64)) - np.uint64(1))
                self._heat.place(make_keys(number, head), node, order, insert_on=())
        return len(keys)

    def watched(self) -> list[WatchedTarget]:
        """What sources shall watch now."""
        result = []
        for number, target in self._registry.targets.items():
            pages = self._pages.get(number)
            if pages is None or not pages.ranges:
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
        """Page keys [start, end) that may be moved, ascending and apart."""
        found = []
        for number in sorted(self._registry.targets):
            pages = self._pages.get(number)
            base = number << VPN_BITS
            for part in sorted(pages.ranges if pages else (), key=lambda r: r.start):
                found.append((base | part.start, base | part.end))
        return found

    @property
    def all_walked(self) -> bool:
        """True when every target's pages have been looked at at least once."""
        return all(p.extents.complete is not None for p in self._pages.values() if p.ranges)

    def close(self) -> None:
        """Let go of the targets."""
        self._registry.close()


def _restarted(old: Extents) -> Extents:
    """A fresh walk that answers with the old extents until it is finished."""
    fresh = Extents()
    fresh.complete = old.complete
    return fresh
