# SPDX-License-Identifier: Apache-2.0
"""The neoprof source's bench, for the files that ask for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from neoprof_bench import WHOLE, Bench

from tierd.sources.neoprof import NeoProfSettings


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, WHOLE, settings=NeoProfSettings(requests_per_visit=1))
