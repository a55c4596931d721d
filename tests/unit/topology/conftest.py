# SPDX-License-Identifier: Apache-2.0
"""Captured and hand-made trees, unpacked for a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tierd.topology.render import unpack

FIXTURES = Path(__file__).parents[2] / "fixtures" / "sysfs"


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., Path]:
    """tree(name) unpacks tests/fixtures/sysfs/NAME.txt; more files can be given as text."""

    def make(name: str, extra: dict[str, str | None] | None = None) -> Path:
        root = unpack((FIXTURES / f"{name}.txt").read_text(), tmp_path / name)
        for path, text in (extra or {}).items():
            place = root / path
            if text is None:
                place.unlink()
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text + "\n")
        return root

    return make
