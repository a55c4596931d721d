# SPDX-License-Identifier: Apache-2.0
"""A triad beside a pointer chase on DRAM, HBM and CXL, in modelled time: one boot.

First touch fills DRAM with the triad's arrays and leaves HBM to the chase, the wrong way round.
Nobody tells the daemon which is which. The last five sweeps run after it has ended, so that
they show what its placement is worth and nothing else.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from hbmlab import CONFIG, DRAM, HBM, HbmLab

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
FREE = {DRAM: 26 * MIB, HBM: 34 * MIB}
"""The chase's 8 MiB and two of the triad's arrays of 8 MiB fit DRAM, all three of them HBM."""
MIXED = [str(ROOT / "build/workloads/mixed"), "--size", "32M", "--work"]
ARRAYS = ("a", "b", "c", "chase")
STATIC: dict[str, dict[str, int] | None] = {
    "as it should be": {"a": HBM, "b": HBM, "c": HBM, "chase": DRAM},
    "as first touch leaves it": None,
    "one array in DRAM": {"a": DRAM, "b": HBM, "c": HBM, "chase": DRAM},
}


@pytest.fixture(scope="module")
def lab() -> Iterator[HbmLab]:
    """One boot for all."""
    for folder, target in (("fpga", "lab"), ("tests/workloads", "all")):
        subprocess.run(["make", "-s", "-C", ROOT / folder, target], check=True)
    subprocess.run(["make", "-s", "-C", ROOT / "tests/workloads/suite"], check=True)
    with HbmLab() as booted:
        yield booted


@pytest.fixture(scope="module")
def static(lab: HbmLab) -> dict[str, float]:
    """Seconds a sweep takes with static placements."""
    return {
        name: median(lab.run([*MIXED, "6"], free=FREE, place=place)["sweeps"])
        for name, place in STATIC.items()
    }


@pytest.fixture(scope="module")
def tiered(lab: HbmLab) -> dict[str, Any]:
    """The run under tierd, from first touch."""
    return lab.run([*MIXED, "330"], free=FREE, config=CONFIG.format(ladder="time"))


@pytest.fixture(scope="module")
def ladder(lab: HbmLab) -> dict[str, Any]:
    """The run under the ladder of latency."""
    return lab.run([*MIXED, "80"], free=FREE, config=CONFIG.format(ladder="latency"))


def share(figures: dict[str, Any], array: str, node: int) -> float:
    """Share of an array's pages that ended on a node."""
    return float(figures["last"][array][node] / sum(figures["last"][array]))


def test_the_triad_ends_in_hbm_and_the_chase_in_dram(tiered: dict[str, Any]) -> None:
    print({name: tiered["last"][name] for name in ARRAYS}, tiered["daemon"]["cost"])
    assert tiered["daemon"]["lost"] == 0
    for name in "abc":
        assert share(tiered, name, HBM) > 0.8
    assert share(tiered, "chase", DRAM) > 0.8


def test_its_placement_is_within_5_percent_of_the_best_static_one(
    tiered: dict[str, Any], static: dict[str, float]
) -> None:
    steady = median(tiered["sweeps"][-5:])
    print(f"{steady * 1e3:.2f} ms a sweep under tierd; static: {static}")
    assert steady <= 1.05 * min(static.values())
    assert steady < 0.8 * static["as first touch leaves it"]


def test_the_ladder_of_latency_loses(tiered: dict[str, Any], ladder: dict[str, Any]) -> None:
    steady, other = median(tiered["sweeps"][-5:]), median(ladder["sweeps"][-5:])
    print(f"{steady * 1e3:.2f} ms by time, {other * 1e3:.2f} ms by latency: {ladder['last']}")
    assert other > 1.2 * steady
