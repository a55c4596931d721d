# SPDX-License-Identifier: Apache-2.0
"""Node usage from captured files."""

from __future__ import annotations

from tierd.service.usage import parse_zones, read_held, read_usage

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


def test_reserve_is_the_sum_of_high_watermarks_and_cpus_hold_free_pages():
    assert parse_zones(ZONEINFO) == (
        {0: (134 + 4800) * 4096, 1: 10976 * 4096},
        {0: 45 * 4096, 1: 7 * 4096},
    )


def test_a_node_without_files_is_left_out(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/zoneinfo").write_text(ZONEINFO)
    node = tmp_path / "sys/devices/system/node/node1"
    node.mkdir(parents=True)
    (node / "meminfo").write_text(MEMINFO)
    usage = read_usage([0, 1], tmp_path)
    assert set(usage) == {1}
    assert usage[1].reserve_bytes == 10976 * 4096
    assert usage[1].free_bytes == 1500000 * 1024 + 7 * 4096
    assert read_held(tmp_path) == {0: 45 * 4096, 1: 7 * 4096}
    assert read_held(tmp_path / "elsewhere") == {}
