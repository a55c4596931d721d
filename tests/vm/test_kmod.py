# SPDX-License-Identifier: Apache-2.0
"""The kernel module in the lab: one boot for each kernel release that is installed.

The module is built for the guest's kernel first (into build/kmod/RELEASE). A check that
leaves a WARN, BUG, hung task or RCU stall in the kernel's log has failed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kernels import RELEASES, required
from module_build import build_module

from tierd_lab import Guest, Machine

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
Check = Callable[[str, str], dict[str, Any]]


@pytest.fixture(scope="module", params=RELEASES)
def check(request: pytest.FixtureRequest) -> Iterator[Check]:
    """A function from a script and the name of a check in it to its result in the guest."""
    kernel = required(request.param)
    build_module(kernel.version)
    subprocess.run(["make", "-s", "-C", str(ROOT / "tests/workloads")], check=True)
    with Guest("dram-cxl", kernel=kernel.version) as guest:

        def run(script: str, name: str, *options: str, timeout: float = 1800) -> dict[str, Any]:
            # What does not end tells where it is before it is killed.
            limit = ["timeout", "--signal=ABRT", "--kill-after=15", str(timeout)]
            python = [sys.executable, "-X", "faulthandler"]
            command = [*limit, *python, str(HERE / script), name, *options]
            result = guest.run(command, timeout=timeout + 30)
            lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
            told = f"{result.stdout[-2000:]}\n{result.stderr[-3000:]}"
            assert lines, f"status {result.status}\n{told}"
            figures: dict[str, Any] = json.loads(lines[-1])
            assert result.status == 0, f"{figures}\n{result.stderr[-3000:]}"
            return figures

        yield run


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("guest_kmod_scan.py", "accuracy"),
        ("guest_kmod_scan.py", "budget"),
        ("guest_kmod_scan.py", "sampling_interval"),
        ("guest_kmod_sampling.py", "refused"),
        ("guest_kmod_sampling.py", "changes"),
        ("guest_kmod_sampling.py", "removal"),
        ("guest_kmod_sampling.py", "turnover"),
        ("guest_kmod_brief.py", "brief"),
        ("guest_kmod_ring.py", "placement"),
        ("guest_kmod_resolve.py", "lookups"),
        ("guest_kmod_resolve.py", "stopped"),
        ("guest_kmod_torture.py", "exits"),
        ("guest_kmod_torture.py", "churn"),
        ("guest_kmod_torture.py", "dirty"),
        ("guest_kmod_torture.py", "readers"),
        ("guest_kmod_torture.py", "removal"),
        ("guest_kmod_torture.py", "reload"),
        ("guest_kmod_fuzz.py", "netlink"),
        ("guest_kmod_fuzz.py", "device"),
        ("guest_kmod_fuzz.py", "unprivileged"),
        ("guest_kmod_install.py", "udev"),
        ("guest_kmod_install.py", "modprobe"),
        ("guest_kmod_fallback.py", "fallback"),
    ],
)
def test_module(check: Check, script: str, name: str) -> None:
    assert check(script, name)["ok"] is True


def test_the_loop_brings_scattered_hot_pages_to_dram(check: Check) -> None:
    told = check("guest_kmod_loop.py", "scan", "--seconds", "300", "--until", "0.95")
    assert told["checksum_ok"] is True
    assert told["fast_share_after"] >= 0.95, told
    assert told["moves"] < 2 * told["hot_pages"], told
    assert told["dmesg"] == []


@pytest.mark.soak
def test_torture_under_the_allocators_own_checks() -> None:
    """Freed memory is poisoned, slabs have red zones and are checked at each call."""
    kernel = required(RELEASES[0])
    assert kernel is not None, f"no kernel {RELEASES[0]} with headers: `make setup`"
    build_module(kernel.version)
    machine = replace(Machine.load("dram-cxl"), kernel_args=("slub_debug=FZPU", "page_poison=1"))
    runs = {
        "guest_kmod_torture.py": ["exits", "churn", "dirty", "readers", "removal"],
        "guest_kmod_sampling.py": ["changes", "removal"],
        "guest_kmod_resolve.py": ["lookups"],
        "guest_kmod_fuzz.py": ["allocator"],
    }
    told = []
    with Guest(machine, kernel=kernel.version) as guest:
        for script, names in runs.items():
            result = guest.run([sys.executable, str(HERE / script), *names], timeout=1200)
            told += [json.loads(x) for x in result.stdout.splitlines() if x.startswith("{")]
            assert result.status == 0, f"{told}\n{result.stderr[-3000:]}"
        assert guest.kernel_complaints() == []
    assert [x["check"] for x in told if x["ok"]] == [x for names in runs.values() for x in names]
