# SPDX-License-Identifier: Apache-2.0
"""What the tests of the card share."""

from __future__ import annotations

from pathlib import Path

import pytest
from neoprof_build import FPGA, make


@pytest.fixture(scope="session")
def libraries() -> Path:
    """Return the folder of the two card libraries and the bench programs, built."""
    done = make("build")
    assert done.returncode == 0, done.stderr
    return FPGA / "build"
