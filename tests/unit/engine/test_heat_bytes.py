# SPDX-License-Identifier: Apache-2.0
"""How much memory the heat table may take, by the host's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tierd.cli import main
from tierd.config.model import heat_bytes
from tierd.config.whole import loads
from tierd.core import bounds
from tierd.engine.build import make_heat

GIB = 1 << 30


@pytest.mark.parametrize(
    ("host_gib", "mib"), [(4, 64), (128, 64), (256, 128), (1024, 512), (100 << 10, 32 << 10)]
)
def test_it_is_a_2048th_of_the_hosts_memory_within_bounds(
    monkeypatch: pytest.MonkeyPatch, host_gib: int, mib: int
) -> None:
    host = {"SC_PHYS_PAGES": host_gib * GIB // 4096, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", host.__getitem__)
    assert heat_bytes(loads("")) == heat_bytes(loads(""), host_gib * GIB) == mib << 20
    assert heat_bytes(loads('[heat]\nmemory = "3MiB"')) == 3 << 20


def test_what_it_comes_to_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 1 << 27, "SC_PAGE_SIZE": 4096}.__getitem__)
    file = tmp_path / "tierd.toml"
    file.write_text("")
    assert main(["config", "show", "--config", str(file)]) == 0
    shown = capsys.readouterr().out
    assert (
        "[heat]\n# memory: a 2048th of the host's, 64MiB at least: 256MiB on this host\n" in shown
    )
    assert loads(shown) == loads("")
    file.write_text('[heat]\nmemory = "3MiB"\n')
    assert main(["config", "show", "--config", str(file)]) == 0
    assert "# memory" not in capsys.readouterr().out


def test_a_table_of_the_largest_size_can_be_made_and_takes_memory_as_it_fills() -> None:
    config = loads('[heat]\nmemory = "32GiB"')
    heat = make_heat(config)
    assert heat.stats().capacity == bounds.HEAT_MOST_BYTES // bounds.HEAT_BYTES_PER_PAGE
    assert heat.stats().memory_bytes < 8 << 20
