# SPDX-License-Identifier: Apache-2.0
"""The kernel's text of how much memory there is, of a node and of the host."""

from __future__ import annotations

import pytest

from tierd.core.tiermap import parse_meminfo

NODE = """\
Node 1 MemTotal:        2064184 kB
Node 1 MemFree:         1500000 kB
Node 1 MemUsed:          564184 kB
"""
HOST = """\
MemTotal:       24689764 kB
MemFree:        11000000 kB
SwapFree:              0 kB
"""


def test_total_and_free_bytes() -> None:
    assert parse_meminfo(NODE) == (2064184 * 1024, 1500000 * 1024)
    assert parse_meminfo(HOST) == (24689764 * 1024, 11000000 * 1024)


@pytest.mark.parametrize(
    "text", ["", "garbage", "MemTotal: 5 kB\n", "MemTotal: 5 kB\nMemFree: ? kB"]
)
def test_what_does_not_say_is_no_figure(text: str) -> None:
    assert parse_meminfo(text) is None
