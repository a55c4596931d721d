# SPDX-License-Identifier: Apache-2.0
"""Lets the tests here import the stand-in's binding."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
for folder in ("fakegpu", "workloads/gpu", "bench"):
    if str(TESTS / folder) not in sys.path:
        sys.path.insert(0, str(TESTS / folder))
