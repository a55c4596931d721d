# SPDX-License-Identifier: Apache-2.0
"""The modules' package in a booted Debian, on the oldest kernel and the newest that the lab boots.

The guest's own compiler builds the modules. `tests/host/test_packages.py` has the packages without
a boot.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest
from kernels import RELEASES, required
from systemd_image import ROOT, Tree, boot, bring_headers, built_packages

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap and chroot need root"),
]

MODULES = ["tierd", "tierd_neoprof"]


@pytest.fixture(scope="module", params=RELEASES)
def facts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """Event → what the guest told."""
    kernel = required(request.param)
    service, modules = sorted(built_packages(), key=lambda deb: deb.name, reverse=True)
    folder = tmp_path_factory.mktemp("machine")
    try:
        tree = Tree(folder)
        bring_headers(tree.root, kernel.version)
        tree.install([service])
        tree.put(modules, f"root/{modules.name}", mode=0o644)
        tree.run_at_boot(ROOT / "tests/vm/guest_dkms.py")
        # Compilation is nearly all that the guest does, and nothing in it is timed.
        events = boot(
            tree.image(),
            "dram-cxl",
            timeout_s=5400,
            kernel=kernel,
            counted=False,
            on_event=print,
        )
    finally:
        shutil.rmtree(folder)
    told = {event["event"]: event for event in events}
    assert told["booted"]["release"] == kernel.version
    return told


def test_installing_the_package_builds_for_the_running_kernel(facts: Any) -> None:
    told = facts["installed"]
    assert told["status"] == 0, told["said"]
    assert f"{facts['booted']['release']}, x86_64: installed" in told["dkms"]
    assert told["files"] == MODULES


def test_what_was_built_is_loaded_as_at_boot(facts: Any) -> None:
    told = facts["used"]
    assert (told["status"], told["there"]) == (0, True), told["said"]
    assert told["mode"] == ["0o600", 0, 0]
    assert told["cards"] == [0, ""]
    assert told["loaded"] == MODULES
    assert told["built"] == told["sources"]
    assert told["doctor"]["module.loaded"] == "yes"
    assert told["complaints"] == []


def test_removing_the_package_unloads_and_leaves_nothing(facts: Any) -> None:
    told = facts["removed"]
    assert (told["status"], told["gone"]) == (0, True), told["said"]
    assert (told["loaded"], told["files"], told["left"]) == ([], [], [])
    assert told["dkms"] == ""
    assert told["modprobe"] != 0
    assert told["load"] == 0
    assert told["complaints"] == []
