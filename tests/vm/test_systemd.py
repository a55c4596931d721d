# SPDX-License-Identifier: Apache-2.0
"""The installed service under systemd: one boot, and the facts that the guest told."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any

import pytest
from systemd_image import ROOT, Tree, boot, built_packages

from tierd.core.process import NUMBERS
from tierd.engine.process import ALWAYS

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap and chroot need root")


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Event → what the guest told."""
    subprocess.run(["make", "-s", "-C", str(ROOT / "tests/workloads")], check=True)
    folder = tmp_path_factory.mktemp("machine")
    try:
        tree = Tree(folder)
        tree.install([deb for deb in built_packages() if deb.name.startswith("tierd_")])
        tree.put(ROOT / "build/workloads/hotset", "root/hotset")
        tree.run_at_boot(ROOT / "tests/vm/guest_systemd.py")
        events = boot(tree.image(), "dram-cxl", timeout_s=1500, on_event=print)
    finally:
        shutil.rmtree(folder)
    return {event["event"]: event for event in events}


def test_the_package_installs_a_unit_without_a_complaint_and_does_not_start_it(facts: Any) -> None:
    told = facts["installed"]
    assert facts["booted"]["nodes"] == ["node0", "node1"]
    assert (told["state"], told["enabled"]) == ("inactive", "disabled")
    assert (told["verify_status"], told["verify"]) == (0, [])
    assert told["config"].startswith("configuration is valid: /etc/tierd/tierd.toml")
    assert told["diff"] == ""


def test_the_exposure_level_is_the_documented_one(facts: Any) -> None:
    level = facts["installed"]["exposure"].split(":")[1].split()[0]
    assert f"exposure level {level}" in (ROOT / "docs/operate/README.md").read_text()


def test_ready_only_after_the_first_good_pass(facts: Any) -> None:
    told = facts["ready"]
    assert told["in_loop"]
    assert told["before"] == "activating"
    assert told["after"]
    assert "watched by damon" in told["status_text"]


def test_capabilities_are_given_up_when_the_source_is_attached(facts: Any) -> None:
    """DAMON alone is configured: what only eBPF needs is gone, and clients' threads have none.

    No thread has what the loop's has not; those that read for it have less.
    """
    first, *others = facts["ready"]["capabilities"]
    assert first == sum(1 << NUMBERS[name] for name in ALWAYS)
    assert "event=privileges_dropped" in facts["ready"]["log"]
    assert others.count(0) >= 2
    assert [each for each in others if each & ~first] == []


def test_a_reload_changes_what_is_in_force(facts: Any) -> None:
    assert facts["reload"]["status"] == 0
    assert facts["reload"]["good"]


def test_a_broken_file_leaves_the_old_configuration_in_force_and_is_told(facts: Any) -> None:
    told = facts["reload"]
    assert told["refused"]
    assert "did you mean 'interval'" in told["said"][0]
    assert "reload failed" in told["status_text"]
    assert told["metric"] == 0.0
    # By then the workload's hot pages, which began on the slow node, have been moved.
    assert ", 0 B moved" not in told["status_text"]
    assert (told["same_process"], told["state"], told["cleared"]) == (True, "active", True)


def test_the_watchdog_restarts_a_stuck_loop_and_the_log_says_where_it_was(facts: Any) -> None:
    told = facts["watchdog"]
    assert told["restarted"]
    assert told["active"]
    assert told["said"]
    assert told["where"]


def test_stop_ends_well_and_a_start_resumes(facts: Any) -> None:
    told = facts["stop"]
    assert told["status"] == told["started"] == 0
    assert told["stopped"] == {
        "Result": "success",
        "ExecMainStatus": "0",
        "ActiveState": "inactive",
    }
    assert told["again"] == "active"
    assert told["ended"] == 2
    assert facts["workload"]["end"][0]["checksum_ok"] is True


def test_a_wrong_configuration_is_not_tried_again_and_again(facts: Any) -> None:
    told = facts["wrong_config"]
    assert told["status"] != 0
    assert told["facts"]["ActiveState"] == "failed"
    assert told["facts"]["ExecMainStatus"] == "3"
    assert int(told["facts"]["NRestarts"]) in (0, told["restarts_before"])


def test_with_one_tier_the_unit_waits_for_another(facts: Any) -> None:
    """Memory that is on line only after boot, or goes away while the service runs."""
    told = facts["one_tier"]
    assert (told["status"], told["stopped"]) == (0, 0)
    assert told["facts"]["ActiveState"] == "active"
    assert told["facts"]["StatusText"] == "one tier only: waiting for a second"
    assert told["said"]


def test_purge_leaves_nothing_behind(facts: Any) -> None:
    assert facts["removed"]["status"] == 0
    assert facts["removed"]["left"] == []
