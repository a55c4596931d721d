# SPDX-License-Identifier: Apache-2.0
"""Children of the tests of targets, ended with the test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

Spawn = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    children: list[subprocess.Popen[bytes]] = []

    def _spawn(script: str, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            **more,
        )
        children.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return child

    yield _spawn
    for child in children:
        child.kill()
        child.communicate()
