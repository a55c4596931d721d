# SPDX-License-Identifier: Apache-2.0
"""The manifest for Kubernetes, tried by hand: one pod with tierd, and one that it serves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pod_manifest import MEMORY_BYTES, SECURITY

from tierd.core.process import NUMBERS

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/workloads"
SERVED = (
    "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podbbbb.slice/"
    "cri-containerd-bbbb.scope"
)


@pytest.fixture(scope="module")
def facts(vm: Any) -> dict[str, dict[str, Any]]:
    """Event → what the guest told."""
    subprocess.run(["make", "-s", "-C", str(ROOT / "tests/workloads")], check=True)
    tierd = Path(sys.executable).with_name("tierd")
    tools = ["--hotset", BUILD / "hotset", "--tlbtick", BUILD / "tlbtick", "--tierd", tierd]
    command = [sys.executable, ROOT / "tests/vm/guest_pod.py", *tools]
    result = vm("dram-cxl").run([str(word) for word in command], timeout=900)
    assert result.status == 0, f"{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    told = [json.loads(line) for line in result.stdout.splitlines()]
    return {each["event"]: each for each in told}


def test_a_pods_hot_pages_come_to_fast_memory_and_keep_their_contents(facts: Any) -> None:
    assert facts["begun"]["near"] == 0
    assert facts["served"]["near"] >= 0.5
    assert any("source=damon event=source_selected" in line for line in facts["served"]["log"])
    assert facts["end"]["checksum_ok"] is True


def test_it_has_what_the_manifest_gives_and_no_more(facts: Any) -> None:
    told = dict(line.split() for line in facts["confined"]["lines"])
    assert told["NoNewPrivs:"] == "1"
    given = sum(1 << NUMBERS[f"CAP_{name}"] for name in SECURITY["capabilities"]["add"])
    assert (int(told["CapBnd:"], 16), int(told["CapPrm:"], 16)) == (given, given)
    assert facts["confined"]["group"].startswith("0::/kubepods.slice/")
    assert set(facts["confined"]["read_only"].values()) == {True}
    assert facts["confined"]["memory_max"] == MEMORY_BYTES
    events = facts["confined"]["memory_events"]
    assert events[events.index("oom_kill") + 1] == "0"


def test_pods_are_known_by_the_hosts_paths(facts: Any) -> None:
    """tierd has a namespace of control groups of its own, whose root is its own group.

    Commands that run in its pod, as probes do, are in a group that the configuration matches, too.
    """
    targets = json.loads(facts["status"]["told"])["targets"]
    found = {group["cgroup"] for group in targets["groups"]}
    own = facts["confined"]["group"].removeprefix("0::")
    assert found - {own} == {SERVED}
    assert (targets["left_out"], targets["idle_matchers"]) == (0, [])


def test_the_probe_the_doctor_and_prometheus_are_answered(facts: Any) -> None:
    assert (facts["status"]["status"], facts["status"]["errors"]) == (0, "")
    assert facts["doctor"]["status"] == 0, facts["doctor"]
    assert json.loads(facts["doctor"]["told"])["summary"].startswith("tierd can run here")
    lines = dict(line.rsplit(" ", 1) for line in facts["metrics"]["lines"])
    assert float(lines["tierd_targets"]) >= 1
    assert float(lines['tierd_migration_results_total{result="moved"}']) > 0


def test_it_ends_when_kubelet_asks_and_says_nothing_alarming(facts: Any) -> None:
    told = facts["stopped"]
    assert told["status"] == 0
    assert "event=ended" in told["log"][-1]
    assert not [line for line in told["log"] if "level=error" in line or "Traceback" in line]
