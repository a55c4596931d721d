# SPDX-License-Identifier: Apache-2.0
"""Node usage from captured files."""

from __future__ import annotations

import pytest

from tierd.topology.node_meminfo import read_held, read_usage, read_zones

ZONEINFO = """\
Node 0, zone      DMA
  pages free     2304
        boost    0
        min      90
        low      112
        high     134
  pagesets
    cpu: 0
              count: 0
              high:  0
Node 0, zone    DMA32
        min      3200
        low      4000
        high     4800
    cpu: 0
              count: 5
              high:  4797
    cpu: 1
              count: 40
              high:  4797
Node 1, zone   Normal
        high     10976
    cpu: 0
              count: 7
              high:  9
"""
MEMINFO = """\
Node 1 MemTotal:        2064184 kB
Node 1 MemFree:         1500000 kB
Node 1 MemUsed:          564184 kB
"""


def with_zones(root, text):
    (root / "proc").mkdir()
    (root / "proc/zoneinfo").write_text(text)
    return root


def test_reserve_is_the_sum_of_high_watermarks_and_cpus_hold_free_pages(tmp_path):
    assert read_zones(with_zones(tmp_path, ZONEINFO)) == (
        {0: (134 + 4800) * 4096, 1: 10976 * 4096},
        {0: 45 * 4096, 1: 7 * 4096},
    )


def test_a_node_without_files_is_left_out(tmp_path):
    with_zones(tmp_path, ZONEINFO)
    node = tmp_path / "sys/devices/system/node/node1"
    node.mkdir(parents=True)
    (node / "meminfo").write_text(MEMINFO)
    usage = read_usage([0, 1], tmp_path)
    assert set(usage) == {1}
    assert usage[1].reserve_bytes == 10976 * 4096
    assert usage[1].free_bytes == 1500000 * 1024 + 7 * 4096
    assert read_held(tmp_path) == {0: 45 * 4096, 1: 7 * 4096}
    assert read_held(tmp_path / "elsewhere") == {}


def test_zones_of_many_cpus_are_read_whole(tmp_path):
    """The text of a large host is longer than one piece of reading, and split anywhere."""
    cpus = "".join(f"    cpu: {cpu}\n              count: {cpu}\n" for cpu in range(5000))
    text = f"Node 3, zone   Normal\n        high     7\n{cpus}"
    assert len(text) > 1 << 17
    assert read_zones(with_zones(tmp_path, text)) == ({3: 7 * 4096}, {3: 5000 * 4999 // 2 * 4096})


@pytest.mark.parametrize("text", ["", "\n\n", "high 5\ncount: 7\n", "Node", " h\n c\n N"])
def test_a_text_without_zones_has_none(tmp_path, text):
    assert read_zones(with_zones(tmp_path, text)) == ({}, {})


@pytest.mark.parametrize(
    "text", ["", "Node 1 MemTotal: 5 kB\n", "Node 1 MemTotal: 5 kB\nNode 1 MemFree: kB\n"]
)
def test_a_node_whose_text_does_not_say_is_left_out(tmp_path, text):
    node = tmp_path / "sys/devices/system/node/node1"
    node.mkdir(parents=True)
    (node / "meminfo").write_text(text)
    assert read_usage([1], tmp_path) == {}
