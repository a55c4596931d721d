# SPDX-License-Identifier: Apache-2.0
"""The cost policy on DRAM, HBM and CXL, in modelled time: one boot.

A triad beside a pointer chase, of which first touch fills DRAM with the triad's arrays and leaves
HBM to the chase; four streams that overload DRAM; stream analytics and two tenants with HBM of a
fifth of the footprint; huge folios of which few pages are busy; load that never rests. The
daemon is told nothing but sampled misses.

TIERD_HBM_MINUTES=30 pytest tests/vm/test_hbm.py     # load that never rests, the whole of it
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import hbmcases
import numpy as np
import pytest
from hbmcases import MIB, sweep_ms
from hbmlab import CONFIG, CXL, DRAM, HBM, ROOT, HbmLab

from tierd.policy.regression_window import rank_correlation

MINUTES = float(os.environ.get("TIERD_HBM_MINUTES", "1"))
FREE = {DRAM: 26 * MIB, HBM: 34 * MIB}
SWEEPS = {"loaded": 420, "idle": 90}
MIXED = [str(ROOT / "build/workloads/mixed"), "--size", "32M", "--work"]
BEST = {"a": HBM, "b": HBM, "c": HBM, "chase": DRAM}
"""The best of those tried in tests/bench/hbm_lab.py."""


@pytest.fixture(scope="module")
def lab() -> Iterator[HbmLab]:
    subprocess.run(["make", "-s", "-C", ROOT / "fpga", "lab"], check=True)
    subprocess.run(["make", "-s", "-C", ROOT / "tests/workloads", "all"], check=True)
    subprocess.run(["make", "-s", "-C", ROOT / "tests/workloads/suite"], check=True)
    with HbmLab() as booted:
        yield booted


def run(lab: HbmLab, latency_model: str) -> dict[str, Any]:
    command = [*MIXED, str(SWEEPS[latency_model])]
    return lab.run(command, free=FREE, config=CONFIG.format(latency_model=latency_model))


@pytest.fixture(scope="module")
def best(lab: HbmLab) -> float:
    """Milliseconds of a sweep by the best static placement."""
    figures = lab.run([*MIXED, "7"], free=FREE, place=BEST)
    assert all(figures["last"][name][node] > 2000 for name, node in BEST.items())
    return sweep_ms(figures)


@pytest.fixture(scope="module")
def by_time(lab: HbmLab) -> dict[str, Any]:
    return run(lab, "loaded")


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


@pytest.mark.soak
def test_a_ladder_of_latency_loses(lab: HbmLab, best: float) -> None:
    figures = run(lab, "idle")
    print(f"{sweep_ms(figures):.2f} ms a sweep, {best:.2f} at best; {figures['last']}")
    streamed = sum(figures["last"][name][HBM] for name in "abc")
    assert streamed < 0.6 * sum(sum(figures["last"][name]) for name in "abc")
    assert sweep_ms(figures) > 1.1 * best


BEST_SPLITS = ("all in DRAM", "half of one in CXL", "three quarters of one in CXL")
"""First touch, and the two best of all that `make soak` tries."""


@pytest.mark.parametrize(
    "placements",
    [BEST_SPLITS, pytest.param(tuple(hbmcases.STREAMS.statics), marks=pytest.mark.soak)],
    ids=["best", "all"],
)
def test_four_streams_are_split_between_dram_and_cxl(
    lab: HbmLab, placements: tuple[str, ...]
) -> None:
    case = hbmcases.STREAMS
    found = {name: sweep_ms(case.static(lab, name)) for name in placements}
    best = min(found.values())
    figures = case.tierd(lab)
    print(f"{sweep_ms(figures):.2f} ms a sweep, {found}, {figures['last']}")
    assert best < 0.95 * found["all in DRAM"]
    assert best >= 0.95 * sweep_ms(figures)


@pytest.mark.soak
@pytest.mark.parametrize(
    "case",
    [
        hbmcases.analytics(0.1),
        hbmcases.analytics(0.2),
        hbmcases.tenants(0.2),
        hbmcases.tenants(0.5),
    ],
    ids=lambda case: case.name,
)
def test_little_hbm_gets_what_gains_most_by_it(lab: HbmLab, case: hbmcases.Case) -> None:
    found = {name: sweep_ms(case.static(lab, name)) for name in case.statics}
    figures = case.tierd(lab)
    print(f"{case.name}: {sweep_ms(figures):.2f} ms a sweep, {found}, {figures['last']}")
    unmoved = min(found[name] for name in ("DRAM only", "HBM first", hbmcases.INTERLEAVED))
    best = min(found.values())
    assert best < 0.95 * unmoved
    # By how much differs from run to run: docs/concepts/hbm.md.
    assert sweep_ms(figures) < unmoved


def test_of_huge_folios_the_few_busy_pages_come_to_fast_memory(lab: HbmLab) -> None:
    """Which has room for a few of 48 folios, and for the 16 busy pages of each.

    What a pass puts into HBM, where DRAM bears no more at once, stays: 12 ns less for each use is
    not worth the moves.
    """
    figures = hbmcases.spots(lab)
    splits, last = figures["daemon"]["totals"]["splits"], figures["last"]["spots"]
    begun, ended = 1e3 * figures["sweeps"][2], sweep_ms(figures)
    print(f"{begun:.2f} ms a sweep at first, {ended:.2f} at last; {splits}, {last}")
    assert figures["first"]["spots"][CXL] == hbmcases.SPOTS_BYTES // 4096
    assert splits["done"] > 24
    busy = hbmcases.SPOTS_BYTES // 4096 // 32
    assert last[DRAM] + last[HBM] >= 0.95 * busy
    # Idle pages have inherited heat, and there is room for some of them.
    assert last[DRAM] + last[HBM] <= 3 * busy
    assert ended < begun / 3


@pytest.fixture(scope="module")
def restless(lab: HbmLab) -> dict[str, Any]:
    """What the service's moves did; checksums are the program's to check."""
    figures = hbmcases.restless(lab, MINUTES)
    told: dict[str, Any] = figures["daemon"]["pages"] | {"alarms": figures["daemon"]["alarms"]}
    print(told)
    assert told["seconds"] >= 0.9 * 60 * MINUTES
    return told


def test_memory_fills_and_drains_and_pages_go_all_ways(restless: dict[str, Any]) -> None:
    for least, most in restless["free_bytes_least_and_most"].values():
        assert most - least > 4 * MIB
    # What relieves a full tier is soon seen, exchanges in half an hour.
    assert len(restless["moves_by_way"]) >= (4 if MINUTES >= 20 else 2)


def test_no_page_bounces_but_what_is_taken_back(restless: dict[str, Any]) -> None:
    """An alarm takes moves back, and no more than once; else residency holds."""
    assert restless["moves"] > 200
    assert restless["bounces"] == restless["bounces_back"]
    assert restless["most_bounces_of_a_page"] <= restless["alarms"]
    assert restless["most_moves_of_a_page"] <= restless["most_by_residency"]


def test_every_watermark_is_kept(restless: dict[str, Any]) -> None:
    """No plan takes a node below, and what programs take is made good in a few passes."""
    assert restless["plans_that_dug_below_low"] == 0
    for seconds in restless["longest_below_low_s"].values():
        assert seconds <= 4 * hbmcases.RESTLESS_TICK_S


def test_no_minute_loses_more_than_a_few_moves(
    lab: HbmLab, by_time: dict[str, Any], restless: dict[str, Any]
) -> None:
    """Of all runs with tierd that this boot has seen, each by itself."""
    print(f"least gains {lab.worst_s}")
    assert len(lab.worst_s) >= 2
    # Pages that `restless` frees were moved for nothing: 1 to 2 ms a time (docs/concepts/hbm.md).
    assert min(lab.worst_s) >= -0.01


@pytest.mark.soak
def test_gains_are_as_predicted(
    lab: HbmLab, by_time: dict[str, Any], restless: dict[str, Any]
) -> None:
    """28 epochs leave the rank correlation uncertain by 0.15; docs/concepts/hbm.md has more."""
    if sum(map(len, lab.epochs)) < 15:
        for case in (hbmcases.analytics(0.2), hbmcases.tenants(0.2), hbmcases.tenants(0.5)):
            case.tierd(lab)
    epochs = np.concatenate(lab.epochs)
    found = rank_correlation(epochs[:, 1], epochs[:, 2])
    print(f"rank correlation {found:.2f} of {len(epochs)} epochs")
    assert len(epochs) >= 15
    assert found >= 0.5
