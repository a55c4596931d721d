# SPDX-License-Identifier: Apache-2.0
"""The stream of decisions: what each tick did, for whoever listens."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from tierd.core.migration import Direction, Fate, MigrationResult
from tierd.core.pagekey import target_of
from tierd.core.tiermap import TierMap
from tierd.observe.tick_record import TickRecord
from tierd.workloads.target import Target

Event = dict[str, Any]
ROOM: Final = 1024
"""Events kept for a reader that is slower than the loop."""
MOST_A_TICK: Final = 256
"""Events of one tick; the rest of it is counted in the last."""


class Reader:
    """One listener's queue."""

    def __init__(self, space: int = ROOM) -> None:
        self._queue: queue.Queue[Event | None] = queue.Queue(space)
        self.dropped = 0
        """Events there was no room for; only the loop counts up."""
        self._reported = 0

    def put(self, event: Event) -> bool:
        """Offer an event; False where there was no room."""
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self.dropped += 1
            return False
        return True

    def wake(self) -> None:
        """Have `get` return at once; from any thread."""
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)

    def get(self, timeout_s: float) -> Event | None:
        """The next event, or None if there was none in time.

        What was dropped is told as an event of its own, before what came after it.
        """
        missed = self.dropped - self._reported
        if missed:
            self._reported += missed
            return {"kind": "dropped", "events": missed}
        try:
            return self._queue.get(timeout=timeout_s)
        except queue.Empty:
            return None


class EventFeed:
    """An observer of ticks that makes events while somebody listens."""

    def __init__(self, targets: Any) -> None:
        """`targets` is called in the loop's thread for number → Target."""
        self._targets = targets
        self._lock = threading.Lock()
        self._readers: list[Reader] = []
        self.dropped = 0

    def subscribe(self, space: int = ROOM) -> Reader:
        """A new listener; from any thread."""
        reader = Reader(space)
        with self._lock:
            self._readers = [*self._readers, reader]
        return reader

    def unsubscribe(self, reader: Reader) -> None:
        """Remove a listener."""
        with self._lock:
            self._readers = [one for one in self._readers if one is not reader]

    def wake(self) -> None:
        """Have every listener see whether to end."""
        for reader in self._readers:
            reader.wake()

    def tell(self, event: Event) -> None:
        """Offer an event to every listener."""
        for reader in self._readers:
            if not reader.put(event):
                self.dropped += 1

    def on_tick(self, tick: TickRecord) -> None:
        """Tell what the tick decided."""
        if not self._readers:
            return
        for event in tick_events(tick, self._targets()):
            self.tell(event)


def tick_events(tick: TickRecord, targets: Mapping[int, Target]) -> Iterator[Event]:
    """The events of one tick: one for each target, direction and pair of tiers.

    Attributes of an event: `kind` ("moves"), `tick`, `time` (Unix), `pid`, `comm`, `cgroup`,
    `direction`, `source`, `dest` (tiers), `pages`, `moved` (4 KiB), `migration_results` (by fate
    where not moved), `heat` (least and most, that the decision was made on), `undo` (true where
    the moves put pages back, and nothing was decided on heat). A tick that held pages back and
    moved none is one event of the kind "held back".
    """
    now = time.time()
    told = {"tick": tick.number, "time": now}
    undo = {"undo": True} if "undo" in tick.plan.notes else {}
    report = tick.report or (MigrationResult.not_tried(tick.plan) if len(tick.plan) else None)
    if report is None:
        if tick.plan.notes:
            yield {"kind": "held back", **told, "reasons": dict(tick.plan.notes)}
        return
    plan = report.plan
    code = target_of(plan.page).astype(np.int64) << 33
    code |= plan.direction.astype(np.int64) << 32
    code |= plan.source.astype(np.int64) + 1 << 16 | plan.dest.astype(np.int64) + 1
    codes, place = np.unique(code, return_inverse=True)
    pages = np.int64(1) << plan.order.astype(np.int64)
    moved = np.bincount(place, weights=pages * (report.fate == Fate.MOVED))
    total = np.bincount(place, weights=pages)
    order = np.argsort(place, kind="stable")
    starts = np.searchsorted(place[order], np.arange(len(codes) + 1))
    for index in np.argsort(-total, kind="stable")[:MOST_A_TICK]:
        own = order[starts[index] : starts[index + 1]]
        number = int(codes[index])
        yield {
            "kind": "moves",
            **told,
            **_process(targets.get(number >> 33)),
            "direction": Direction(number >> 32 & 1).name.lower(),
            "source": _tier(tick.tiers, (number >> 16 & 0xFFFF) - 1),
            "dest": _tier(tick.tiers, (number & 0xFFFF) - 1),
            "pages": int(total[index]),
            "moved": int(moved[index]),
            "migration_results": _results(report, own, pages),
            **undo,
            "heat": [round(float(plan.heat[own].min()), 3), round(float(plan.heat[own].max()), 3)],
        }
    if len(codes) > MOST_A_TICK:
        yield {"kind": "left out", **told, "events": len(codes) - MOST_A_TICK}


def _results(report: MigrationResult, own: Any, pages: Any) -> dict[str, int]:
    counts = np.bincount(report.fate[own], weights=pages[own])
    return {
        Fate(int(number)).name.lower(): int(counts[number])
        for number in np.flatnonzero(counts)
        if number != Fate.MOVED
    }


def _process(target: Target | None) -> dict[str, Any]:
    if target is None:
        return {"pid": None, "comm": "", "cgroup": ""}
    return {"pid": target.pid, "comm": target.comm, "cgroup": target.cgroup}


def _tier(tiers: TierMap, node: int) -> str:
    try:
        return tiers.tier_of(node).name
    except KeyError:
        return "unknown"
