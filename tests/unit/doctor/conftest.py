# SPDX-License-Identifier: Apache-2.0
"""Hosts made of a few files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tierd.doctor import Host
from tierd.topology.render import unpack

FIXTURES = Path(__file__).parents[2] / "fixtures" / "sysfs"
MakeHost = Callable[..., Host]


@pytest.fixture
def fake(tmp_path: Path) -> MakeHost:
    """fake({path: text}, base=NAME) makes a host of the files, above a captured topology."""

    def make(files: dict[str, str] | None = None, base: str = "lab-dram-cxl") -> Host:
        folder = tmp_path / f"root{len(list(tmp_path.iterdir()))}"
        root = unpack((FIXTURES / f"{base}.txt").read_text(), folder)
        for name, text in {"proc/sys/kernel/osrelease": "6.12.1", **(files or {})}.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return Host(root)

    return make
