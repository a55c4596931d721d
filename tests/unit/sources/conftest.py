# SPDX-License-Identifier: Apache-2.0
"""The neoprof source's bench, for the files that ask for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from neoprof_bench import WHOLE, Bench

from tierd.config.watching import NeoProfConfig


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, WHOLE, settings=NeoProfConfig(lines_per_access=1))
