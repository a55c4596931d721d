# SPDX-License-Identifier: Apache-2.0
"""The kernel module on the newest kernel that Debian's suites have, in the lab.

`kmod/kernels.sh` unpacks the kernel and its headers under build/kernels; nothing is installed but a
link to its modules while it runs. No emulated processor has INVPCID, by which the module flushes
the TLB there, so that scans have no sampling interval: checks that need one cannot run. These
are for `make soak`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tierd_lab import Guest

pytestmark = pytest.mark.soak

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
MODULES = Path("/lib/modules")
SUITE = "experimental"
CHECKS = {
    "guest_kmod_scan.py": ("accuracy", "budget"),
    "guest_kmod_brief.py": ("brief",),
    "guest_kmod_ring.py": ("placement", "secret"),
    "guest_kmod_resolve.py": ("lookups", "stopped"),
    "guest_kmod_fuzz.py": ("unprivileged",),
}
LIMIT_S = 900


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """The kernel's image, with its modules where programs look for them, and tierd's built."""
    command = [str(ROOT / "kmod/kernels.sh"), SUITE]
    subprocess.run(command, env={**os.environ, "KERNEL_IMAGES": "1"}, check=True)
    folder = ROOT / "build/kernels" / f"{SUITE}-boot"
    (found,) = folder.glob("root/usr/lib/modules/*/vmlinuz")
    release, link = found.parent.name, MODULES / found.parent.name
    subprocess.run(["depmod", "--basedir", str(folder / "root/usr"), release], check=True)
    shutil.copytree(folder / "module", ROOT / "build/kmod" / release, dirs_exist_ok=True)
    if link.is_symlink():  # of a run that was ended
        link.unlink()
    link.symlink_to(found.parent)
    try:
        yield link / "vmlinuz"
    finally:
        link.unlink()


@pytest.fixture(scope="module")
def guest(image: Path) -> Iterator[Guest]:
    """A machine with two tiers that runs it; its log has no complaint at the end."""
    subprocess.run(["make", "-s", "-C", str(ROOT / "tests/workloads")], check=True)
    with Guest("dram-cxl", kernel=image) as booted:
        yield booted
        assert booted.kernel_complaints() == []


@pytest.mark.parametrize("script", CHECKS)
def test_module(guest: Guest, script: str) -> None:
    done = guest.run([sys.executable, str(HERE / script), *CHECKS[script]], timeout=LIMIT_S)
    print(done.stdout)
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {each["check"]: each["ok"] for each in told} == dict.fromkeys(CHECKS[script], True)
    assert done.status == 0, done.stderr[-3000:]


def test_the_service_brings_hot_pages_to_dram(guest: Guest) -> None:
    options = ("--size", "200M", "--seconds", "120", "--until", "0.9")
    command = [sys.executable, str(HERE / "guest_kmod_loop.py"), "scan", *options]
    done = guest.run(command, timeout=LIMIT_S)
    assert done.status == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    print(told)
    assert told["selected"] == ["scan"]
    assert told["checksum_ok"]
    assert told["fast_share_after"] >= 0.9
