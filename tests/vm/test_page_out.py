# SPDX-License-Identifier: Apache-2.0
"""The service pages out cold memory to zram, and only that; on a real kernel."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from module_build import build_module

from tierd_lab import Guest, Machine
from tierd_lab.host import find_kernel

ROOT = Path(__file__).resolve().parents[2]
PAGES = 1_000_000


def in_guest(machine: Machine, script: str, *options: str) -> dict[str, Any]:
    """What a script tells in a machine with zram."""
    command = [sys.executable, str(ROOT / "tests/vm" / script), *options]
    command += ["--tierd", str(Path(sys.executable).with_name("tierd"))]
    subprocess.run(["make", "-s", "-C", str(ROOT / "tests/workloads")], check=True)
    kernel = find_kernel()
    build_module(kernel.version)
    with Guest(machine, kernel=kernel.image) as guest:
        result = guest.run(command, timeout=7200)
    assert result.status == 0, result.stderr[-3000:]
    told: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    print(result.stderr[-3000:], json.dumps(told, indent=1))
    return told


def tell(*options: str) -> dict[str, Any]:
    """What the guest tells of rounds of page-outs."""
    told = in_guest(Machine.load("dram-cxl"), "guest_page_out.py", *options)
    for found in told["rounds"]:
        assert found["went"]
        assert found["right"] is True
        assert found["swapped"]["random"] == 0
        assert found["swapped"]["written"] < 0.01
        assert found["swapped"]["hot"] < 0.01
        assert found["after"] < 0.05
    assert told["back"]
    assert told["end"]["right"] is True
    assert told["dmesg"] == []
    return told


def test_cold_memory_goes_and_comes_back_and_other_memory_stays() -> None:
    tell()


@pytest.mark.soak
def test_a_million_pages_go_and_come_back_right() -> None:
    told = tell("--rounds", "9", "--cold", "512", "--hot", "8", "--written", "8", "--random", "8")
    assert told["status"]["pages"]["out"] >= PAGES
    assert told["status"]["pages"]["back"] >= 0.9 * PAGES


@pytest.mark.soak
def test_more_fits_before_tasks_wait_for_memory() -> None:
    plain = Machine.load("dram-cxl")
    small = replace(plain, nodes=tuple(replace(each, size_bytes=512 << 20) for each in plain.nodes))
    kernel, ours = (
        in_guest(small, "guest_page_out_fit.py", who, "--most", "1440")
        for who in ("kernel", "page_out")
    )
    assert kernel["right"]
    assert ours["right"]
    assert ours["fits_mib"] > kernel["fits_mib"] > 0
