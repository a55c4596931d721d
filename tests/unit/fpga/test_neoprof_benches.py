# SPDX-License-Identifier: Apache-2.0
"""The RTL against the model: cocotb on the small card, long streams on the full-size one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from neoprof_build import FPGA, make

REQUESTS = 400_000


def test_cocotb_benches_pass_and_cover_what_they_should() -> None:
    """All that is written ran; every functional point was seen; lines are covered."""
    done = make("coverage")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    written = sum(
        path.read_text().count("@cocotb.test()") for path in (FPGA / "tb").glob("test_*.py")
    )
    cases = [
        case
        for path in (FPGA / "build" / "cocotb").glob("results-*.xml")
        for case in ET.parse(path).getroot().iter("testcase")
    ]
    assert len(cases) == written
    assert [case.get("name") for case in cases if case.find("failure") is not None] == []
    points = re.search(r"functional points: (\d+) of (\d+)", done.stdout)
    assert points is not None
    assert points[1] == points[2]


def test_streams_count_equal_in_rtl_and_model(libraries: Path) -> None:
    """A short form of what ``make soak`` runs with 10 million requests a stream."""
    done = subprocess.run(
        [
            str(libraries / "np_compare"),
            str(libraries / "libneoprof-rtl.so"),
            str(libraries / "libneoprof-model.so"),
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
        assert run["counters_compared"] == 2 << 19


def test_generated_files_follow_from_their_sources() -> None:
    done = subprocess.run(
        [sys.executable, "regs/generate.py", "--check"],
        cwd=FPGA, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
