# SPDX-License-Identifier: Apache-2.0
"""The cards' thresholds in recordings: what cards told, and the same decided again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import chain
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from tierd.engine.fastpath.thresholds import Costs, HotnessThresholdController
from tierd.observe.recording.calls import MISSHAPEN, Journal, nonsense, number
from tierd.observe.recording.records import Call
from tierd.policy.neomem import NeoMemSettings
from tierd.sources.kmod.neoprof import Profile
from tierd.sources.kmod.uapi import Features
from tierd.sources.neoprof import NeoProfSource

MOST: Final = float(1 << 62)
BINS: Final = 64


class RecordedThresholds(HotnessThresholdController):
    """Keeps the cards' thresholds, and tells a journal of it."""

    def __init__(self, journal: Journal, settings: NeoMemSettings, interval_ns: int) -> None:
        super().__init__(settings, interval_ns)
        self._journal = journal
        journal("threshold.new", [list(dataclasses.astuple(settings)), interval_ns], [])

    def forget(self) -> None:
        """See `HotnessThresholdController`."""
        super().forget()
        self._journal("threshold.forget", [], [])

    def update(
        self,
        source: NeoProfSource,
        costs: Costs,
        now_ns: int,
        least_rate: float = 0.0,
        stood_still_s: float = 0.0,
    ) -> bool:
        """See `HotnessThresholdController`."""
        asked: Any = _Asked(source)
        epochs = [[n, each.start_ns, each.scale] for n, each in source.epochs.items()]
        decided = super().update(asked, costs, now_ns, least_rate, stood_still_s)
        told = [now_ns, least_rate, stood_still_s, list(dataclasses.astuple(costs)), epochs]
        self._journal("threshold.update", [*told, asked.reported], [decided, asked.programmed])
        return decided


class _Asked:
    """Cards that remember what they told, and what they were set to."""

    def __init__(self, source: NeoProfSource) -> None:
        self._source = source
        self.epochs, self.cards = source.epochs, source.cards
        self.reported: list[object] = []
        self.programmed: list[object] = []

    def profiles(self) -> Mapping[int, Profile]:
        profiles = self._source.profiles()
        for card, profile in profiles.items():
            known = self.cards[card]
            geometry = [known.geometry.channels, known.geometry.threshold_max]
            self.reported.append(
                [
                    [card, *geometry, known.settings.threshold],
                    [int(profile.valid), profile.error_high],
                    list(chain(*profile.counters.items())),
                    list(chain(*known.stats.items())),
                    profile.histogram.tolist(),
                ]
            )
        return profiles

    def program(self, card: int, threshold: int) -> None:
        self._source.program(card, threshold)
        self.programmed.append([card, threshold])


class ThresholdReplay:
    """Decides the cards' thresholds again."""

    def __init__(self) -> None:
        self._thresholds: HotnessThresholdController | None = None

    def decide(self, call: Call) -> list[object]:
        """What this call decides now.

        Raises:
            RecordingError: it is no call that a recorder writes.
        """
        try:
            return self._decide(call.kind, call.given)
        except MISSHAPEN as error:
            raise nonsense(call, error) from None

    def _decide(self, kind: str, told: Sequence[Any]) -> list[object]:
        if kind == "threshold.new":
            settings = NeoMemSettings(*(number(each, 0, 1e18) for each in told[0]))
            self._thresholds = HotnessThresholdController(settings, int(number(told[1], 1, MOST)))
            return []
        if self._thresholds is None:
            raise KeyError(kind)
        if kind == "threshold.forget":
            self._thresholds.forget()
            return []
        now_ns, rate, stood_still_s, costs, epochs, cards = told
        source: Any = _Reported(epochs, cards)
        decided = self._thresholds.update(
            source,
            Costs(*(_whole(each) for each in costs)),
            _whole(now_ns),
            number(rate, 0, 1e12),
            number(stood_still_s, 0, 1e9),
        )
        return [decided, source.programmed]


class _Reported:
    """Cards as they were."""

    def __init__(self, epochs: Sequence[Any], cards: Sequence[Any]) -> None:
        self.epochs = {
            _whole(card): SimpleNamespace(start_ns=_whole(start), scale=number(scale, 1e-9, 1e9))
            for card, start, scale in epochs
        }
        self.programmed: list[object] = []
        self.cards: dict[int, Any] = {}
        self._profiles: dict[int, Profile] = {}
        for (card, channels, most, threshold), (valid, error), counters, stats, bins in cards:
            self.cards[_whole(card)] = SimpleNamespace(
                stats=_named(stats),
                geometry=SimpleNamespace(channels=_whole(channels), threshold_max=_whole(most)),
                settings=SimpleNamespace(threshold=_whole(threshold)),
            )
            if len(bins) != BINS:
                raise ValueError
            self._profiles[_whole(card)] = Profile(
                valid=Features(int(number(valid, 0, 1 << 16))),
                counters=_named(counters),
                error_low=0,
                error_high=_whole(error),
                error_bin=0,
                error_rank=0,
                threshold=_whole(threshold),
                histogram=np.array([int(number(each, 0, 1 << 32)) for each in bins], np.uint64),
                stats={},
            )

    def profiles(self) -> Mapping[int, Profile]:
        return self._profiles

    def program(self, card: int, threshold: int) -> None:
        self.programmed.append([card, threshold])


def _named(flat: Sequence[Any]) -> dict[str, int]:
    return {str(name): _whole(count) for name, count in zip(flat[::2], flat[1::2], strict=True)}


def _whole(value: Any) -> int:
    return int(number(value, 0, MOST))
