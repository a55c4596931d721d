# SPDX-License-Identifier: Apache-2.0
"""The eBPF sources in guests with kernels 6.12 and 6.1, one boot each.

`make test` runs the compiled objects. bcc takes minutes to compile its programs under emulation:
what it compiles is run on the kernel of this host by `tests/host/test_ebpf.py`, and here by
`make soak`. `pytest -rP` shows each check's figures.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kernels import selected

from tierd.sources.ebpf import files
from tierd_lab import host
from tierd_lab import run as run_in_guest

ROOT = Path(__file__).resolve().parents[2]
CHECKS = ROOT / "tests/vm/guest_ebpf.py"
TOUCH = ROOT / "build/workloads/touch"
BCC = (
    "faults_are_exact",
    "hint_faults_are_told_apart",
    "loss_is_counted",
    "migrations_equal_vmstat",
    "demotions_equal_vmstat",
)
PREBUILT = (
    *BCC,
    "migrations_in_the_service",
    "raw_faults_are_exact",
    "pmu_program_on_the_software_event",
    "pmu_raw_on_the_software_event",
    "ring_loss_is_counted",
    "period_follows_the_rate",
    "cpu_hotplug",
    "target_dies",
    "nothing_leaks",
    "no_bcc",
    "no_headers",
    "without_capabilities",
    "with_two_capabilities_only",
)
KERNELS = ("6.12", "6.1")


@pytest.fixture(scope="session")
def touch() -> Path:
    """The program under watch, where the guest sees it."""
    TOUCH.parent.mkdir(parents=True, exist_ok=True)
    source = ROOT / "tests/workloads/touch.c"
    flags = ["-O2", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *flags, "-o", str(TOUCH), str(source)], check=True)
    return TOUCH


@pytest.fixture(scope="module", params=KERNELS)
def results(request: pytest.FixtureRequest, touch: Path) -> dict[tuple[str, str], Any]:
    """(way, check) → result, of one boot."""
    kernel = request.param
    if not any(k.version.startswith(f"{kernel}.") for k in host.kernels()):
        pytest.skip(f"no kernel {kernel} is installed (config/setup.sh --with-{kernel})")
    wanted = selected(request, kernel)
    ways = {"bcc": [name for name in BCC if f"bcc {name}" in wanted]}
    if files.find_object("faults") is not None:
        ways["prebuilt"] = [name for name in PREBUILT if name in wanted]
    found: dict[tuple[str, str], Any] = {}
    lines: list[str] = []
    script = "; ".join(
        f"echo way {way}; {sys.executable} {CHECKS} {touch} --way {way} {' '.join(names)}"
        for way, names in ways.items()
        if names
    )
    result = run_in_guest(
        "dram-cxl",
        script,
        kernel=kernel,
        timeout_s=3000,
        env={"PYTHONPATH": str(ROOT / "daemon")},
        cwd=ROOT,
        on_line=lines.append,
    )
    way = ""
    for line in lines:
        if line.startswith("way "):
            way = line.split()[1]
        elif line.startswith("{"):
            told = json.loads(line)
            found[way, told["check"]] = told
    assert not result.timed_out, lines[-3:]
    return found


@pytest.mark.soak
@pytest.mark.parametrize("check", [f"bcc {name}" for name in BCC])
def test_through_bcc(results: dict[tuple[str, str], Any], check: str) -> None:
    told = results["bcc", check.removeprefix("bcc ")]
    if "left_out" in told:
        pytest.skip(told["left_out"])
    print("bcc", json.dumps(told))
    assert told["ok"], told


@pytest.mark.parametrize("check", PREBUILT)
def test_through_compiled_objects(results: dict[tuple[str, str], Any], check: str) -> None:
    told = results["prebuilt", check]
    if "left_out" in told:
        pytest.skip(told["left_out"])
    print("prebuilt", json.dumps(told))
    assert told["ok"], told
