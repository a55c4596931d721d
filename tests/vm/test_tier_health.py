# SPDX-License-Identifier: Apache-2.0
"""The service finds a tier that became slow, and that it is as usual again; in modelled time."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/bench/tiering"))

from module_build import build_module

from tierd.core.tuning import HEALTH
from tierd.topology.health import RECOVERY
from tierd_lab import Guest, Machine
from tierd_lab.host import find_kernel
from tierd_lab.timemodel import TimeSpec
from workloads import WORKLOADS

ROOT = Path(__file__).resolve().parents[2]
MEASUREMENTS = 2 * 3600 / 5
INTERVAL_S = 0.5
SEEN_S = 30.0
"""Guest seconds within which a fault is to be seen with the shipped settings."""


def in_guest(script: str, *arguments: str, dram: int = 512 << 20) -> dict[str, Any]:
    """The object that a script in the guest prints; its clock shows what a probe has to see."""
    for command in (["fpga", "lab"], ["tests/workloads"], ["tests/workloads/suite"]):
        subprocess.run(["make", "-s", "-C", *command], cwd=ROOT, check=True)
    time = TimeSpec(instruction_ps=1000, follow=True, behind_us=2)
    command = [sys.executable, str(ROOT / "tests/vm" / script)]
    command += ["--tierd", str(Path(sys.executable).with_name("tierd")), *arguments]
    kernel = find_kernel()
    build_module(kernel.version)
    machine = replace(Machine.load("bench"), time=time, cards=())
    near, *others = machine.nodes
    machine = replace(machine, nodes=(replace(near, size_bytes=dram), *others))
    with Guest(machine, kernel=kernel.image) as guest:
        result = guest.run(command, timeout=7200)
    assert result.status == 0, result.stderr[-3000:]
    told: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    print(result.stderr[-3000:], json.dumps(told, indent=1))
    return told


def tell(interval_s: float, cpu_limit: str, *faults: str) -> dict[str, Any]:
    """What the guest tells of these faults."""
    hotset = str(ROOT / "build/workloads/hotset")
    settings = ["--hotset", hotset, "--interval", str(interval_s), "--cpu-limit", cpu_limit]
    return in_guest("guest_tier_health.py", *settings, *faults)


def check(told: dict[str, Any], symptoms: list[str], interval_s: float) -> None:
    what = "+".join(symptoms)
    assert f"event=node_slow what={what} node=1" in told["said"]
    (slow,) = told["slow_nodes"]
    assert (slow["node"], slow["symptoms"]) == (1, symptoms)
    (explained,) = told["explained"]
    assert explained.startswith(f"node 1 is slow ({', '.join(symptoms)})")
    assert "event=node_as_usual node=1" in told["took_back"]
    # The fault may end in the middle of an interval.
    assert told["gone_s"] > (RECOVERY * HEALTH.slow_probes - 1) * interval_s


def test_a_slow_tier_is_seen_and_recovers_and_its_figures_are_what_was_measured() -> None:
    """Measured every second, to be brief."""
    told = tell(1.0, "10%", "slower", "stalls")
    assert told["early"] == ""
    check(told["slower"], ["bandwidth", "latency"], 1.0)
    check(told["stalls"], ["stalls"], 1.0)
    (dram, near), (cxl, far) = told["slower"]["tiers"]
    assert (dram, near, cxl) == ("dram", 118.0, "cxl")
    assert far == pytest.approx(860, rel=0.1)
    # 50 us in one access of a thousand.
    assert told["stalls"]["tiers"][1][1] == pytest.approx(480, rel=0.05)


def test_hot_pages_stay_in_slow_memory_while_fast_memory_is_slower_and_go_afterwards() -> None:
    told = tell(1.0, "10%", "placement")["placement"]
    assert "event=node_slow what=latency node=0" in told["said"]
    assert "event=node_as_usual node=0" in told["took_back"]
    while_slow, after = told["shares"][: told["stays"]], told["shares"][told["stays"] :]
    assert max(while_slow) < 0.2
    # Recovery is found in the meantime; then it takes no longer than they stayed before.
    assert after[-1] > 0.9
    assert len(after) < told["stays"]


@pytest.mark.soak
def test_with_the_shipped_settings_each_fault_is_seen_in_half_a_minute() -> None:
    told = tell(5.0, "0.1%", "latency", "bandwidth", "stalls")
    assert told["early"] == ""
    for fault in ("latency", "bandwidth", "stalls"):
        check(told[fault], [fault], 5.0)
        assert told[fault]["seen_s"] < SEEN_S


@pytest.mark.soak
@pytest.mark.parametrize("name", WORKLOADS)
def test_no_false_alarm_beside_a_workload(name: str) -> None:
    """All ten together have as many measurements as two hours with the shipped interval."""
    workload = WORKLOADS[name]
    seconds = MEASUREMENTS / len(WORKLOADS) * INTERVAL_S
    told = in_guest(
        "guest_false_alarms.py",
        *("--interval", str(INTERVAL_S), "--seconds", str(seconds)),
        *(str(ROOT / "build/workloads" / name), *workload.arguments),
        # A full node is not measured, and one that is measured alone is not judged.
        dram=1 << 30,
    )
    assert told["said"] == []
    for count in told["probes"].values():
        assert count >= 0.9 * MEASUREMENTS / len(WORKLOADS)
