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
from kernels import (
    ALL_RELEASES,
    DEBUG,
    RELEASES,
    assert_nothing_reported,
    required,
    selected,
)
from module_build import build_module, build_test_modules

from tierd_lab import Guest, Machine

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
Check = Callable[[str, str], dict[str, Any]]
LIMIT_S = 1800
CHECKS = {
    "guest_kmod_scan.py": ("accuracy", "budget", "sampling_interval"),
    "guest_kmod_sampling.py": ("refused", "flush", "changes", "removal", "turnover"),
    "guest_kmod_brief.py": ("brief",),
    "guest_kmod_young.py": ("young", "unwatched"),
    "guest_kmod_second_mmu.py": ("never_scanned", "never_demoted"),
    "guest_kmod_ring.py": ("placement", "secret"),
    "guest_kmod_resolve.py": ("lookups", "stopped"),
    "guest_kmod_torture.py": ("exits", "churn", "dirty", "readers", "removal", "reload"),
    "guest_kmod_fuzz.py": ("netlink", "device", "unprivileged"),
    "guest_kmod_install.py": ("udev", "modprobe"),
    "guest_kmod_fallback.py": ("fallback",),
}
LONG = {
    "guest_kmod_scan.py": ("accuracy_large", "budget_long"),
    "guest_kmod_sampling.py": ("changes_long",),
    "guest_kmod_resolve.py": ("lookups_long",),
    "guest_kmod_torture.py": ("exits_often", "churn_long", "reload_often"),
    "guest_kmod_fuzz.py": ("netlink_long", "device_long"),
    "guest_kmod_fallback.py": ("fallback_often",),
    "guest_kmod_tenants.py": ("shared", "pinned", "bound", "ten"),
}
"""The same with more rounds, for `make soak`."""
PARAMETERS = [(script, name) for script, names in CHECKS.items() for name in names]
PARAMETERS_OF_SOAK = [
    pytest.param(script, name, marks=pytest.mark.soak)
    for script, names in LONG.items()
    for name in names
]


@pytest.fixture(scope="module", params=ALL_RELEASES)
def booted(request: pytest.FixtureRequest) -> Iterator[tuple[str, Guest]]:
    """A kernel release, and the guest that runs it."""
    kernel = required(request.param)
    build_module(kernel.version)
    if "flush" in selected(request, request.param, script="guest_kmod_sampling.py"):
        build_module(kernel.version, "TIERD_FLUSH_BY_INVPCID")
    build_test_modules(kernel.version)
    subprocess.run(["make", "-s", "-C", str(ROOT / "tests/workloads")], check=True)
    with Guest("dram-cxl", kernel=kernel.image) as guest:
        yield request.param, guest
        if request.param == DEBUG:
            assert_nothing_reported(guest)


def run(guest: Guest, script: str, *options: str) -> list[dict[str, Any]]:
    """The lines that a script tells in the guest; where it failed, the last one says how."""
    # What does not end tells where it is before it is killed.
    limit = ["timeout", "--signal=ABRT", "--kill-after=15", str(LIMIT_S)]
    python = [sys.executable, "-X", "faulthandler"]
    result = guest.run([*limit, *python, str(HERE / script), *options], timeout=LIMIT_S + 30)
    lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    if result.status:
        lines.append({"ok": False, "status": result.status, "stderr": result.stderr[-3000:]})
    return lines


@pytest.fixture(scope="module")
def check(request: pytest.FixtureRequest, booted: tuple[str, Guest]) -> Iterator[Check]:
    """A function from a script and the name of a check in it to its result in the guest.

    One process runs all checks of a script that are to run, when the first of them is asked for.
    """
    release, guest = booted
    told: dict[str, list[dict[str, Any]]] = {}

    def result(script: str, name: str) -> dict[str, Any]:
        if script not in told:
            told[script] = run(guest, script, *selected(request, release, script=script))
        found = [line for line in told[script] if line.get("check") == name]
        if found and found[0]["ok"]:
            return found[0]
        return {"ok": False, "found": found, "end": told[script][-1:]}

    yield result
    # A script may fail after its last check, and then no check tells.
    # The line of its end has no name of a check.
    ends = {script: lines[-1] for script, lines in told.items() if "check" not in lines[-1]}
    assert not ends


@pytest.mark.parametrize(("script", "name"), [*PARAMETERS, *PARAMETERS_OF_SOAK])
def test_module(check: Check, script: str, name: str) -> None:
    told = check(script, name)
    print(json.dumps(told))
    # A dictionary would be cut short.
    assert told["ok"] is True, json.dumps(told)


@pytest.mark.parametrize("size", ["500M", pytest.param("1200M", marks=pytest.mark.soak)])
def test_the_loop_brings_scattered_hot_pages_to_dram(booted: tuple[str, Guest], size: str) -> None:
    # A kernel that checks itself takes several times as long.
    seconds = "1200" if booted[0] == DEBUG else "300"
    options = ["--seconds", seconds, "--until", "0.95", "--size", size]
    told, *failed = run(booted[1], "guest_kmod_loop.py", "scan", *options)
    assert not failed, (told, failed)
    assert told["checksum_ok"] is True
    assert told["fast_share_after"] >= 0.95, told
    assert told["moves"] < 2 * told["hot_pages"], told
    assert told["dmesg"] == []


@pytest.mark.soak
def test_marking_pages_for_reclaim_takes_no_more_than_a_fifth_of_a_scan(tmp_path: Path) -> None:
    kernel = required(RELEASES[0])
    build_module(kernel.version)
    machine = tmp_path / "one.toml"
    machine.write_text(
        'description = "one CPU"\n[[node]]\nkind = "dram"\nsize = "2GiB"\ncpus = "0"\n'
    )
    counted = replace(Machine.load(str(machine)), icount=3)
    with Guest(counted, kernel=kernel.image) as guest:
        told, *failed = run(guest, "guest_kmod_young.py", "cost")
    assert not failed, (told, failed)
    assert told["ok"] is True, told


@pytest.mark.soak
@pytest.mark.parametrize("gib", [4, 8, 16])
def test_memory_of_module_and_service_is_what_the_formula_says(tmp_path: Path, gib: int) -> None:
    """docs/operate/scale.md: a guest of so much memory, three quarters of it watched."""
    kernel = required(RELEASES[0])
    build_module(kernel.version)
    machine = tmp_path / "scale.toml"
    machine.write_text(
        f'description = "scale"\n[[node]]\nkind = "dram"\nsize = "{gib // 4}GiB"\ncpus = "0-1"\n'
        f'[[node]]\nkind = "cxl"\nsize = "{gib * 3 // 4}GiB"\ninitiator = 0\n'
        "distance = { 0 = 20 }\n"
    )
    with Guest(Machine.load(str(machine)), kernel=kernel.image) as guest:
        told, *failed = run(guest, "guest_kmod_scale.py", "scale", str(gib * 768))
    print(json.dumps(told))
    assert not failed, (told, failed)
    assert told["ok"] is True, told


@pytest.mark.soak
@pytest.mark.parametrize("check", ["refaults", "refaults_active"])
def test_no_more_comes_back_from_swap_than_without_the_scanner(check: str) -> None:
    """At most 5 % more pages that are in use, in control groups side by side."""
    kernel = required(RELEASES[0])
    build_module(kernel.version)
    with Guest("flat", kernel=kernel.image) as guest:
        told, *failed = run(guest, "guest_kmod_reclaim.py", check)
    assert not failed, (told, failed)
    assert told["ok"] is True, told


@pytest.mark.soak
def test_torture_under_the_allocators_own_checks() -> None:
    """Freed memory is poisoned, slabs have red zones and are checked at each call."""
    kernel = required(RELEASES[0])
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
