# SPDX-License-Identifier: Apache-2.0
"""`Cards` against a socket that plays the kernel's part."""

from __future__ import annotations

import errno
import struct
from typing import Any

import numpy as np
import pytest
from genl_kernel import FAMILY, NUMBER, Kernel, acknowledgement, attribute, done, message

from tierd.core.errors import TargetGoneError, UnavailableError
from tierd.sources.kmod.neoprof import CardRange, Cards, histogram_edges
from tierd.sources.kmod.uapi import (
    CARD_GEOMETRY,
    CARD_RANGE,
    CARD_STATS,
    PROFILE,
    CardDo,
    CardFlags,
    CardState,
    Command,
    Features,
    Track,
)


@pytest.fixture
def kernel() -> Kernel:
    return Kernel(BlockingIOError())


@pytest.fixture
def cards(kernel: Kernel) -> Cards:
    connection: Any = kernel
    return Cards(connection, FAMILY)


def asked(kernel: Kernel) -> dict[int, bytes]:
    found, offset, data = {}, 20, kernel.asked[-1]
    while offset < len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        found[kind] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found


def card_message() -> bytes:
    ranges = np.zeros(2, CARD_RANGE)
    ranges["start"], ranges["end"] = [1 << 30, 4 << 30], [2 << 30, 5 << 30]
    ranges["device"], ranges["ways"], ranges["node"] = [0, 1 << 30], 1, [1, -1]
    geometry = np.zeros(1, CARD_GEOMETRY)
    geometry["width"], geometry["slots"] = 1 << 19, 4096
    geometry["features"] = Features.HISTOGRAM | Features.EPOCH
    numbers = {"DRAIN_US": 10_000, "EPOCH_US": 5_000_000, "THRESHOLD": 200}
    numbers |= {"CARD_FLAGS": 1, "ERROR_RANK": 0, "CARD": 3}
    return message(
        Command.NEOPROF_GET,
        *(attribute(name, struct.pack("=I", value)) for name, value in numbers.items()),
        attribute("TRACK", b"\3"),
        attribute("UNIT_LOG2", b"\14"),
        attribute("DOWNSAMPLE", b"\0"),
        attribute("CARD_STATE", b"\2"),
        attribute("BACKEND", b"window\0"),
        attribute("DEVICE", b"0000:00:05.0\0"),
        attribute("WHY", b"\0"),
        attribute("CARD_RANGES", ranges.tobytes()),
        attribute("CARD_GEOMETRY", geometry.tobytes()),
        attribute("CARD_STATS", struct.pack("=3Q", 7, 8, 9)),
    )


def test_a_card_is_told_with_ranges_geometry_settings_and_counters(
    kernel: Kernel, cards: Cards
) -> None:
    kernel.answers = [card_message(), done()]
    (card,) = cards.cards()
    assert (card.number, card.backend, card.device) == (3, "window", "0000:00:05.0")
    assert (card.state, card.why) == (CardState.COUNTING, "")
    assert card.nodes == {1}
    assert [item.device for item in card.ranges] == [0, 1 << 30]
    assert card.geometry.width == 1 << 19
    assert card.geometry.features == Features.HISTOGRAM | Features.EPOCH
    assert card.settings.track is Track.BOTH
    assert card.settings.flags is CardFlags.CONSERVATIVE
    # An older module tells fewer counters.
    assert dict(card.stats) == dict(zip(CARD_STATS, (7, 8, 9), strict=False))


def test_a_card_that_is_not_there_is_gone(kernel: Kernel, cards: Cards) -> None:
    kernel.answers = [card_message(), done()]
    with pytest.raises(TargetGoneError):
        cards.card(2)
    kernel.answers = [acknowledgement(errno.ESRCH)]
    with pytest.raises(TargetGoneError):
        cards.set(2, threshold=1)


def test_only_what_is_given_is_sent(kernel: Kernel, cards: Cards) -> None:
    kernel.answers = [acknowledgement()]
    cards.set(1, threshold=0, enable=False)
    sent = asked(kernel)
    assert set(sent) == {NUMBER["CARD"], NUMBER["THRESHOLD"], NUMBER["ENABLE"]}
    assert sent[NUMBER["THRESHOLD"]] == bytes(4)
    assert sent[NUMBER["ENABLE"]] == b"\0"


def test_no_ranges_is_not_the_same_as_ranges_not_given(kernel: Kernel, cards: Cards) -> None:
    kernel.answers = [acknowledgement(), acknowledgement()]
    cards.set(1, ranges=[], do=CardDo.CLEAR)
    assert asked(kernel)[NUMBER["CARD_RANGES"]] == b""
    cards.set(1, ranges=[CardRange(4096, 8192, 0, 4096, 2, 1)])
    (item,) = np.frombuffer(asked(kernel)[NUMBER["CARD_RANGES"]], CARD_RANGE)
    assert (item["start"], item["end"], item["ways"], item["position"]) == (4096, 8192, 2, 1)


def test_a_refusal_carries_the_kernels_reason(kernel: Kernel, cards: Cards) -> None:
    kernel.answers = [acknowledgement(errno.ERANGE, "the threshold is too high")]
    with pytest.raises(UnavailableError, match="the threshold is too high"):
        cards.set(0, threshold=1 << 31)
    kernel.answers = [acknowledgement(errno.ERANGE)]
    with pytest.raises(UnavailableError, match="out of range"):
        cards.set(0, threshold=1 << 31)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (errno.EINVAL, "another version"),
        (errno.EOPNOTSUPP, "another version"),
        (errno.EPERM, "CAP_NET_ADMIN"),
        (errno.ERANGE, ""),
    ],
)
def test_a_refusal_says_what_to_do(kernel: Kernel, cards: Cards, error: int, hint: str) -> None:
    kernel.answers = [acknowledgement(error)]
    with pytest.raises(UnavailableError) as refused:
        cards.set(0, threshold=1)
    assert (hint in refused.value.hint) if hint else refused.value.hint == ""


def test_a_profile_has_its_histogram_and_says_what_holds(kernel: Kernel, cards: Cards) -> None:
    table = np.zeros(1, PROFILE)
    table["valid"], table["read_beats"], table["error_high"] = 3, 12, 5
    table["histogram"][0, :2] = [100, 28]
    answer = message(
        Command.NEOPROF_PROFILE_GET,
        attribute("CARD", bytes(4)),
        attribute("PROFILE", table.tobytes()),
        attribute("CARD_STATS", struct.pack("=3Q", 7, 8, 9)),
    )
    kernel.answers = [answer, acknowledgement()]
    profile = cards.profile(0)
    assert profile.valid == Features.HISTOGRAM | Features.BANDWIDTH
    assert profile.counters["read_beats"] == 12
    assert profile.error_high == 5
    assert profile.histogram[:3].tolist() == [100, 28, 0]
    assert dict(profile.stats) == dict(zip(CARD_STATS, (7, 8, 9), strict=False))
    assert "valid" not in profile.counters
    # One of a module that tells less.
    short = message(Command.NEOPROF_PROFILE_GET, attribute("PROFILE", table.tobytes()[:64]))
    kernel.answers = [short, acknowledgement()]
    told = cards.profile(0)
    assert told.histogram.sum() == 0
    assert told.stats == {}


def test_edges_are_those_of_the_published_design() -> None:
    edges = histogram_edges()
    assert len(edges) == 64
    assert edges[[0, 7, 8, 15, 16, 23, 24, 31, 56, 63]].tolist() == [
        *(0, 7, 8, 22, 24, 52, 56, 112, 1016, 1912)
    ]
