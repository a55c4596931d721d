# SPDX-License-Identifier: Apache-2.0
"""A recording made in a guest, replayed on the host.

The machine's clock counts instructions, so that what the guest does in its time does not
depend on how busy the host is.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from test_loop import ROOT, TIERD, TOOLS, lines


@pytest.fixture(scope="module")
def told(vm: Any) -> dict[str, Any]:
    """What the guest told of its run."""
    subprocess.run(["make", "-s", "-C", str(ROOT / "tests/workloads")], check=True)
    (found,) = lines(
        vm("dram-cxl-card"), "vm/guest_record.py", *TOOLS, "--tierd", str(TIERD), timeout=1500
    )
    print({k: v for k, v in found.items() if k != "recording"})
    return found


def test_a_rules_cap_holds_and_its_hot_pages_come_in_all_the_same(told: Any) -> None:
    assert told["fast_bytes"] <= told["fast_bytes_allowed"]
    assert told["totals"]["demoted_pages"] * 4096 > told["fast_bytes_allowed"] / 4
    assert told["totals"]["promoted_pages"] >= 1000


def test_a_recording_of_the_guest_replays_on_the_host_bit_for_bit(
    told: Any, tmp_path: Path
) -> None:
    assert (told["exit"], told["checksum_ok"]) == (0, True)
    assert "Traceback" not in told["stderr"]
    path = tmp_path / "guest.rec"
    path.write_bytes(zlib.decompress(base64.b64decode(told["recording"])))
    assert path.stat().st_size == told["bytes"]
    done = subprocess.run(
        [str(TIERD), "replay", str(path), "--json"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    replayed = json.loads(done.stdout)
    print({k: v for k, v in replayed.items() if k != "differences"})
    assert (replayed["whole"], replayed["end"]) == (True, "closed")
    assert replayed["missing_ticks"] == 0
    assert replayed["decisions_that_differ"] == 0
    assert replayed["decisions"] > 5
    assert replayed["recorded"]["moved_pages"]["promoted"] >= 1000
    assert replayed["recorded"]["accesses"] > 0
    # Another setting gives other plans, so the equality above says something.
    other = subprocess.run(
        [str(TIERD), "replay", str(path), "--json", "--set", "policy.confidence_sigmas=20"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(other.stdout)["decisions_whose_moves_differ"] > 0
