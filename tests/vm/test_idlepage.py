# SPDX-License-Identifier: Apache-2.0
"""Scans by idle page tracking in the lab, on a kernel that has it (`make lab-kernels`).

Debian's kernels have it not, so these checks are for `make soak`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kernels import of_lab

from tierd_lab import Guest

pytestmark = pytest.mark.soak

HERE = Path(__file__).resolve().parent
CHECKS = ("folios", "small", "huge", "shared", "budget", "mishaps")
"""Folios first: later the kernel may not find 64 KiB in one piece for each of them."""
LIMIT_S = 1800


@pytest.fixture(scope="module")
def guest() -> Iterator[Guest]:
    """A machine with two tiers whose kernel tracks idle pages."""
    with Guest("dram-cxl", kernel=of_lab("idle").image, boot_timeout_s=900) as booted:
        yield booted


def ran(guest: Guest, script: str, *arguments: str) -> dict[str, Any]:
    """What a script in the guest printed last."""
    done = guest.run([sys.executable, str(HERE / script), *arguments], timeout=LIMIT_S)
    assert done.stdout.strip(), done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    print(json.dumps(found))
    return found


@pytest.mark.parametrize("name", CHECKS)
def test_idle_page_tracking(guest: Guest, name: str) -> None:
    found = ran(guest, "guest_idlepage.py", name)
    assert found["ok"], found


def test_the_service_finds_and_promotes_hot_pages(guest: Guest) -> None:
    """A tenth of the accesses is served fast at first; contents are checked by the workload."""
    options = ("--size", "64M", "--cpu", "0.5", "--until", "0.8", "--seconds", "900")
    found = ran(guest, "guest_kmod_loop.py", "idlepage", *options)
    assert found["checksum_ok"]
    assert found["exit"] == 0
    assert found["selected"] == ["idlepage"]
    assert found["fast_share_after"] >= 0.8
    assert found["moves"] <= 1.5 * found["hot_pages"]
    assert found["scanner_cpu_share"] <= found["scanner_budget"]
