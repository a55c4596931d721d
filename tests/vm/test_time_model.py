# SPDX-License-Identifier: Apache-2.0
"""Modelled time in a machine: a chase and a stream on each node give the machine's own figures."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tierd_lab import Guest, Machine
from tierd_lab.timemodel import Region, TimeSpec

ROOT = Path(__file__).resolve().parents[2]
STEPS, SWEEPS = 100_000, 2
SMALL = 16 << 20
"""Several times the modelled cache of 2 MiB."""


@pytest.fixture(scope="module")
def machine() -> Machine:
    """The benchmark's, with a CPU so fast that only memory takes time, and no card."""
    made = replace(Machine.load("bench"), time=TimeSpec(instruction_ps=1))
    bare = replace(made, cards=())
    assert bare.time is not None
    return bare


@pytest.fixture(scope="module")
def guest(machine: Machine) -> Iterator[Guest]:
    """One boot for all checks."""
    subprocess.run(["make", "-s", "-C", ROOT / "fpga", "lab"], check=True)
    subprocess.run(["make", "-s", "-C", ROOT / "tests/workloads/suite"], check=True)
    with Guest(machine) as booted:
        yield booted


def measure(guest: Guest, node: int, name: str, work: int) -> tuple[Region, dict[str, object]]:
    assert guest.traffic is not None
    command = ["numactl", f"--membind={node}", str(ROOT / "build/workloads" / name)]
    guest.traffic.start(600)
    done = guest.run([*command, "--size", str(SMALL), "--work", str(work)], timeout=900).check()
    region = guest.traffic.counts(600).region
    guest.traffic.stop(600)
    assert region is not None
    return region, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("node", [0, 1])
def test_a_pointer_chase_takes_the_nodes_latency(guest: Guest, machine: Machine, node: int) -> None:
    region, end = measure(guest, node, "chase", STEPS)
    assert end["ok"] is True
    # No line is met twice; a few are still in the cache from when they were linked.
    assert region.ns / STEPS == pytest.approx(machine.nodes[node].latency_ns[0], rel=0.05)
    assert region.share(node) > 0.98
    assert region.instructions["workload"] >= 4 * STEPS
    assert region.curve.sum() == sum(map(sum, region.node_requests.values()))


@pytest.mark.parametrize("node", [0, 1])
def test_a_stream_gets_the_nodes_bandwidth(guest: Guest, machine: Machine, node: int) -> None:
    region, end = measure(guest, node, "stream", SWEEPS)
    assert end["ok"] is True
    # Its own time: the kernel's ticks beside it wait for lines one by one.
    bandwidth = sum(region.node_requests[node]) * 64 * 1e9 / region.spent_ns["workload"]
    assert bandwidth == pytest.approx(machine.nodes[node].bandwidth_bytes_per_s[0], rel=0.05)
    assert region.share(node) > 0.98


def test_the_same_run_takes_the_same_time(guest: Guest) -> None:
    first, second = (measure(guest, 1, "chase", STEPS)[0] for _ in range(2))
    assert second.ns == pytest.approx(first.ns, rel=0.01)
