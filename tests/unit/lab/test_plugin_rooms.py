# SPDX-License-Identifier: Apache-2.0
"""The rooms of the lab's QEMU plugin: cache, HDM decoders, a card's requests and clock.

Compiled from fpga/sim/plugin without QEMU.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from neoprof_build import FPGA

from neoprof import regs
from tierd_lab import plugin

GIB = 2**30
GRANULE = 256 * 2**20


class ReferenceCache:
    """A cache in a few lines: an ordered dictionary a set, least recent line first."""

    def __init__(self, sets: int, ways: int, line: int) -> None:
        self.sets: list[OrderedDict[int, bool]] = [OrderedDict() for _ in range(sets)]
        self.ways, self.line = ways, line
        self.bits = 30 + sets.bit_length() - 1

    def set_of(self, number: int) -> int:
        """The hash: a product's low bits, and bits of its upper half on top of them."""
        product = number * 0x9E3779B97F4A7C15 % (1 << self.bits)
        return (product ^ product >> (self.bits + 1) // 2) % len(self.sets)

    def access(self, address: int, store: bool) -> tuple[int, int]:
        """The event (0 hit, 1 miss, 2 miss with a write-back) and the line written back."""
        number = address // self.line
        lines = self.sets[self.set_of(number)]
        if number in lines:
            lines[number] |= store
            lines.move_to_end(number)
            return 0, 0
        event, evicted = 1, 0
        if len(lines) == self.ways:
            victim, dirty = lines.popitem(last=False)
            event, evicted = (2, victim * self.line) if dirty else (1, 0)
        lines[number] = store
        return event, evicted


@pytest.mark.parametrize(
    ("sets", "ways", "line"),
    [(1, 1, 64), (1, 16, 64), (16, 3, 64), (64, 16, 64), (8, 8, 128), (4, 64, 8)],
)
@pytest.mark.parametrize("span", [2, 20])
def test_cache_does_what_the_reference_does(
    rooms: Any, sets: int, ways: int, line: int, span: int
) -> None:
    """Hits, misses and written-back lines of a random stream, one by one."""
    rng = np.random.default_rng(sets * ways + span)
    count = 20_000
    lines = rng.zipf(1.3, count) % (sets * ways * span)
    addresses = (lines * line + rng.integers(0, line, count)).astype(np.uint64)
    addresses[::7] += np.uint64(5 * GIB)
    stores = (rng.random(count) < 0.4).astype(np.uint8)
    cache = rooms.ffi.new("struct cache *")
    assert rooms.lib.cache_init(cache, sets * ways * line, ways, line) == 0
    events, evicted = np.zeros(count, np.uint8), np.zeros(count, np.uint64)
    rooms.lib.replay(
        cache,
        rooms.ffi.from_buffer("uint64_t[]", addresses),
        rooms.ffi.from_buffer("uint8_t[]", stores),
        count,
        rooms.ffi.from_buffer("uint8_t[]", events),
        rooms.ffi.from_buffer("uint64_t[]", evicted),
    )
    rooms.lib.cache_free(cache)
    reference = ReferenceCache(sets, ways, line)
    expected = [
        reference.access(int(address), bool(store))
        for address, store in zip(addresses, stores, strict=True)
    ]
    assert list(zip(events.tolist(), evicted.tolist(), strict=True)) == expected
    assert {event for event, _ in expected} >= {0, 1, 2}


def test_pages_side_by_side_miss_as_often_as_scattered_ones(rooms: Any) -> None:
    """A program's pages must not be worse off for having been moved."""
    rng = np.random.default_rng(7)
    pages, count = 448, 200_000  # 1.75 MiB in a cache of 2 MiB
    offsets = rng.integers(0, pages * 4096, count)
    missed = []
    for frames in (np.arange(pages), rng.permutation(1 << 17)[:pages]):
        addresses = (frames[offsets // 4096] * 4096 + offsets % 4096).astype(np.uint64)
        cache = rooms.ffi.new("struct cache *")
        assert rooms.lib.cache_init(cache, 2**21, 16, 64) == 0
        events, evicted = np.zeros(count, np.uint8), np.zeros(count, np.uint64)
        rooms.lib.replay(
            cache,
            rooms.ffi.from_buffer("uint64_t[]", addresses),
            rooms.ffi.from_buffer("uint8_t[]", np.zeros(count, np.uint8)),
            count,
            rooms.ffi.from_buffer("uint8_t[]", events),
            rooms.ffi.from_buffer("uint64_t[]", evicted),
        )
        rooms.lib.cache_free(cache)
        missed.append(int(np.count_nonzero(events)) / count)
    assert missed[0] == pytest.approx(missed[1], rel=0.02)
    assert 0.1 < missed[0] < 0.5


def test_a_cleared_cache_has_nothing_to_write_back(rooms: Any) -> None:
    cache = rooms.ffi.new("struct cache *")
    assert rooms.lib.cache_init(cache, 2 * 64, 2, 64) == 0
    events, evicted = rooms.ffi.new("uint8_t[3]"), rooms.ffi.new("uint64_t[3]")
    rooms.lib.replay(cache, [0, 64, 0], [1, 1, 0], 3, events, evicted)
    assert list(events) == [1, 1, 0]
    rooms.lib.cache_clear(cache)
    rooms.lib.replay(cache, [128, 192, 256], [0, 0, 0], 3, events, evicted)
    assert list(events) == [1, 1, 1]
    rooms.lib.cache_free(cache)


@pytest.mark.parametrize(
    ("size", "ways", "line"),
    [(2**21, 0, 64), (2**21, 65, 64), (2**21, 16, 48), (3 * 2**16, 16, 64)],
)
def test_a_cache_that_cannot_be_is_refused(rooms: Any, size: int, ways: int, line: int) -> None:
    assert rooms.lib.cache_init(rooms.ffi.new("struct cache *"), size, ways, line) == -22


def hdm_of(rooms: Any, decoders: list[tuple[int, int, int]]) -> tuple[Any, Any, int]:
    """A struct hdm of (base, size, skip), its block, and what writing it returned."""
    hdm, block = rooms.ffi.new("struct hdm *"), rooms.ffi.new("uint8_t[]", 0x10 + 0x20 * 10)
    hdm.count = len(decoders)
    for decoder, (base, size, skip) in zip(hdm.decoders, decoders, strict=False):
        decoder.base, decoder.size, decoder.skip = base, size, skip
    return hdm, block, rooms.lib.hdm_write(hdm, block)


def test_decoders_are_in_the_layout_of_the_specification(rooms: Any) -> None:
    """CXL r3.1, 8.2.4.20: count encoding, enable, base, size, control, skip."""
    _, block, status = hdm_of(
        rooms, [(GIB, GIB, 0), (4 * GIB, GRANULE, 0), (8 * GIB, GIB, 5 * GIB)]
    )
    assert status == 0
    words = struct.unpack_from("<28I", bytes(block))
    assert words[0] & 0xF == 2  # room for four
    assert words[1] & 2  # the unit is enabled
    assert words[4:6] == (0x4000_0000, 0)
    assert words[6:8] == (0x4000_0000, 0)
    assert words[12:14] == (0, 1)
    assert words[14:16] == (0x1000_0000, 0)
    assert words[20:22] == (0, 2)
    assert words[25:27] == (0x4000_0000, 1)
    committed, commit = 1 << 10, 1 << 9
    assert [bool(words[8 + 8 * i] & committed) for i in range(2)] == [True, True]
    assert words[8] & commit
    assert words[8] & 0xFF == 0  # one way


@given(data=st.data())
def test_both_ways_through_the_decoders_agree(rooms: Any, data: st.DataObject) -> None:
    """Every host address of a decoder has a device address of its own, and comes back."""
    count = data.draw(st.integers(1, 10))
    sizes = data.draw(st.lists(st.integers(1, 16), min_size=count, max_size=count))
    gaps = data.draw(st.lists(st.integers(0, 8), min_size=count, max_size=count))
    skips = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    decoders, base = [], 0
    for size, gap, skip in zip(sizes, gaps, skips, strict=True):
        base += gap * GRANULE
        decoders.append((base, size * GRANULE, skip * GRANULE))
        base += size * GRANULE
    written, block, status = hdm_of(rooms, decoders)
    assert status == 0
    read = rooms.ffi.new("struct hdm *")
    assert rooms.lib.hdm_read(read, block) == 0
    assert read.count == count
    device, back = rooms.ffi.new("uint64_t *"), rooms.ffi.new("uint64_t *")
    expected = 0
    for (host, size, skip), decoder in zip(decoders, read.decoders, strict=False):
        expected += skip
        assert (decoder.base, decoder.size, decoder.device) == (host, size, expected)
        for offset in (0, 4096, size - 1):
            assert rooms.lib.hdm_to_device(read, host + offset, device)
            assert device[0] == expected + offset
            assert rooms.lib.hdm_to_host(written, device[0], back)
            assert back[0] == host + offset
        expected += size
    assert not rooms.lib.hdm_to_device(read, base, device)
    assert not rooms.lib.hdm_to_host(read, expected, back)


@pytest.mark.parametrize(
    "decoders",
    [
        [(GIB + 4096, GIB, 0)],
        [(GIB, 4096, 0)],
        [(GIB, 0, 0)],
        [(GIB, GIB, 1)],
        [(4 * GIB, GIB, 0), (GIB, GIB, 0)],
        [(GIB, 2 * GIB, 0), (2 * GIB, GIB, 0)],
    ],
)
def test_decoders_that_cannot_be_are_refused(
    rooms: Any, decoders: list[tuple[int, int, int]]
) -> None:
    assert hdm_of(rooms, decoders)[2] == -22


def test_an_interleaving_decoder_is_refused_and_a_disabled_unit_has_none(rooms: Any) -> None:
    _, block, _ = hdm_of(rooms, [(GIB, GIB, 0)])
    read = rooms.ffi.new("struct hdm *")
    block[0x10 + 0x10] |= 1 << 4  # two ways
    assert rooms.lib.hdm_read(read, block) == -22
    block[0x10 + 0x10] &= ~(1 << 4) & 0xFF
    block[4] = 0
    assert rooms.lib.hdm_read(read, block) == 0
    assert read.count == 0


@pytest.fixture
def card(rooms: Any) -> Any:
    """A model card in front of [1 GiB, 2 GiB) and [4 GiB, 5 GiB), at the lab's clock."""
    options = rooms.ffi.new("struct card_options *")
    library = rooms.ffi.new("char[]", str(plugin.card_library("model")).encode())
    options.library = library
    options.cycles_per_100us = plugin.CYCLES_PER_100US
    options.hdm.count = 2
    for decoder, base in zip(options.hdm.decoders, (GIB, 4 * GIB), strict=False):
        decoder.base, decoder.size = base, GIB
    card = rooms.ffi.new("struct card *")
    block = rooms.ffi.new("uint8_t[]", 0x10 + 0x20 * 10)
    assert rooms.lib.card_open(card, options, True, block) == 0
    yield card
    rooms.lib.card_close(card)


def test_a_cards_clock_follows_guest_time_and_runs_ahead_when_it_must(
    rooms: Any, card: Any
) -> None:
    """1 MHz; requests that need more time than has passed are all taken, then it waits."""
    assert card_value(rooms, card, regs.VENDOR_TIMEBASE) == plugin.CYCLES_PER_100US
    rooms.lib.card_advance(card, 70_000_000_000)
    assert rooms.lib.card_cycles(card) == 0  # the boot is not the card's
    rooms.lib.card_advance(card, 70_005_000_000)
    assert rooms.lib.card_cycles(card) == 5_000
    for line in range(1000):
        assert not rooms.lib.card_request(card, GIB + 64 * line, bool(line % 4 == 0))
    rooms.lib.card_advance(card, 70_005_100_000)
    assert rooms.lib.card_cycles(card) == 5_500
    rooms.lib.card_advance(card, 70_005_400_000)
    assert rooms.lib.card_cycles(card) == 5_500
    rooms.lib.card_advance(card, 70_006_000_000)
    assert rooms.lib.card_cycles(card) == 6_000
    assert (card.reads, card.writes, card.skipped) == (750, 250, 0)


def test_every_request_arrives_at_its_device_address(rooms: Any, card: Any) -> None:
    """From both decoders: the second begins at 1 GiB of the device."""
    lib = rooms.lib
    for offset in range(0, regs.RANGE_BITMAP_BYTES, 8):
        lib.card_set(card, regs.RANGE_BITMAP + offset, 2**64 - 1)
    lib.card_set(card, regs.CHMU0_CFG1, 12 | 1 << regs.CHMU0_CFG1_MODE_SHIFT)
    lib.card_set(card, regs.CHMU0_CFG0, 3 | regs.CHMU0_CFG0_ENABLE_MASK | 1 << 32)
    full = 0
    for turn in range(3000):
        for host in (GIB + 4096 * 7, 4 * GIB + 4096 * 9):
            if lib.card_request(card, host, bool(turn % 2)):
                full += 1
                lib.card_advance(card, 0)
    assert full == 6000 // 1024
    assert not lib.card_request(card, 3 * GIB, False)
    lib.card_advance(card, 0)
    lib.card_set(card, regs.VENDOR_COMMAND, regs.VENDOR_COMMAND_SNAPSHOT_MASK)
    assert card_value(rooms, card, regs.SNAPSHOT_OFFERED) == 6000
    assert card_value(rooms, card, regs.SNAPSHOT_WRITE_BEATS) == card.writes == 3000
    assert card.unmapped == 1
    units = {card_value(rooms, card, regs.HOTLIST + 8 * slot) >> 16 for slot in range(2)}
    assert units == {7, GIB // 4096 + 9}


def card_value(rooms: Any, card: Any, offset: int) -> int:
    """A register of the card."""
    return int(rooms.lib.card_register(card, offset))


def test_the_lab_clock_is_the_same_in_the_makefile() -> None:
    """The RTL is built with it, the model is opened with it."""
    lines = (FPGA / "Makefile").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("LAB_CLOCK :=")]
    assert int(line.split(":=")[1]) == plugin.CYCLES_PER_100US
