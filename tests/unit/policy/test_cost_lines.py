# SPDX-License-Identifier: Apache-2.0
"""The cost policy against the lab's timing, line by line and without a guest: one rule a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from lineloop import LineArray, LineLoop, LineMachine
from policies import cost_settings, watermarks
from tierloop import LINES
from tiersim import SimTier

from tierd.core.tiermap import MemoryKind
from tierd.policy.cost import CostPolicy

MIB = 256
DRAM, HBM, CXL = 0, 1, 2
TURNS = 8192


def tiers(dram: int, hbm: int) -> list[SimTier]:
    """Those of the lab's machine hbm-bench, with so much memory."""
    return [
        SimTier(MemoryKind.DRAM, dram, 118, 2e9),
        SimTier(MemoryKind.HBM, hbm, 130, 8e9),
        SimTier(MemoryKind.CXL, 1024 * MIB, 430, 0.5e9),
    ]


def triad_and_chase(dram: int = 26 * MIB, hbm: int = 34 * MIB) -> LineMachine:
    arrays = [
        LineArray(name, 8 * MIB, 16, every=3, phase=phase, instructions=8)
        for phase, name in enumerate("abc")
    ]
    chase = LineArray("chase", 8 * MIB, 4, random=True, instructions=3)
    return LineMachine(tiers(dram, hbm), [*arrays, chase], TURNS)


def analytics(hbm: int) -> LineMachine:
    """Small key arrays that are sorted and merged, large records that are looked up."""
    keys = LineArray("keys", 3 * MIB, 16, every=2, phase=0, instructions=4)
    index = LineArray("index", 3 * MIB, 16, every=2, phase=1, instructions=4)
    merge = LineArray("merge", 3 * MIB, 12, every=1, instructions=4)
    records = LineArray("records", 39 * MIB, 6, random=True, instructions=4)
    return LineMachine(tiers(64 * MIB, hbm), [keys, index, merge, records], TURNS)


def placed(
    machine: LineMachine, where: Mapping[str, list[int]], latency_model: str = "loaded"
) -> LineLoop:
    marks = watermarks(low_watermark=0.0075, high_watermark=0.015, min_residency_s=1.0)
    policy = CostPolicy(cost_settings(watermarks=marks, epoch_s=0.15, latency_model=latency_model))
    loop = LineLoop(machine, policy)
    loop.place(where)
    return loop


WRONG = {"a": [DRAM, CXL], "b": [DRAM, CXL], "c": [DRAM, CXL], "chase": [HBM]}
"""Where first touch puts them, the wrong way round."""
BEST = {"a": [HBM], "b": [HBM], "c": [HBM], "chase": [DRAM]}


def test_three_groups_change_places_where_two_would_not() -> None:
    best = placed(triad_and_chase(), BEST).sweep_ms()
    loop = placed(triad_and_chase(), WRONG)
    begun = loop.sweep_ms()
    loop.run(4)
    print(f"{begun:.2f} ms a sweep at first, {loop.sweep_ms():.2f} at last, {best:.2f} at best")
    assert begun > 2 * best
    assert loop.sweep_ms() <= 1.05 * best
    for name, (node,) in BEST.items():
        assert loop.share_on(name, node) > 0.9


def test_a_ladder_of_latency_leaves_the_chase_in_hbm() -> None:
    loop = placed(triad_and_chase(), WRONG, latency_model="idle")
    loop.run(4)
    assert loop.share_on("chase", DRAM) < 0.5
    assert loop.sweep_ms() > 1.5 * placed(triad_and_chase(), BEST).sweep_ms()


@pytest.mark.parametrize(
    "share", [0.2, *(pytest.param(s, marks=pytest.mark.soak) for s in (0.35, 0.5))]
)
def test_of_stream_analytics_hbm_gets_what_is_streamed_and_no_records(share: float) -> None:
    machine = analytics(int(50 * share * MIB))
    names = [array.name for array in machine.arrays]
    best = placed(machine, {n: [DRAM if n == "records" else HBM] for n in names}).sweep_ms()
    loop = placed(analytics(int(50 * share * MIB)), {name: [DRAM, CXL] for name in names})
    begun = loop.sweep_ms()
    loop.run(5)
    print(f"{begun:.2f} ms a sweep in DRAM, {loop.sweep_ms():.2f} at last, {best:.2f} at best")
    assert loop.sweep_ms() <= 1.05 * best
    assert loop.share_on("records", HBM) < 0.05


def streams(counts: Sequence[int], parts: int) -> LineMachine:
    """Four arrays that are streamed, each in parts that are read in turn."""
    arrays = [
        LineArray(f"s{number}.{part}", 8 * MIB // parts, count, instructions=2)
        for number, count in enumerate(counts)
        for part in range(parts)
    ]
    dram, _, cxl = tiers(64 * MIB, 0)
    return LineMachine([dram, cxl], arrays, TURNS)


def streaming(counts: Sequence[int], parts: int, share: float = 0.0) -> LineLoop:
    """All in DRAM but a share, scattered. Parts are not at the same place of a page."""
    machine = streams(counts, parts)
    loop = placed(machine, {array.name: [0] for array in machine.arrays})
    rng = np.random.default_rng(1)
    if parts > 1:
        loop.begin_at({a.name: int(rng.integers(a.pages * LINES)) for a in machine.arrays})
    loop.node[(loop.node == 0) & (rng.random(len(loop.node)) < share)] = 1
    return loop


def test_streams_that_fill_dram_are_shared_with_cxl_as_by_the_best_split() -> None:
    found = {str(s): streaming([4] * 4, 4, s).sweep_ms() for s in (0, 0.05, 0.1, 0.15, 0.2, 0.25)}
    for whole in range(1, 5):
        loop = streaming([4] * 4, 4)
        for array in loop.machine.arrays[:whole]:
            loop.put(array.name, 1)
        found[f"{whole} parts"] = loop.sweep_ms()
    best = min(found.values())
    loop = streaming([4] * 4, 4)
    loop.run(8)
    once = loop.sweep_ms()
    loop.run(8)
    print(f"{once:.2f} ms a sweep, then {loop.sweep_ms():.2f}, {best:.2f} at best, {found}")
    assert best < 0.95 * found["0"]
    assert best >= 0.95 * once
    assert best >= 0.95 * loop.sweep_ms()


@pytest.mark.parametrize(
    "counts",
    [
        (24, 12, 8, 16),
        *(pytest.param(c, marks=pytest.mark.soak) for c in ((16, 16, 16, 16), (16, 16, 16, 12))),
    ],
)
def test_streams_that_no_model_of_many_cpus_fits_lose_little(counts: tuple[int, ...]) -> None:
    """One CPU waits for one tier after another, where the model has all tiers used at once."""
    loop = streaming(counts, 1)
    begun = loop.sweep_ms()
    loop.run(5)
    print(f"{begun:.2f} ms a sweep at first, {loop.sweep_ms():.2f} at last")
    assert loop.sweep_ms() <= 1.06 * begun
