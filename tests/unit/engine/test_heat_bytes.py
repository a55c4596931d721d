# SPDX-License-Identifier: Apache-2.0
"""How much memory the heat table may take, by the host's."""

from __future__ import annotations

import os

import pytest

from tierd.config.whole import loads
from tierd.core import bounds
from tierd.engine.build import heat_bytes, make_heat

GIB = 1 << 30


@pytest.mark.parametrize(
    ("host_gib", "mib"), [(4, 64), (128, 64), (256, 128), (1024, 512), (100 << 10, 32 << 10)]
)
def test_it_is_a_2048th_of_the_hosts_memory_within_bounds(
    monkeypatch: pytest.MonkeyPatch, host_gib: int, mib: int
) -> None:
    host = {"SC_PHYS_PAGES": host_gib * GIB // 4096, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", host.__getitem__)
    assert heat_bytes(loads("")) == mib << 20
    assert heat_bytes(loads('[heat]\nmemory = "3MiB"')) == 3 << 20


def test_a_table_of_the_largest_size_can_be_made_and_takes_memory_as_it_fills() -> None:
    config = loads('[heat]\nmemory = "32GiB"')
    heat = make_heat(config)
    assert heat.stats().capacity == bounds.HEAT_MOST_BYTES // bounds.HEAT_BYTES_PER_PAGE
    assert heat.stats().memory_bytes < 8 << 20
