# SPDX-License-Identifier: Apache-2.0
"""`tierd trial` in modelled time finds a gain where there is one, and none where none can be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from module_build import build_module

from tierd_lab.host import find_kernel

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.soak


def trial(vm: Any, case: str) -> dict[str, Any]:
    """What the guest tells of a case."""
    for folder in ("fpga", "tests/workloads"):
        target = ["lab"] if folder == "fpga" else []
        subprocess.run(["make", "-s", "-C", ROOT / folder, *target], check=True)
    command = [sys.executable, str(ROOT / "tests/vm/guest_trial.py"), "--case", case]
    command += ["--hotset", str(ROOT / "build/workloads/hotset")]
    command += ["--tierd", str(Path(sys.executable).with_name("tierd"))]
    command += ["--module", str(build_module(find_kernel().version))]
    result = vm("bench").run(command, timeout=3600)
    print(result.stdout, result.stderr[-2000:])
    assert result.status == 0, result.stderr[-3000:]
    (told,) = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    return dict(told)


def test_a_gain_is_found(vm: Any) -> None:
    told = trial(vm, "gain")
    assert told["status"] == 0
    assert told["trial"]["answer"] == "pays"
    assert told["trial"]["low"] > 0
    assert told["trial"]["moved_bytes_per_s"] > 0


def test_no_gain_is_found_where_there_can_be_none(vm: Any) -> None:
    told = trial(vm, "nothing")
    assert told["status"] == 4
    assert told["trial"]["answer"] == "does not pay"
