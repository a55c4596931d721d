# SPDX-License-Identifier: Apache-2.0
"""The NeoProf driver on 6.12 and 6.1: simulated cards behind a window that this host serves.

No plugin is needed: guests ask the host's server (tests/support/window_server.py) for the
memory traffic that they want their cards to see.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import neoprof_build
import pytest
from kernels import ALL_RELEASES, DEBUG, assert_nothing_reported, required, selected
from module_build import build_module
from window_server import WindowServer, model_cards

from tierd_lab import Guest, Machine

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
CHECKS = (
    *("hot_pages", "owners", "profiles", "thresholds", "overflow", "interrupts"),
    *("settings", "runs", "huge", "published"),
    *("two_parts", "ends", "falls_back"),
    *("silence", "host_gone", "owner_dies", "removal", "contended", "separate"),
    *("reload", "registers", "fuzz"),
    # The last: a device that is found again is found behind the others from then on, and cards
    # are numbered as their devices are found.
    "pulled",
)
ROUNDS = [pytest.param(name, marks=pytest.mark.soak) for name in ("reload_often", "fuzz_long")]
"""Some of them with more rounds; before `pulled`."""
LIMIT_S = 3600
"""For all checks; hosts with little to spare take their time."""

Results = dict[str, dict[str, Any]]


def run(guest: Guest, checks: Sequence[str]) -> Results:
    """Run the checks in one process of the guest."""
    script = str(HERE / "guest_neoprof.py")
    result = guest.run([sys.executable, script, *checks], timeout=LIMIT_S)
    lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    told = {line.pop("check"): line for line in lines}
    for name in checks:
        line = told.setdefault(name, {"ok": False, "missing": True, "status": result.status})
        if not line["ok"]:
            line["stderr"] = result.stderr[-3000:]
    return told


@pytest.fixture(scope="module", params=ALL_RELEASES)
def told(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Results]:
    """What each check said, by its name."""
    kernel = required(request.param)
    build_module(kernel.version)
    built = neoprof_build.make("build/libneoprof-model.so")
    assert built.returncode == 0, built.stderr
    server = WindowServer(tmp_path_factory.mktemp("neoprof"), model_cards())
    machine = dataclasses.replace(Machine.load("dram-cxl"), qemu_args=server.qemu_args())
    try:
        with Guest(machine, kernel=kernel.image, life_s=2 * LIMIT_S) as guest:
            found = run(guest, selected(request, request.param))
            assert server.failure is None, server.failure
            if request.param == DEBUG:
                assert_nothing_reported(guest)
            yield found
    finally:
        server.close()


@pytest.mark.parametrize("name", [*ROUNDS, *CHECKS])
def test_driver(told: Results, name: str) -> None:
    assert told[name]["ok"] is True, told[name]
