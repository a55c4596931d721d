# SPDX-License-Identifier: Apache-2.0
"""The promoter's fixtures: it is compiled once for all files of this folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fake_kernel
from promoter_world import World


@pytest.fixture(scope="session")
def promoter_native(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The mover and the promoter on a fake kernel."""
    return fake_kernel.build(tmp_path_factory.mktemp("fake_promoter"), promoter=True)


@pytest.fixture
def world(promoter_native: Any, monkeypatch: pytest.MonkeyPatch) -> World:
    """Pages, ring and promoter of one test."""
    return World(promoter_native, monkeypatch)
