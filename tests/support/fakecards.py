# SPDX-License-Identifier: Apache-2.0
"""NeoProf cards that a test plays, and a host whose nodes have memory blocks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tierd.core.errors import TargetGoneError, UnavailableError
from tierd.sources.kmod.neoprof import Card, CardRange, CardSettings, Geometry, Profile
from tierd.sources.kmod.uapi import CardDo, CardFlags, CardState, Features, Track

MIB = 1 << 20
BLOCK = 128 * MIB
ALL = Features((1 << 12) - 1)


def host(root: Path, nodes: dict[int, tuple[int, int]]) -> None:
    """Memory blocks [first, end) of 128 MiB for each node."""
    memory = root / "sys/devices/system/memory"
    memory.mkdir(parents=True)
    (memory / "block_size_bytes").write_text(f"{BLOCK:x}\n")
    for node, (first, end) in nodes.items():
        for block in range(first, end):
            (root / f"sys/devices/system/node/node{node}/memory{block}").mkdir(parents=True)


def card(
    number: int,
    mib: tuple[int, int] = (0, 0),
    *,
    node: int = 1,
    ranges: tuple[CardRange, ...] | None = None,
    state: CardState = CardState.STOPPED,
    why: str = "",
    features: Features = ALL,
) -> Card:
    """A card over host memory [mib[0], mib[1]) MiB of a node."""
    if ranges is None:
        ranges = (CardRange(mib[0] * MIB, mib[1] * MIB, node=node),)
    return Card(
        number=number,
        backend="window",
        device="test",
        state=state,
        why=why,
        ranges=ranges,
        geometry=Geometry(1 << 31, features, 2, 1 << 19, 16, 2, 64, 16384, 0x3FF0, 40000, 65535),
        settings=CardSettings(10000, 0, 65535, Track.BOTH, 12, 0, CardFlags(0), 0),
        stats={"entries": 0, "overflows": 0, "limited": 0},
    )


class FakeCards:
    """`tierd.sources.kmod.neoprof.Cards` over a list that the test changes."""

    def __init__(self, *cards: Card) -> None:
        self.known = {each.number: each for each in cards}
        self.asked: list[tuple[int, dict[str, Any]]] = []
        self.closed = 0
        self.refuses: set[int] = set()
        self.histogram = np.zeros(64, np.uint64)
        self.counters: dict[str, int] = {}
        self.stats: dict[str, int] = {}
        self.looks = 0
        """Times all cards were asked for."""

    def open(self) -> FakeCards:
        return self

    def cards(self) -> list[Card]:
        self.looks += 1
        return [self.known[number] for number in sorted(self.known)]

    def set(self, number: int, **settings: Any) -> None:
        if number not in self.known:
            raise TargetGoneError(f"there is no NeoProf card {number}")
        if number in self.refuses:
            raise UnavailableError("the card does not answer")
        given = {name: value for name, value in settings.items() if value is not None}
        self.asked.append((number, given))
        state = self.known[number].state
        if given.get("do", 0) & CardDo.RESET:
            state = CardState.STOPPED
        if "enable" in given:
            state = CardState.COUNTING if given["enable"] else CardState.STOPPED
        old = self.known[number].settings
        kept = replace(
            old,
            threshold=given.get("threshold", old.threshold),
            flags=given.get("flags", old.flags),
        )
        self.known[number] = replace(self.known[number], state=state, settings=kept)

    def fail(self, number: int) -> None:
        self.known[number] = replace(
            self.known[number], state=CardState.FAILED, why="it does not answer"
        )

    def profile(self, number: int) -> Profile:
        if number not in self.known:
            raise TargetGoneError(f"there is no NeoProf card {number}")
        if self.known[number].state is CardState.FAILED:
            raise UnavailableError("the card failed")
        return Profile(
            valid=ALL,
            counters=dict(self.counters),
            error_low=0,
            error_high=0,
            error_bin=0,
            error_rank=0,
            threshold=self.known[number].settings.threshold,
            histogram=self.histogram.copy(),
            stats=dict(self.stats),
        )

    def close(self) -> None:
        self.closed += 1
