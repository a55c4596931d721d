# SPDX-License-Identifier: Apache-2.0
"""The RTL against the model: cocotb on the small card, long streams on the full-size one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import pytest
from neoprof_build import FPGA, make

REQUESTS = 400_000
MODULES = {
    "cocotb": ("test_registers", "test_commands", "test_datapath", "test_runs"),
    "cocotb-table": ("test_table", "test_registers", "test_commands"),
}


def test_cocotb_benches_pass_and_cover_what_they_should() -> None:
    """All that is written ran; every functional point was seen; lines are covered."""
    done = make("coverage")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    written = Counter(
        {
            path.stem: path.read_text().count("@cocotb.test()")
            for path in (FPGA / "tb").glob("test_*.py")
        }
    )
    # On a card with the sketch, and on one with the table.
    cases = []
    for build, modules in MODULES.items():
        results = {path.name for path in (FPGA / "build" / build).glob("results-*.xml")}
        assert results == {f"results-{module}.xml" for module in modules}
        for module in modules:
            path = FPGA / "build" / build / f"results-{module}.xml"
            ran = list(ET.parse(path).getroot().iter("testcase"))
            assert len(ran) == written[module]
            cases += ran
    assert written.keys() == {module for modules in MODULES.values() for module in modules}
    assert [case.get("name") for case in cases if case.find("failure") is not None] == []
    points = re.search(r"functional points: (\d+) of (\d+)", done.stdout)
    assert points is not None
    assert points[1] == points[2]


@pytest.mark.parametrize(("tracker", "counters"), [("", 2 << 19), ("-table", 10 << 17)])
def test_streams_count_equal_in_rtl_and_model(libraries: Path, tracker: str, counters: int) -> None:
    """A short form of what ``make soak`` runs with 10 million requests a stream."""
    done = subprocess.run(
        [
            str(libraries / "np_compare"),
            str(libraries / f"libneoprof-rtl{tracker}.so"),
            str(libraries / f"libneoprof-model{tracker}.so"),
            str(REQUESTS),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    streams = {run["stream"] for run in runs}
    assert streams >= {"uniform", "zipf-0.8", "zipf-0.99", "zipf-1.2", "sequential", "single"}
    assert {"same-entry-0", "same-entry-1", "hazards"} <= streams
    for run in runs:
        assert run["requests"] == REQUESTS
        assert run["lost"] == 0
        assert run["counters_different"] == 0
        assert run["counters_compared"] == counters
    assert any(run["displaced"] for run in runs) == bool(tracker)


def test_generated_files_follow_from_their_sources() -> None:
    done = subprocess.run(
        [sys.executable, "regs/generate.py", "--check"],
        cwd=FPGA, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
