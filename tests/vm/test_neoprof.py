# SPDX-License-Identifier: Apache-2.0
"""The NeoProf driver on 6.12 and 6.1: simulated cards behind a window that this host serves.

No plugin is needed: guests ask the host's server (tests/support/window_server.py) for the
memory traffic that they want their cards to see.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import neoprof_build
import pytest
from kernels import buildable
from window_server import WindowServer, model_cards

from tierd.lab import Guest, Machine

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
Check = Callable[[str, str], dict[str, Any]]


@pytest.fixture(scope="module", params=["6.12", "6.1"])
def check(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Check]:
    """A function from a script and the name of a check in it to its result in the guest."""
    kernel = buildable(request.param)
    if kernel is None:
        pytest.skip(f"no kernel {request.param} with headers (config/setup.sh --with-6.1)")
    module = ["make", "-s", "-C", str(ROOT / "kmod"), f"KERNEL={kernel.version}", "W=1"]
    subprocess.run(module, check=True)
    built = neoprof_build.make("build/libneoprof-model.so")
    assert built.returncode == 0, built.stderr
    server = WindowServer(tmp_path_factory.mktemp("neoprof"), model_cards())
    machine = dataclasses.replace(Machine.load("dram-cxl"), qemu_args=server.qemu_args())
    try:
        with Guest(machine, kernel=kernel.version) as guest:

            def run(script: str, name: str) -> dict[str, Any]:
                result = guest.run([sys.executable, str(HERE / script), name], timeout=900)
                lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
                assert server.failure is None, server.failure
                assert lines, f"{result.stdout[-2000:]}\n{result.stderr[-3000:]}"
                told: dict[str, Any] = json.loads(lines[-1])
                assert result.status == 0, f"{told}\n{result.stderr[-3000:]}"
                return told

            yield run
    finally:
        server.close()


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("guest_neoprof.py", "hot_pages"),
        ("guest_neoprof.py", "owners"),
        ("guest_neoprof.py", "profiles"),
        ("guest_neoprof.py", "thresholds"),
        ("guest_neoprof.py", "overflow"),
        ("guest_neoprof.py", "settings"),
        ("guest_neoprof.py", "huge"),
        ("guest_neoprof.py", "published"),
        ("guest_neoprof_mishaps.py", "silence"),
        ("guest_neoprof_mishaps.py", "host_gone"),
        ("guest_neoprof_mishaps.py", "pulled"),
        ("guest_neoprof_mishaps.py", "owner_dies"),
        ("guest_neoprof_mishaps.py", "removal"),
        ("guest_neoprof_mishaps.py", "reload"),
        ("guest_neoprof_mishaps.py", "registers"),
        ("guest_neoprof_mishaps.py", "fuzz"),
    ],
)
def test_driver(check: Check, script: str, name: str) -> None:
    assert check(script, name)["ok"] is True
