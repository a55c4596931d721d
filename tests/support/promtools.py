# SPDX-License-Identifier: Apache-2.0
"""Prometheus' programs: this host's, or those that config/setup.sh has unpacked."""

from __future__ import annotations

import shutil
from pathlib import Path

UNPACKED = Path(__file__).resolve().parents[2] / "build/prometheus/usr/bin"


def find(name: str) -> str | None:
    """The program's path; None if it is nowhere."""
    return shutil.which(name) or shutil.which(name, path=str(UNPACKED))
