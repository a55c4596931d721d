# SPDX-License-Identifier: Apache-2.0
"""The bench that steering's tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastpath_bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A bench, taken down after the test."""
    made = Bench(tmp_path)
    yield made
    made.fast_path.close()
    made.selector.close()
    made.mover.close()
