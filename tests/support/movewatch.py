# SPDX-License-Identifier: Apache-2.0
"""What a service's moves did to single pages and to watermarks: `MoveWatch`, an observer.

A page bounces when it moves again before the least residency has passed, from the beginning of one
tick to the end of the other: moves are somewhere in them. A plan that leaves less free on a node
than its low watermark, and brought more there than it took away, dug below it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np

from tierd.core.migration import Fate
from tierd.observe.tick_record import TickRecord
from tierd.policy.pageset import sizes_of

KEPT = 20


class MoveWatch:
    """See the module's text.

    Args:
        low_watermark: share of a node.
        min_residency_s: seconds.
    """

    def __init__(self, low_watermark: float, min_residency_s: float) -> None:
        self._low, self._residency_s = low_watermark, min_residency_s
        self._last: dict[int, tuple[int, int]] = {}
        self._moves: Counter[int] = Counter()
        self._bounces: Counter[int] = Counter()
        self._back, self._shortest_s = 0, float("inf")
        self._begun_ns = self._end_ns = 0
        self._dug: list[tuple[float, int, int]] = []
        self._ways: Counter[str] = Counter()
        self._below_since: dict[int, int] = {}
        self._below_s: defaultdict[int, float] = defaultdict(float)
        self._longest_s: defaultdict[int, float] = defaultdict(float)
        self._free: dict[int, list[int]] = {}

    def on_tick(self, tick: TickRecord) -> None:
        """Note its moves."""
        self._begun_ns = self._begun_ns or tick.time_ns
        self._watermarks(tick)
        self._end_ns = tick.time_ns
        if tick.report is None:
            return
        plan = tick.report.plan
        moved = np.flatnonzero(tick.report.fate == Fate.MOVED)
        for page, source, dest in zip(
            plan.page[moved].tolist(),
            plan.source[moved].tolist(),
            plan.dest[moved].tolist(),
            strict=True,
        ):
            when, origin = self._last.get(page, (0, -1))
            gap_s = (tick.end_ns - when) / 1e9
            if when:
                self._shortest_s = min(self._shortest_s, gap_s)
            if when and gap_s < self._residency_s:
                self._bounces[page] += 1
                self._back += origin == dest
            self._last[page] = (tick.time_ns, source)
            self._moves[page] += 1
            self._ways[f"{source} to {dest}"] += 1

    def _watermarks(self, tick: TickRecord) -> None:
        change = dict.fromkeys(tick.usage, 0)
        size = sizes_of(tick.plan.order)
        for node in change:
            change[node] += int(size[tick.plan.source == node].sum())
            change[node] -= int(size[tick.plan.dest == node].sum())
        for node, usage in tick.usage.items():
            low = max(usage.reserve_bytes, int(self._low * usage.total_bytes))
            seen = self._free.setdefault(node, [usage.free_bytes, usage.free_bytes])
            seen[:] = min(seen[0], usage.free_bytes), max(seen[1], usage.free_bytes)
            short = low - usage.free_bytes - change[node]
            if change[node] < 0 and short > 0:
                self._dug.append(((tick.time_ns - self._begun_ns) / 1e9, node, short))
            if usage.free_bytes >= low:
                self._below_since.pop(node, None)
                continue
            since = self._below_since.setdefault(node, tick.time_ns)
            self._below_s[node] += (tick.time_ns - (self._end_ns or tick.time_ns)) / 1e9
            now_s = (tick.time_ns - since) / 1e9
            self._longest_s[node] = max(self._longest_s[node], now_s)

    def as_json(self) -> dict[str, Any]:
        """All of it, JSON types only; pages are of 4 KiB."""
        moves = np.array(list(self._moves.values()) or [0])
        seconds = (self._end_ns - self._begun_ns) / 1e9
        return {
            "seconds": seconds,
            "pages_moved": len(self._moves),
            "moves": int(moves.sum()),
            "moves_a_page": float(moves.mean()),
            "most_moves_of_a_page": int(moves.max()),
            "most_by_residency": seconds / self._residency_s + 1,
            "bounces": sum(self._bounces.values()),
            "bounces_back": self._back,
            "most_bounces_of_a_page": max(self._bounces.values(), default=0),
            "shortest_between_moves_s": self._shortest_s if self._shortest_s < 1e9 else None,
            "moves_by_way": dict(self._ways),
            "plans_that_dug_below_low": len(self._dug),
            "the_deepest_of_them": sorted(self._dug, key=lambda each: -each[2])[:KEPT],
            "seconds_below_low": {str(n): s for n, s in self._below_s.items()},
            "longest_below_low_s": {str(n): s for n, s in self._longest_s.items()},
            "free_bytes_least_and_most": {str(n): each for n, each in self._free.items()},
        }
