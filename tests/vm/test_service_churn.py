# SPDX-License-Identifier: Apache-2.0
"""The service for minutes of guest time while processes, files, module and memory change.

TIERD_CHURN_MINUTES=30 pytest tests/vm/test_service_churn.py     # the whole of it
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from module_build import build_module

pytestmark = pytest.mark.soak
ROOT = Path(__file__).resolve().parents[2]
TIERD = Path(sys.executable).with_name("tierd")
MINUTES = float(os.environ.get("TIERD_CHURN_MINUTES", "0.5"))


@pytest.fixture(scope="module")
def churn(vm: Any) -> dict[str, Any]:
    """The facts of one run."""
    subprocess.run(["make", "-s", "-C", str(ROOT / "tests/workloads")], check=True)
    guest = vm("dram-cxl")
    release = guest.run(["uname", "-r"]).check().stdout.strip()
    module = build_module(release)
    command = [sys.executable, str(ROOT / "tests/vm/guest_service_churn.py")]
    command += ["--hotset", str(ROOT / "build/workloads/hotset"), "--tierd", str(TIERD)]
    command += ["--module", str(module)]
    command += ["--minutes", str(MINUTES)]
    result = guest.run(command, timeout=MINUTES * 60 + 2400)
    assert result.status == 0, result.stderr[-3000:]
    told: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    print(told["done"], told["sources"], told["samples"][:: max(1, len(told["samples"]) // 20)])
    return told


def test_it_ran_through_and_ended_well(churn: Any) -> None:
    assert (churn["alive"], churn["status"]) == (True, 0), churn["tail"]
    assert churn["exceptions"] == 0, churn["tail"]


def test_everything_was_done_to_it(churn: Any) -> None:
    done = churn["done"]
    for what in ("started", "reloads", "paused", "loaded", "unloaded"):
        assert done.get(what, 0) > 0, done
    assert done.get("offlined", 0) + done.get("offline_refused", 0) > 0
    assert churn["reloaded"] > 0
    assert churn["refused"] > 0


def test_what_the_workloads_wrote_is_what_they_read(churn: Any) -> None:
    assert churn["checksums"].get("true", 0) > 1
    assert "false" not in churn["checksums"]


def test_memory_and_descriptors_do_not_grow(churn: Any) -> None:
    """Medians of the third quarter and the last, as the first half warms up."""
    samples = churn["samples"]
    assert len(samples) >= 8
    quarter = len(samples) // 4
    middle, last = samples[2 * quarter : 3 * quarter], samples[3 * quarter :]
    before, after = (statistics.median(rss for _, rss, _ in part) for part in (middle, last))
    # Of a short run the first half is warm-up: tables fill and modules load.
    allowed = 1.05 if MINUTES >= 20 else 1.15
    assert after <= before * allowed, [(at, rss) for at, rss, _ in samples]
    # Each target holds two descriptors, and up to seven come and go; a leak only grows.
    lowest = min(count for _, _, count in middle)
    assert min(count for _, _, count in last) <= lowest + 2 * 7
