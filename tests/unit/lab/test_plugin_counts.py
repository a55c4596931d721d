# SPDX-License-Identifier: Apache-2.0
"""What the lab's QEMU plugin counts: samples of misses, and executed blocks."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from tierd_lab import plugin


def test_one_miss_in_so_many_of_each_node_is_sampled(rooms: Any, tmp_path: Path) -> None:
    window = tmp_path / "window"
    lib = rooms.lib
    assert lib.samples_open(str(tmp_path / "none").encode()) == -1
    window.write_bytes(bytes(lib.NPW_SAMPLES_END - 8))
    assert lib.samples_open(str(window).encode()) == 0
    lib.samples_miss(1, 5, False)  # too short a window: nothing happens
    window.write_bytes(bytes(plugin.WINDOW_BYTES))
    assert lib.samples_open(str(window).encode()) == 0
    lib.samples_miss(1, 5, False)  # nobody asked for samples
    with window.open("r+b") as file:
        file.seek(lib.NPW_SAMPLES_PERIOD)
        file.write(struct.pack("<I", 3))
    for page in range(7):
        lib.samples_miss(1, page, page == 5)
        lib.samples_miss(0, 100 + page, False)
    content = window.read_bytes()
    assert struct.unpack_from("<Q", content, lib.NPW_SAMPLES_HEAD) == (4,)
    words = struct.unpack_from("<5Q", content, lib.NPW_SAMPLES_RING)
    assert words == (2 << 8 | 2, 102 << 8, 5 << 8 | 3, 105 << 8, 0)
    for _ in range(3 * lib.NPW_SAMPLES_SLOTS):  # round the ring once, to where it was
        lib.samples_miss(1, 7, False)
    content = window.read_bytes()
    assert struct.unpack_from("<Q", content, lib.NPW_SAMPLES_HEAD) == (lib.NPW_SAMPLES_SLOTS + 4,)
    assert struct.unpack_from("<5Q", content, lib.NPW_SAMPLES_RING) == (7 << 8 | 2,) * 5


def test_blocks_are_counted_by_whose_turn_it_was(rooms: Any, tmp_path: Path) -> None:
    lib, path = rooms.lib, tmp_path / "blocks"
    block = lib.profile_block(0xFFFF_8000_0000_1000, 7)
    assert lib.profile_block(0xFFFF_8000_0000_1000, 7) == block  # translated again
    shorter = lib.profile_block(0xFFFF_8000_0000_1000, 3)
    assert shorter != block
    lib.profile_executed(block, 1)  # before the region
    lib.profile_clear()
    for _ in range(3):
        lib.profile_executed(block, 2)
    lib.profile_executed(block, 0)
    lib.profile_executed(shorter, 3)
    many = [lib.profile_block(0x400_000 + 16 * i, 5) for i in range(1 << 18)]  # buckets are fewer
    for each in many[::2]:
        lib.profile_executed(each, 1)
    assert lib.profile_write(str(path).encode()) == 0
    *lines, last = path.read_text().splitlines()
    assert last == "dropped 0"
    assert {"ffff800000001000 7 1 0 3 0", "ffff800000001000 3 0 0 0 1"} <= set(lines)
    assert "400000 5 0 1 0 0" in lines
    assert "400010 5 0 1 0 0" not in lines
    assert len(lines) == 2 + len(many) // 2
    assert lib.profile_write(str(tmp_path / "no/such").encode()) == -2
