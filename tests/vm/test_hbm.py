# SPDX-License-Identifier: Apache-2.0
"""A triad beside a pointer chase on DRAM, HBM and CXL, in modelled time: one boot.

First touch fills DRAM with the triad's arrays and leaves HBM to the chase. The daemon is told
nothing but sampled misses.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest
from hbmlab import CONFIG, CXL, DRAM, HBM, ROOT, HbmLab

MIB = 1 << 20
FREE = {DRAM: 26 * MIB, HBM: 34 * MIB}
SWEEPS = {"time": 420, "latency": 90}
MIXED = [str(ROOT / "build/workloads/mixed"), "--size", "32M", "--work"]
BEST = {"a": HBM, "b": HBM, "c": HBM, "chase": DRAM}
"""Found by search among whole arrays (tests/bench/hbm_lab.py)."""


@pytest.fixture(scope="module")
def lab() -> Iterator[HbmLab]:
    subprocess.run(["make", "-s", "-C", ROOT / "fpga", "lab"], check=True)
    subprocess.run(["make", "-s", "-C", ROOT / "tests/workloads", "all"], check=True)
    subprocess.run(["make", "-s", "-C", ROOT / "tests/workloads/suite"], check=True)
    with HbmLab() as booted:
        yield booted


def run(lab: HbmLab, ladder: str) -> dict[str, Any]:
    command = [*MIXED, str(SWEEPS[ladder])]
    return lab.run(command, free=FREE, config=CONFIG.format(ladder=ladder))


def sweep_ms(figures: dict[str, Any]) -> float:
    """Of the last five, which run when the daemon has ended."""
    return 1e3 * median(figures["sweeps"][-5:])


@pytest.fixture(scope="module")
def best(lab: HbmLab) -> float:
    """Milliseconds of a sweep by the best static placement."""
    figures = lab.run([*MIXED, "7"], free=FREE, place=BEST)
    assert all(figures["last"][name][node] > 2000 for name, node in BEST.items())
    return sweep_ms(figures)


@pytest.fixture(scope="module")
def by_time(lab: HbmLab) -> dict[str, Any]:
    return run(lab, "time")


def test_the_arrays_end_in_hbm_and_the_chase_in_dram(by_time: dict[str, Any]) -> None:
    assert by_time["first"]["chase"][DRAM] == 0
    print(by_time["last"])
    for name, node in BEST.items():
        pages = by_time["last"][name]
        assert pages[node] >= 0.8 * sum(pages), name
        assert pages[CXL] <= 0.05 * sum(pages), name


def test_it_is_as_fast_as_the_best_static_placement(by_time: dict[str, Any], best: float) -> None:
    print(f"{sweep_ms(by_time):.2f} ms a sweep, {best:.2f} at best")
    assert sweep_ms(by_time) <= 1.05 * best


def test_weights_of_interleaving_are_set_and_put_back(by_time: dict[str, Any]) -> None:
    before, during, after = by_time["weights"]
    print(by_time["weights"])
    assert during != before
    assert after == before
    # HBM could serve most of what new pages ask for.
    assert int(during[HBM]) > max(int(during[DRAM]), int(during[CXL]))
    assert min(int(during[DRAM]), int(during[CXL])) >= 1


def test_a_ladder_of_latency_loses(lab: HbmLab, best: float) -> None:
    figures = run(lab, "latency")
    print(f"{sweep_ms(figures):.2f} ms a sweep, {best:.2f} at best; {figures['last']}")
    streamed = sum(figures["last"][name][HBM] for name in "abc")
    assert streamed < 0.6 * sum(sum(figures["last"][name]) for name in "abc")
    assert sweep_ms(figures) > 1.1 * best
