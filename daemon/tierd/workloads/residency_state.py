# SPDX-License-Identifier: Apache-2.0
"""What is known of one target's pages, and for how long it is good."""

from __future__ import annotations

from dataclasses import dataclass, field

from tierd.core.access import WatchedRange
from tierd.core.tuning import RESIDENCY, WORKLOADS
from tierd.workloads.extents import Extents, outside
from tierd.workloads.target import Target


@dataclass
class TargetPages:
    """One target's ranges and the walk over its residency."""

    ranges: tuple[WatchedRange, ...] = ()
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
            and now_ns - self.read_ns < RESIDENCY.idle_reread_ns
        )

    def renew(self, ranges: tuple[WatchedRange, ...]) -> None:
        """These are its ranges now; many new pages are walked at once."""
        self.ranges = ranges
        every = sum(part.end - part.start for part in ranges)
        if outside(ranges, self.walked) > WORKLOADS.few_new_fraction * every:
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
            target: as it was last seen.
            interval_ns: pause between two walks, at least.
            walks_cpu_ns: what a walk over every target takes.
        """
        if not self.walk_due_ns:
            return 0
        if abs(target.rss_bytes - self.walk_rss) > WORKLOADS.few_new_fraction * self.walk_rss:
            return self.walk_due_ns
        idle = bool(self.walk_activity) and self.walk_activity == target.activity
        late_ns = (RESIDENCY.idle_scan_factor - 1) * interval_ns if idle else 0
        patience_ns = min(RESIDENCY.max_wait_ns, int(walks_cpu_ns / RESIDENCY.cpu_fraction))
        return self.walk_due_ns + max(late_ns, patience_ns - interval_ns)
