# SPDX-License-Identifier: Apache-2.0
"""Devices' thresholds and the updates of the fast path, in recordings and replays."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from tierd.core.access import Seen
from tierd.engine.fastpath.thresholds import Costs, HotnessThresholdController
from tierd.engine.fastpath.update import FastPathSettings, FastPathUpdater
from tierd.migration.fastpath_update import Orders
from tierd.policy.neomem import NeoMemSettings
from tierd.policy.watermark import WatermarkSettings
from tierd.replay.component import Component, Method, Surrounding
from tierd.sources.kmod.neoprof import Profile
from tierd.sources.kmod.uapi import Features
from tierd.sources.neoprof import NeoProfSource

BINS: Final = 64


class _Asked:
    """Devices that remember what they reported, and what they were set to."""

    def __init__(self, source: NeoProfSource) -> None:
        self._source = source
        self.epochs, self.cards = source.epochs, source.cards
        self.reported: list[object] = []
        self.programmed: list[object] = []

    def profiles(self) -> Mapping[int, Profile]:
        profiles = self._source.profiles()
        for number, profile in profiles.items():
            known = self.cards[number]
            geometry = [known.geometry.channels, known.geometry.threshold_max]
            self.reported.append(
                [
                    [number, *geometry, known.settings.threshold],
                    [int(profile.valid), profile.error_high],
                    list(chain(*profile.counters.items())),
                    list(chain(*known.stats.items())),
                    profile.histogram.tolist(),
                ]
            )
        return profiles

    def program(self, number: int, threshold: int) -> None:
        self._source.program(number, threshold)
        self.programmed.append([number, threshold])


class _Reported:
    """Devices as they were."""

    def __init__(self, epochs: Sequence[Any], reported: Sequence[Any]) -> None:
        self.epochs = {
            number: SimpleNamespace(start_ns=start, scale=scale) for number, start, scale in epochs
        }
        self.programmed: list[object] = []
        self.cards: dict[int, Any] = {}
        self._profiles: dict[int, Profile] = {}
        for (number, channels, most, threshold), (valid, error), counters, stats, bins in reported:
            self.cards[number] = SimpleNamespace(
                stats=_named(stats),
                geometry=SimpleNamespace(channels=channels, threshold_max=most),
                settings=SimpleNamespace(threshold=threshold),
            )
            if len(bins) != BINS:
                raise ValueError("a histogram of another size")
            self._profiles[number] = Profile(
                valid=Features(valid),
                counters=_named(counters),
                error_low=0,
                error_high=error,
                error_bin=0,
                error_rank=0,
                threshold=threshold,
                histogram=np.array(bins, np.uint64),
                stats={},
            )

    def profiles(self) -> Mapping[int, Profile]:
        return self._profiles

    def program(self, number: int, threshold: int) -> None:
        self.programmed.append([number, threshold])


def _named(flat: Sequence[Any]) -> dict[str, int]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


THRESHOLDS: Final = Component(
    "threshold",
    HotnessThresholdController,
    {
        "forget": Method(decided=lambda *_: []),
        "update": Method(
            wrap=lambda _, source, *more: (_Asked(source), *more),
            given=lambda _, source, costs, now_ns, rate, age_s: [
                now_ns,
                rate,
                age_s,
                astuple(costs),
                [[n, each.start_ns, each.scale] for n, each in source.epochs.items()],
            ],
            asked=lambda _, decided, source, *more: [source.reported],
            decided=lambda _, decided, source, *more: [decided, source.programmed],
            arguments=lambda _, now_ns, rate, age_s, costs, epochs, reported: (
                _Reported(epochs, reported),
                Costs(*costs),
                now_ns,
                rate,
                age_s,
            ),
        ),
    },
    given=lambda settings, interval_ns: [astuple(settings), interval_ns],
    remake=lambda settings, interval_ns: HotnessThresholdController(
        NeoMemSettings(*settings), interval_ns
    ),
)


class _Updater(FastPathUpdater):
    """Makes settings and orders again, of what CPUs held then."""

    held: Mapping[int, int] = {}

    def __init__(self, settings: Sequence[Any], policy: Sequence[Any]) -> None:
        heat: Any = None
        # Which processes' pages may move is not compared.
        nobody: Any = SimpleNamespace(pids={}, spans=list)
        super().__init__(
            FastPathSettings(*settings),
            WatermarkSettings(*policy),
            heat=heat,
            tracking=nobody,
            root=Path("/"),
        )
        self.around: Surrounding | None = None

    def within(self, around: Surrounding) -> None:
        """Use this heat, and these nodes."""
        self._heat, self.around = around.heat, around

    def _held(self) -> Mapping[int, int]:
        return self.held


def _seen(seen: Seen | None) -> list[float] | None:
    return None if seen is None else [seen.share, seen.sampling_interval_s, seen.period_s]


def _seen_again(seen: Sequence[float] | None) -> Seen | None:
    return None if seen is None else Seen(*seen)


def _chosen(_: Any, orders: Orders, *more: Any) -> list[object]:
    """Victims and ways of orders, as they are compared; victims by a checksum of all of them."""
    crc = 0
    for name in ("page", "heat", "node", "order"):
        crc = zlib.crc32(np.ascontiguousarray(orders.victims[name]).tobytes(), crc)
    ways = [
        [node, list(way.up), list(way.down), way.low_bytes, way.held_bytes]
        for node, way in orders.ways.items()
    ]
    return [len(orders.victims), crc, ways]


def _orders_again(
    updater: _Updater, came_in: int, known: Sequence[Any], held: Sequence[Any]
) -> Sequence[Any]:
    knows_cold, taught_s, dilution, seen = known
    updater.held = dict(held)
    source = SimpleNamespace(
        knows_cold=knows_cold,
        taught_s=taught_s,
        dilution=dilution,
        seen=_seen_again(seen),
        epochs={},
    )
    around = updater.around
    return source, around, came_in, None if around is None else around.groups


def _settings_again(
    _: _Updater, known: Sequence[float], seen: Sequence[float] | None, rate: float
) -> Sequence[Any]:
    dilution, rate_cap, visits, copies = known
    source = SimpleNamespace(
        dilution=dilution,
        rate_cap=rate_cap,
        visits=visits,
        copy_requests=copies,
        seen=_seen_again(seen),
    )
    return source, rate


UPDATER: Final = Component(
    "update",
    FastPathUpdater,
    {
        "least_rate": Method(
            given=lambda _, source, tiers, age_s: [
                list(source.coverage.covered.items()),
                age_s,
            ],
            arguments=lambda updater, covered, age_s: (
                SimpleNamespace(coverage=SimpleNamespace(covered=dict(covered))),
                updater.around.tiers,
                age_s,
            ),
        ),
        "settings": Method(
            given=lambda _, source, rate=0.0: (
                None
                if source is None
                else [
                    [source.dilution, source.rate_cap, source.visits, source.copy_requests],
                    _seen(source.seen),
                    rate,
                ]
            ),
            decided=lambda _, made, *more: astuple(made),
            arguments=_settings_again,
        ),
        "orders": Method(
            given=lambda _, source, around, came_in, groups: [
                came_in,
                [source.knows_cold, source.taught_s, source.dilution, _seen(source.seen)],
            ],
            asked=lambda _, made, *more: [
                [[node, way.held_bytes] for node, way in made.ways.items()]
            ],
            decided=_chosen,
            arguments=_orders_again,
        ),
    },
    given=lambda settings, policy, **more: [astuple(settings), astuple(policy)],
    remake=_Updater,
    prepare=_Updater.within,
)
