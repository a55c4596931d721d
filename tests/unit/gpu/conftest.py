# SPDX-License-Identifier: Apache-2.0
"""Lets the tests here import the stand-in's binding and the workloads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
for folder in ("fakegpu", "workloads/gpu", "bench"):
    if str(TESTS / folder) not in sys.path:
        sys.path.insert(0, str(TESTS / folder))

from standin import CHUNK, World  # noqa: E402


@pytest.fixture
def world() -> Iterator[World]:
    """Four small GPUs."""
    with World(gpu_bytes=64 * CHUNK) as made:
        yield made
