# SPDX-License-Identifier: Apache-2.0
"""What the native path is to do, in recordings: settings and orders, and the same again."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from tierd.core.access import Seen
from tierd.core.nodes import NodeUsage
from tierd.core.tiermap import TierMap
from tierd.engine.fastpath.update import FastPathSettings, FastPathUpdater
from tierd.engine.service_view import ServiceView
from tierd.engine.tracking import Tracking
from tierd.hotness.view import HeatView
from tierd.migration.fastpath_update import Orders, PromoterSettings
from tierd.observe.recording.calls import MISSHAPEN, Journal, nonsense, number
from tierd.observe.recording.records import Call
from tierd.policy.group_limits import Groups
from tierd.policy.watermark import WatermarkSettings
from tierd.sources.neoprof import NeoProfSource

MOST: Final = float(1 << 60)
MAX_NODES: Final = 1024


def _seen(seen: Seen | None) -> list[float] | None:
    return None if seen is None else [seen.share, seen.sampling_interval_s, seen.period_s]


def _chosen(orders: Orders) -> list[object]:
    """Victims and ways of orders, as they are compared; victims by a checksum of all of them."""
    crc = 0
    for name in ("page", "heat", "node", "order"):
        crc = zlib.crc32(np.ascontiguousarray(orders.victims[name]).tobytes(), crc)
    ways = [
        [node, list(way.up), list(way.down), way.low_bytes, way.held_bytes]
        for node, way in orders.ways.items()
    ]
    return [len(orders.victims), crc, ways]


class RecordedUpdater(FastPathUpdater):
    """Makes settings and orders, and tells a journal of what they were made of."""

    def __init__(
        self,
        journal: Journal,
        settings: FastPathSettings,
        policy: WatermarkSettings,
        *,
        heat: HeatView,
        tracking: Tracking,
        root: Path,
    ) -> None:
        super().__init__(settings, policy, heat=heat, tracking=tracking, root=root)
        self._journal = journal
        told = [list(dataclasses.astuple(each)) for each in (settings, policy)]
        journal("brief.new", told, [])

    def least_rate(self, source: NeoProfSource, tiers: TierMap, stood_still_s: float) -> float:
        """See `FastPathUpdater`."""
        rate = super().least_rate(source, tiers, stood_still_s)
        covered = [[node, share] for node, share in source.coverage.covered.items()]
        self._journal("brief.rate", [covered, stood_still_s], [rate])
        return rate

    def settings(self, source: NeoProfSource | None, rate: float = 0.0) -> PromoterSettings:
        """See `FastPathUpdater`."""
        made = super().settings(source, rate)
        if source is not None:
            cards = [source.dilution, source.rate_cap, source.visits, source.copy_requests]
            told = [cards, _seen(source.seen), rate]
            self._journal("brief.settings", told, list(dataclasses.astuple(made)))
        return made

    def orders(
        self, source: NeoProfSource, around: ServiceView, came_in: int, groups: Groups | None
    ) -> Orders:
        """See `FastPathUpdater`."""
        made = super().orders(source, around, came_in, groups)
        held = [[node, way.held_bytes] for node, way in made.ways.items()]
        cards = [source.knows_cold, source.taught_s, source.dilution, _seen(source.seen)]
        self._journal("brief.orders", [came_in, cards, held], _chosen(made))
        return made


@dataclasses.dataclass(frozen=True)
class Surrounding:
    """What orders are made of beside the cards: all as of the tick."""

    heat: HeatView
    tiers: TierMap
    usage: Mapping[int, NodeUsage]
    groups: Groups | None


class _Replayed(FastPathUpdater):
    """Makes orders of what CPUs held then."""

    held: Mapping[int, int] = {}

    def _held(self) -> Mapping[int, int]:
        return self.held


class _Nobody:
    """Tracking, whose spans and processes are not compared."""

    pids: Mapping[int, int] = {}

    def spans(self) -> list[tuple[int, int]]:
        return []


class UpdateReplay:
    """Makes settings and orders again."""

    def __init__(self) -> None:
        self._settings: tuple[FastPathSettings, WatermarkSettings] | None = None
        self._updater: _Replayed | None = None
        self._heat: HeatView | None = None

    def decide(self, call: Call, around: Surrounding) -> list[object]:
        """What this call decides now.

        Raises:
            RecordingError: it is no call that a recorder writes.
        """
        try:
            return self._decide(call.kind, call.given, around)
        except MISSHAPEN as error:
            raise nonsense(call, error) from None

    def _decide(self, kind: str, told: Sequence[Any], around: Surrounding) -> list[object]:
        if kind == "brief.new":
            self._settings = _steering(told[0]), _watermarks(told[1])
            self._updater = None
            return []
        if self._settings is None:
            raise KeyError(kind)
        if self._updater is None or self._heat is not around.heat:
            nobody: Any = _Nobody()
            self._heat = around.heat
            self._updater = _Replayed(
                *self._settings, heat=around.heat, tracking=nobody, root=Path("/")
            )
        cards: Any
        match kind:
            case "brief.rate":
                shares = {_node(node): number(share, 0, 1) for node, share in told[0]}
                cards = _Cards(coverage=_Coverage(shares))
                return [self._updater.least_rate(cards, around.tiers, number(told[1], -1e9, 1e12))]
            case "brief.settings":
                dilution, rate_cap, visits, copies = (number(each, 0, 1e18) for each in told[0])
                cards = _Cards(dilution=dilution, rate_cap=rate_cap, visits=visits,
                               copy_requests=copies, seen=_seen_of(told[1]))  # fmt: skip
                made = self._updater.settings(cards, number(told[2], 0, 1e18))
                return list(dataclasses.astuple(made))
            case "brief.orders":
                return self._orders(told, around, self._updater)
        raise KeyError(kind)

    def _orders(
        self, told: Sequence[Any], around: Surrounding, briefing: _Replayed
    ) -> list[object]:
        came_in, (knows_cold, taught_s, dilution, seen), held = told
        briefing.held = {_node(node): int(number(size, 0, MOST)) for node, size in held}
        cards: Any = _Cards(
            knows_cold=bool(knows_cold),
            taught_s=number(taught_s, -1e9, 1e12),
            dilution=number(dilution, 0, 1),
            seen=_seen_of(seen),
            epochs={},
        )
        place: Any = around
        orders = briefing.orders(cards, place, int(number(came_in, 0, MOST)), around.groups)
        return _chosen(orders)


class _Cards:
    """Cards as they were."""

    def __init__(self, **known: Any) -> None:
        self.__dict__.update(known)


class _Coverage:
    def __init__(self, covered: Mapping[int, float]) -> None:
        self.covered = covered


def _seen_of(told: Any) -> Seen | None:
    if told is None:
        return None
    share, sampling_interval_s, period_s = told
    return Seen(
        number(share, 0, 1e9), number(sampling_interval_s, 0, 1e9), number(period_s, 0, 1e9)
    )


def _node(value: Any) -> int:
    return int(number(value, 0, MAX_NODES))


def _steering(told: Any) -> FastPathSettings:
    enabled, interval_ns, quota, half_life_s, break_even_s = told
    return FastPathSettings(
        bool(enabled),
        int(number(interval_ns, 1, MOST)),
        int(number(quota, 1, MOST)),
        number(half_life_s, 1e-3, 1e9),
        number(break_even_s, 1e-6, 1e9),
    )


def _watermarks(told: Any) -> WatermarkSettings:
    fields = [field.name for field in dataclasses.fields(WatermarkSettings)]
    named = dict(zip(fields, (number(each, 0, 1e12) for each in told), strict=True))
    return WatermarkSettings(**named)
