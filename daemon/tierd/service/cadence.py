# SPDX-License-Identifier: Apache-2.0
"""How long the loop leaves everything to the native path.

Owns: what a pass that found nothing to do is, and what ends the rest after it.
Must not touch: what a pass does, or the sleep itself (`tierd.service.loop`).

A pass costs the same whether it finds something to move or not. Where the native path
promotes, what must be quick is done without passes; they bring it new victims, and look after
what it does not see. So the time between two passes doubles, up to `loop.quiet_tick`, while
passes find nothing to do, and is `loop.tick` again as soon as there is something. Sources
without a native path are read, and acted upon, by passes only: there it never grows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from tierd.config import LoopConfig
from tierd.moves import Fate, MoveReport
from tierd.policy.inputs import NodeUsage
from tierd.policy.watermark import WatermarkSettings
from tierd.service.orders import low_bytes
from tierd.service.rooms import Rooms
from tierd.service.tick import TickRecord

FEW_PAGES: Final = 128
"""Pages moved by a pass or between two, or waiting for it: fewer are nothing to do."""
BACKLOG: Final = 0.25
"""A source is read before its ring is fuller than this."""


class Cadence:
    """Decides after each pass how long the next one may wait, and then whether it may wait on."""

    def __init__(self) -> None:
        self._pause_ns = 0
        """The last one; none before the first pass."""
        self._promoted = 0

    def pause_ns(self, loop: LoopConfig, rooms: Rooms, tick: TickRecord | None) -> int:
        """Time from the start of the last pass to that of the next one."""
        if tick is None or not _quiet(rooms, tick):
            self._pause_ns = loop.tick_ns
        else:
            self._pause_ns = max(
                loop.tick_ns, min(2 * max(self._pause_ns, loop.tick_ns), loop.quiet_tick_ns)
            )
        self._promoted = _native(rooms)[0]
        return self._pause_ns

    def must_look(self, rooms: Rooms, tick: TickRecord | None) -> bool:
        """Whether something has come up since the last pass, which was `tick`."""
        if tick is None or rooms.steering is None:
            return True
        source = rooms.steering.around.source
        if source is None or source.backlog > BACKLOG:
            return True
        promoted, pending = _native(rooms)
        if promoted - self._promoted >= FEW_PAGES or pending >= FEW_PAGES:
            return True
        return _short(rooms.read_usage(tick.tiers), rooms, tick)


def _quiet(rooms: Rooms, tick: TickRecord) -> bool:
    """Whether a pass had nothing to do that the native path would not have done."""
    steering = rooms.steering
    return (
        steering is not None
        and steering.settled
        and rooms.tracking.all_walked
        and tick.groups is None
        and tick.traffic is None
        and not tick.hot_set_moved
        and len(tick.plan) < FEW_PAGES
        and _pages(tick.between) < FEW_PAGES
        and not _short(tick.usage, rooms, tick)
    )


def _pages(report: MoveReport | None) -> int:
    return 0 if report is None else int(np.count_nonzero(report.fate == Fate.MOVED))


def _native(rooms: Rooms) -> tuple[int, int]:
    """Pages promoted since the start, and pages that wait for it."""
    stats = None if rooms.steering is None else rooms.steering.stats()
    return (0, 0) if stats is None else (stats.counters["promoted"], stats.counters["pending"])


def _short(usage: Mapping[int, NodeUsage], rooms: Rooms, tick: TickRecord) -> bool:
    """Whether a node that pages are demoted from has less free than it must have."""
    policy = rooms.policy
    settings = getattr(policy, "settings", None)
    if not isinstance(settings, WatermarkSettings):
        return True
    return any(
        usage[node].free_bytes < low_bytes(usage[node], settings)
        for tier in tick.tiers.tiers
        if tick.tiers.demotion_tier(tier.rank) is not None
        for node in tier.nodes
        if node in usage
    )
