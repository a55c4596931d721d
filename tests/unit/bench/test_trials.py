# SPDX-License-Identifier: Apache-2.0
"""Workloads without end, and the table that compares trials with cells."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/tiering"))

from results import Cell
from trials import ENDLESS, keys, row

ROOT = Path(__file__).resolve().parents[3]
SUITE = ROOT / "build/workloads"


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """The workloads."""
    subprocess.run(["make", "-s", "-C", ROOT / "tests/workloads/suite"], check=True)


def counted(file: Path) -> int:
    """What a workload has counted; 0 before it has begun."""
    data = file.read_bytes() if file.exists() else b""
    return struct.unpack("<Q", data)[0] if len(data) == 8 else 0


@pytest.mark.parametrize("name", ENDLESS)
def test_a_workload_without_end_counts_until_it_is_told_to_end(name: str, tmp_path: Path) -> None:
    file = tmp_path / "count"
    command = [SUITE / name, "--size", "8M", "--work", "1000", "--endless", file]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as work:
        while (first := counted(file)) == 0 or counted(file) == first:
            assert work.poll() is None
            time.sleep(0.01)
        work.send_signal(signal.SIGTERM)
        told = [json.loads(line) for line in work.communicate(timeout=120)[0].splitlines()]
    assert work.returncode == 0
    assert told[-1]["ok"] is True
    assert told[-1]["operations"] > 0


def test_a_workload_that_knows_no_endless_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [SUITE / "btree", "--endless", tmp_path / "count"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "does not know --endless" in done.stderr


def test_the_table_has_what_is_known() -> None:
    trial, untiered, tiered = keys(["updates"], [3])
    told = {"gain": 1.1, "low": 1.0, "high": None, "answer": "pays", "cpu_share": 0.03}
    cells = {
        untiered: Cell(*untiered[:2], seconds=20.0, seed=3),
        tiered: Cell(*tiered[:2], seconds=10.0, seed=3),
    }
    assert row("updates", 3, cells) == "| updates | 3 | +100.0% | - | - | - | - |\n"
    cells[trial] = Cell(*trial[:2], why="no guest", variant="trial", seed=3)
    assert row("updates", 3, cells) == "| updates | 3 | +100.0% | - | - | no guest | - |\n"
    cells[trial] = Cell(
        *trial[:2], seconds=60.0, facts={"method": {"trial": told}}, variant="trial", seed=3
    )
    assert row("updates", 3, {trial: cells[trial]}) == (
        "| updates | 3 | - | +110.0% | +100.0% to any | pays | 3.0% |\n"
    )
