# SPDX-License-Identifier: Apache-2.0
"""`Cards`: NeoProf cards through the module, by generic netlink.

A card's hot pages come as records of kind `Kind.HOT` through `Ring.open(kinds=(Kind.HOT,))`.
docs/hardware/driver.md describes settings and fields.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tierd.core.errors import TargetGoneError
from tierd.sources.kmod.genl import Answer, Family, named, understood
from tierd.sources.kmod.uapi import (
    BINS,
    CARD_GEOMETRY,
    CARD_RANGE,
    CARD_STATS,
    PROFILE,
    PROFILE_BOUNDS,
    CardDo,
    CardFlags,
    CardState,
    Command,
    Features,
    Track,
)


@dataclass(frozen=True, slots=True)
class CardRange:
    """Host physical memory of a card, in bytes.

    Attributes:
        start, end: host physical addresses [start, end).
        device: the card's own address of its first byte in there.
        granularity, ways, position: of each `ways` blocks of `granularity` bytes the card has
            the `position`-th; `ways` 1: all of it, and the other two do not matter.
        node: NUMA node, -1 if that is not online memory. Ignored when ranges are set.
    """

    start: int
    end: int
    device: int = 0
    granularity: int = 4096
    ways: int = 1
    position: int = 0
    node: int = -1


@dataclass(frozen=True, slots=True)
class Geometry:
    """What a card is made of; struct tierd_card_geometry."""

    capacity: int
    features: Features
    depth: int
    width: int
    counter_bits: int
    channels: int
    bins: int
    slots: int
    unit_sizes: int
    cycles_100us: int
    threshold_max: int


@dataclass(frozen=True, slots=True)
class CardSettings:
    """Settings in force. Times in microseconds; `epoch_us` 0: cleared by command only."""

    drain_us: int
    epoch_us: int
    threshold: int
    track: Track
    unit_log2: int
    downsample: int
    flags: CardFlags
    error_rank: int


@dataclass(frozen=True, slots=True)
class Card:
    """A card as the module knows it.

    Attributes:
        number: its number; records of its pages carry it in `history`.
        backend: "window", "pci" or "neoprof-v1".
        why: why it failed, or why it has no ranges; else empty.
        stats: struct tierd_card_stats by field name.
    """

    number: int
    backend: str
    device: str
    state: CardState
    why: str
    ranges: tuple[CardRange, ...]
    geometry: Geometry
    settings: CardSettings
    stats: Mapping[str, int]

    @property
    def nodes(self) -> frozenset[int]:
        """NUMA nodes of the memory behind it."""
        return frozenset(item.node for item in self.ranges if item.node >= 0)


@dataclass(frozen=True, slots=True)
class Profile:
    """A card's counters at one moment; struct tierd_profile.

    Attributes:
        valid: which of the fields hold.
        counters: the fields of 64 bits but `valid`, by name.
        error_low, error_high: the error bound is between these, inclusive.
        error_bin, error_rank: its bin, and the rank of the counter that it is.
        histogram: uint64[64], counters of row 0 by value; bins have the lower edges
            `histogram_edges()`. All zero without Features.HISTOGRAM.
        stats: struct tierd_card_stats by field name; empty where the module does not tell it here.
    """

    valid: Features
    counters: Mapping[str, int]
    error_low: int
    error_high: int
    error_bin: int
    error_rank: int
    threshold: int
    histogram: npt.NDArray[np.uint64]
    stats: Mapping[str, int]


@functools.cache
def histogram_edges() -> npt.NDArray[np.int64]:
    """Lower edges of the 64 bins, int64[64]; the last bin has no upper end.

    0 to 7 step 1, 8 to 22 step 2, 24 to 52 step 4, 56 to 112 step 8, and so on: runs of
    eight, each of twice the step (the published NeoProf design; docs/hardware/README.md).
    """
    starts = [0]
    for run in range(BINS // 8):
        for _ in range(8):
            starts.append(starts[-1] + (1 << run))
    edges = np.array(starts[:BINS], np.int64)
    edges.flags.writeable = False
    return edges


class Cards(Family):
    """A connection to the module for cards; `open` makes one.

    A card that was enabled through a connection stops when that is closed, unless it has
    the flag `CardFlags.PERSIST`.
    """

    def cards(self) -> list[Card]:
        """All cards, by number. Raises UnavailableError: the module is gone, or refuses."""
        found = self.ask(Command.NEOPROF_GET, dump=True)
        with understood():
            return [_card(message) for message in found]

    def card(self, number: int) -> Card:
        """One card.

        Raises:
            TargetGoneError: no such card.
            UnavailableError: the module is gone, or refuses.
        """
        for card in self.cards():
            if card.number == number:
                return card
        raise TargetGoneError(f"there is no NeoProf card {number}")

    def set(
        self,
        number: int,
        *,
        enable: bool | None = None,
        drain_us: int | None = None,
        epoch_us: int | None = None,
        threshold: int | None = None,
        track: Track | None = None,
        unit_log2: int | None = None,
        downsample: int | None = None,
        flags: CardFlags | None = None,
        error_rank: int | None = None,
        ranges: Sequence[CardRange] | None = None,
        do: CardDo | None = None,
    ) -> None:
        """Change what is given and leave the rest; `do` comes first, `enable` last.

        Threshold, drain period and clearing lose nothing while the card counts. The other
        settings of a counting card stop it and start it again with its counters cleared.
        Ranges that are set stand in for those that the card's decoders tell; none of them
        (an empty sequence) asks the decoders again.

        Raises:
            TargetGoneError: no such card.
            UnavailableError: a value is refused (the message says which), the card does not
                answer, or the module went away.
        """
        self.ask(
            Command.NEOPROF_SET,
            [
                ["TIERD_A_CARD", number],
                ["TIERD_A_CARD_DO", None if do is None else int(do)],
                ["TIERD_A_CARD_RANGES", None if ranges is None else _pack(ranges)],
                ["TIERD_A_DRAIN_US", drain_us],
                ["TIERD_A_EPOCH_US", epoch_us],
                ["TIERD_A_THRESHOLD", threshold],
                ["TIERD_A_TRACK", None if track is None else int(track)],
                ["TIERD_A_UNIT_LOG2", unit_log2],
                ["TIERD_A_DOWNSAMPLE", downsample],
                ["TIERD_A_CARD_FLAGS", None if flags is None else int(flags)],
                ["TIERD_A_ERROR_RANK", error_rank],
                ["TIERD_A_ENABLE", None if enable is None else int(enable)],
            ],
        )

    def profile(self, number: int) -> Profile:
        """Take a snapshot of a card's counters and histogram.

        Raises:
            TargetGoneError: no such card.
            UnavailableError: the card does not answer or has nothing to tell.
        """
        found = self.ask(Command.NEOPROF_PROFILE_GET, [["TIERD_A_CARD", number]])
        with understood():
            (message,) = found
            table = _struct(PROFILE, message.get_attr("TIERD_A_PROFILE"))
            told = dict(zip(PROFILE.names or (), table.tolist(), strict=True))
            histogram = told.pop("histogram")
            bounds = {name: told.pop(name) for name in PROFILE_BOUNDS}
            bounds.pop("bins")
            return Profile(
                valid=Features(told.pop("valid")),
                counters=told,
                histogram=np.array(histogram, np.uint64),
                stats=named(CARD_STATS, message.get_attr("TIERD_A_CARD_STATS") or b""),
                **bounds,
            )


# A card is asked for again and again, and these two change hardly ever.
@functools.lru_cache(64)
def _geometry(data: bytes) -> Geometry:
    geometry = _struct(CARD_GEOMETRY, data)
    names = [name for name in CARD_GEOMETRY.names or () if name not in ("pad", "features")]
    return Geometry(
        features=Features(int(geometry["features"])),
        **{name: int(geometry[name]) for name in names},
    )


@functools.lru_cache(64)
def _ranges(data: bytes) -> tuple[CardRange, ...]:
    names = [name for name in CARD_RANGE.names or () if name != "pad"]
    return tuple(
        CardRange(**{name: int(item[name]) for name in names})
        for item in np.frombuffer(data, CARD_RANGE)
    )


def _card(message: Answer) -> Card:
    return Card(
        number=message.get_attr("TIERD_A_CARD"),
        backend=_text(message, "TIERD_A_BACKEND"),
        device=_text(message, "TIERD_A_DEVICE"),
        state=CardState(message.get_attr("TIERD_A_CARD_STATE")),
        why=_text(message, "TIERD_A_WHY"),
        ranges=_ranges(message.get_attr("TIERD_A_CARD_RANGES") or b""),
        geometry=_geometry(message.get_attr("TIERD_A_CARD_GEOMETRY")),
        settings=CardSettings(
            drain_us=message.get_attr("TIERD_A_DRAIN_US"),
            epoch_us=message.get_attr("TIERD_A_EPOCH_US"),
            threshold=message.get_attr("TIERD_A_THRESHOLD"),
            track=Track(message.get_attr("TIERD_A_TRACK")),
            unit_log2=message.get_attr("TIERD_A_UNIT_LOG2"),
            downsample=message.get_attr("TIERD_A_DOWNSAMPLE"),
            flags=CardFlags(message.get_attr("TIERD_A_CARD_FLAGS")),
            error_rank=message.get_attr("TIERD_A_ERROR_RANK"),
        ),
        stats=named(CARD_STATS, message.get_attr("TIERD_A_CARD_STATS")),
    )


def _text(message: Answer, name: str) -> str:
    value = message.get_attr(name)
    return value.decode() if isinstance(value, bytes) else value or ""


def _struct(dtype: np.dtype[np.void], data: bytes) -> Any:
    """One structure; fields that a module of another version does not tell are 0."""
    return np.frombuffer(data.ljust(dtype.itemsize, b"\0"), dtype, count=1)[0]


def _pack(ranges: Sequence[CardRange]) -> bytes:
    table = np.zeros(len(ranges), CARD_RANGE)
    for name in CARD_RANGE.names or ():
        if name != "pad":
            table[name] = [getattr(item, name) for item in ranges]
    return table.tobytes()
