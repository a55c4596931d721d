# SPDX-License-Identifier: Apache-2.0
"""The module on a kernel that checks itself (`make lab-kernels`), for `make soak`.

    TIERD_TORTURE_MINUTES=5 pytest -m soak tests/vm/test_kmod_debug.py     # instead of half an hour

KASAN, lockdep, RCU and the check of sleep in atomic context write what they find into the kernel's
log, where a report of any of them fails the test. Cards are simulated by this host, as for
`test_neoprof.py`. `test_kmod.py` and `test_neoprof.py` run their checks on this kernel as well.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import neoprof_build
import pytest
from kernels import DEBUG, assert_nothing_reported, required
from module_build import build_module, build_test_modules
from window_server import WindowServer, model_cards

from tierd_lab import Guest, Machine

pytestmark = pytest.mark.soak

HERE = Path(__file__).resolve().parent
MINUTES = float(os.environ.get("TIERD_TORTURE_MINUTES", "30"))
TORTURE = {
    "guest_kmod_torture.py": ("exits", "churn", "dirty", "readers", "removal", "reload"),
    "guest_neoprof.py": (
        *("contended", "separate", "removal", "owner_dies", "silence", "host_gone", "reload"),
        "pulled",
    ),
    "guest_kmod_sampling.py": ("changes", "removal"),
    "guest_kmod_resolve.py": ("lookups", "stopped"),
    "guest_kmod_fuzz.py": ("netlink", "device"),
}
"""What makes most trouble, again and again until the minutes are over; at least once."""
FAULTS = {
    "read-without-rcu": "WARNING: suspicious RCU usage",
    "sleep-in-atomic": "BUG: sleeping function called from invalid context",
    # Lockdep checks nothing after a report of its own, or of KASAN: these come last.
    "wrong-order": "WARNING: possible circular locking dependency detected",
    "use-after-free": "BUG: KASAN: slab-use-after-free in use_after_free",
}


def test_faults_are_reported() -> None:
    """Faults put in on purpose are found in the log, so that a log without one says something."""
    kernel = required(DEBUG)
    module = build_test_modules(kernel.version) / "tierd_test_faults.ko"
    with Guest("flat", kernel=kernel.image) as guest:
        assert_nothing_reported(guest)
        guest.run(["insmod", str(module)]).check()
        for number, (name, report) in enumerate(FAULTS.items()):
            guest.run(f"echo {name} >/sys/module/tierd_test_faults/parameters/fault").check()
            found = guest.kernel_complaints()
            assert len(found) == number + 1, found
            assert report in found[-1]
        with pytest.raises(AssertionError):
            assert_nothing_reported(guest)


def test_torture_with_cards(tmp_path: Path) -> None:
    """Processes, readers, cards and the module itself come and go at any moment."""
    kernel = required(DEBUG)
    build_module(kernel.version)
    built = neoprof_build.make("build/libneoprof-model.so")
    assert built.returncode == 0, built.stderr
    server = WindowServer(tmp_path, model_cards())
    machine = dataclasses.replace(Machine.load("dram-cxl"), qemu_args=server.qemu_args())
    done = 0
    try:
        with Guest(machine, kernel=kernel.image) as guest:
            end = time.monotonic() + 60 * MINUTES
            for script, names in itertools.cycle(TORTURE.items()):
                torture(guest, script, names)
                assert server.failure is None, server.failure
                assert_nothing_reported(guest)
                done += 1
                if done >= len(TORTURE) and time.monotonic() > end:
                    break
    finally:
        server.close()
    assert done >= len(TORTURE)


def torture(guest: Guest, script: str, names: tuple[str, ...]) -> None:
    """Run checks of a script; all of them hold."""
    command = [sys.executable, str(HERE / script), *names]
    result = guest.run(command, timeout=3600)
    told: list[dict[str, Any]] = [
        json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")
    ]
    assert result.status == 0, f"{told}\n{result.stderr[-3000:]}"
    assert [line["check"] for line in told if line["ok"]] == list(names)
