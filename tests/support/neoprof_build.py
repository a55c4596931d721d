# SPDX-License-Identifier: Apache-2.0
"""Runs fpga/Makefile for the tests of the card."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FPGA = Path(__file__).resolve().parents[2] / "fpga"


def make(*targets: str) -> subprocess.CompletedProcess[str]:
    """Run make in fpga/ with this interpreter's tools."""
    return subprocess.run(
        ["make", "-s", "-C", str(FPGA), f"PYTHON={sys.executable}", *targets],
        capture_output=True,
        text=True,
        check=False,
    )
