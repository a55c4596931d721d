# SPDX-License-Identifier: Apache-2.0
"""Where a target's pages really are: extents of present pages, and for how long they are good.

Sources that work by region watch extents instead of whole mappings, so that a large
empty reservation does not thin out their samples, and no region straddles two tiers.
An extent ends where the node changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tierd.core import bounds
from tierd.core.access import WatchedRange, join_ranges
from tierd.core.migration import U8Array
from tierd.core.pagekey import HUGE_PAGES, I16Array, U64Array
from tierd.workloads.target import Target


class Extents:
    """Extents of one target, built chunk by chunk during a walk in ascending order."""

    def __init__(self) -> None:
        self._starts: list[npt.NDArray[np.int64]] = []
        self._ends: list[npt.NDArray[np.int64]] = []
        self._nodes: list[I16Array] = []
        self.complete: tuple[WatchedRange, ...] | None = None
        """The extents of the last finished walk; None before the first."""

    def add(self, vpn: U64Array, node: I16Array, order: U8Array) -> None:
        """Present folios, ascending: vpn uint64[n], node int16[n], order uint8[n]."""
        if not len(vpn):
            return
        start = vpn.astype(np.int64)
        end = start + (np.int64(1) << order.astype(np.int64))
        breaks = (start[1:] - end[:-1] > HUGE_PAGES) | (node[1:] != node[:-1])
        first = np.concatenate([[0], np.flatnonzero(breaks) + 1])
        last = np.concatenate([first[1:] - 1, [len(start) - 1]])
        # Joined at once: of memory whose nodes alternate, only what matters is kept.
        starts, ends, nodes = _joined(start[first], end[last], node[first])
        self._starts.append(starts)
        self._ends.append(ends)
        self._nodes.append(nodes)

    def finish(self) -> tuple[WatchedRange, ...]:
        """End the walk: the extents, ascending and apart; `complete` is set to them."""
        if not self._starts:
            self.complete = ()
            return self.complete
        start, end = np.concatenate(self._starts), np.concatenate(self._ends)
        node = np.concatenate(self._nodes)
        start, end, _ = _joined(start, end, node)
        self._starts, self._ends, self._nodes = [], [], []
        found = join_ranges(np.column_stack([start, end]).tolist(), bounds.WATCHED_RANGES)
        self.complete = tuple(WatchedRange(*each) for each in found)
        return self.complete


def _joined(
    start: npt.NDArray[np.int64], end: npt.NDArray[np.int64], node: I16Array
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], I16Array]:
    """Runs without those of one node that are too short to matter: these join what is before."""
    long = end - start >= HUGE_PAGES
    near = start[1:] - end[:-1] <= HUGE_PAGES
    cut = ~near | ((node[1:] != node[:-1]) & long[1:] & long[:-1])
    first = np.concatenate([[0], np.flatnonzero(cut) + 1])
    last = np.concatenate([first[1:] - 1, [len(start) - 1]])
    nodes, at = node[first], np.flatnonzero(long)[::-1]
    # Of several in one, the first that is long enough says which node it is.
    nodes[np.searchsorted(first, at, side="right") - 1] = node[at]
    return start[first], end[last], nodes


def watched(
    ranges: Sequence[WatchedRange],
    scanned: Sequence[WatchedRange],
    extents: Sequence[WatchedRange] | None,
) -> tuple[WatchedRange, ...]:
    """What to watch: extents where a walk has been, whole ranges where none has.

    Args:
        scanned: the movable ranges that the last finished walk covered.
        extents: what that walk found, or None if there was none.
    """
    if extents is None:
        return tuple(ranges)
    covered = set(scanned)
    known = [r for r in ranges if r in covered]
    fresh = [r for r in ranges if r not in covered]
    clipped = []
    position = 0
    for part in known:
        while position < len(extents) and extents[position].end <= part.start:
            position += 1
        index = position
        while index < len(extents) and extents[index].start < part.end:
            extent = extents[index]
            clipped.append(WatchedRange(max(extent.start, part.start), min(extent.end, part.end)))
            index += 1
    return tuple(sorted([*clipped, *fresh], key=lambda r: r.start))


def outside(ranges: Sequence[WatchedRange], known: Sequence[WatchedRange]) -> int:
    """Pages of `ranges` that are in none of `known`; of either, no two overlap."""
    before = sorted(known, key=lambda r: r.start)
    position, pages = 0, 0
    for part in sorted(ranges, key=lambda r: r.start):
        pages += part.end - part.start
        while position < len(before) and before[position].end <= part.start:
            position += 1
        index = position
        while index < len(before) and before[index].start < part.end:
            pages -= min(before[index].end, part.end) - max(before[index].start, part.start)
            index += 1
    return pages


@dataclass
class TargetPages:
    """One target's ranges and the walk over its residency."""

    ranges: tuple[WatchedRange, ...] = ()
    mappings: U64Array = field(default_factory=lambda: np.empty((0, 2), np.uint64))
    """Pages [start, end) of its mappings, uint64[n, 2], ascending."""
    skipped: dict[str, int] = field(default_factory=dict)
    walked: tuple[WatchedRange, ...] = ()
    walking: tuple[WatchedRange, ...] = ()
    cursor: int | None = None
    walk_due_ns: int = 0
    """0: at once."""
    extents: Extents = field(default_factory=Extents)
    activity: tuple[bytes, ...] = ()
    """The target's when its mappings were read; () to have them read."""
    read_ns: int = 0
    walk_activity: tuple[bytes, ...] = ()
    """The target's when its last walk began."""
    walk_rss: int = 0
    """Its resident bytes then."""
    walk_cpu_ns: int = 0
    """What its last whole walk took."""
    walking_cpu_ns: int = 0
    """What the one under way took so far."""
    shown: tuple[WatchedRange, ...] = ()
    """What `watched` gave, and what it was made of."""
    shown_of: tuple[object, object, object] = (None, None, None)

    def quiet(self, target: Target, now_ns: int) -> bool:
        """Whether what was read of its mappings is good for now."""
        return (
            bool(self.activity)
            and self.activity == target.activity
            and now_ns - self.read_ns < bounds.REREAD_NS
        )

    def renew(self, ranges: tuple[WatchedRange, ...]) -> None:
        """These are its ranges now; many new pages are walked at once."""
        self.ranges = ranges
        every = sum(part.end - part.start for part in ranges)
        if outside(ranges, self.walked) > bounds.FEW_NEW_FRACTION * every:
            self.walk_due_ns = 0

    def begin_walk(self, target: Target) -> int:
        """A walk over what its ranges are now begins; with this page."""
        self.walking, self.cursor = self.ranges, self.ranges[0].start
        fresh = Extents()
        # Answered with until it is finished.
        fresh.complete = self.extents.complete
        self.extents = fresh
        self.walk_activity, self.walk_rss = target.activity, target.rss_bytes
        self.walking_cpu_ns = 0
        return self.cursor

    def next_walk_ns(self, target: Target, interval_ns: int, walks_cpu_ns: int) -> int:
        """When a new walk is due, as far as is known now.

        Args:
            interval_ns: pause between two walks, at least.
            walks_cpu_ns: what a walk over every target takes.
        """
        if not self.walk_due_ns:
            return 0
        if abs(target.rss_bytes - self.walk_rss) > bounds.FEW_NEW_FRACTION * self.walk_rss:
            return self.walk_due_ns
        idle = bool(self.walk_activity) and self.walk_activity == target.activity
        late_ns = bounds.REREAD_NS if idle else 0
        patience_ns = min(bounds.WALK_WAIT_NS, int(walks_cpu_ns / bounds.READING_CPU_FRACTION))
        return self.walk_due_ns + max(late_ns, patience_ns - interval_ns)
