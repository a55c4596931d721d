# SPDX-License-Identifier: Apache-2.0
"""Loads of the cost policy on simulated memory; what is not in the unit tests is marked held out.

Each draws sizes, rates and the first placement, runs, and returns the loop. Two simulators: a queue
that many threads load at once (`tierloop`), and one CPU that waits line by line, with the timing of
the lab's guests (`lineloop`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from lineloop import LineArray, LineLoop, LineMachine
from policies import cost_settings, watermarks
from tierloop import LINES, Loop
from tiersim import Array, Machine, Program, SimTier

from tierd.core.tiermap import MemoryKind
from tierd.policy.cost import CostPolicy

Rng = np.random.Generator
DRAM = SimTier(MemoryKind.DRAM, 6000, 118, 60e9)
HBM = SimTier(MemoryKind.HBM, 10_000, 130, 400e9)
CXL = SimTier(MemoryKind.CXL, 20_000, 430, 20e9)
MIB = 256


def _near(rng: Rng, value: float, by: float = 0.25) -> float:
    return float(value * rng.uniform(1 - by, 1 + by))


def _loop(tiers: list[SimTier], programs: list[Program], rng: Rng) -> Loop:
    """Arrays lie where first touch in a random order puts them."""
    policy = CostPolicy(cost_settings(watermarks=watermarks(min_residency_s=5.0)))
    loop = Loop(Machine(tiers, programs, int(rng.integers(1 << 30))), policy)
    names = [array.name for array in loop.machine.arrays]
    loop.place({name: [0, len(tiers) - 1] for name in rng.permutation(names).tolist()})
    return loop


def triad(rng: Rng) -> Loop:
    """A triad beside a pointer chase."""
    size = int(_near(rng, 2500))
    arrays = [Array(name, size, _near(rng, 3.0), 1.0, float(name == "a")) for name in "abc"]
    chase = Array("chase", int(_near(rng, 4096)), 1.0, 0.0)
    loop = _loop([DRAM, HBM, CXL], [Program([*arrays, chase], 48, 5)], rng)
    loop.run(30)
    return loop


def overload(rng: Rng) -> Loop:
    """Streams of several programs that DRAM alone does not bear, beside CXL memory."""
    programs = [
        Program([Array(f"s{i}", int(_near(rng, 4000)), _near(rng, 1), 1)], 8, 1) for i in range(4)
    ]
    loop = _loop([replace(DRAM, pages=24_000), CXL], programs, rng)
    loop.run(30)
    return loop


def analytics(rng: Rng) -> Loop:
    """Streamed keys and records that are looked up, with HBM of 5 to 50 %."""
    keys = [Array(name, 1024, _near(rng, 4), 1.0, 0.5) for name in ("keys", "index")]
    arrays = [*keys, Array("merge", 1024, 4, 1.0, 0.9), Array("records", 6000, 1.0, 0.3)]
    hbm = replace(HBM, pages=int(9000 * rng.uniform(0.05, 0.5)) + 250)
    loop = _loop([replace(DRAM, pages=15_000), hbm, CXL], [Program(arrays, 32, 5)], rng)
    loop.run(30)
    return loop


def liar(rng: Rng) -> Loop:
    """HBM that is slow or narrow and says otherwise, beside a triad and a chase."""
    wrong = [
        replace(HBM, latency_ns=_near(rng, 1000), told_latency_ns=60.0),
        replace(HBM, bandwidth=_near(rng, 8e9), reported_bandwidth=400e9),
    ][int(rng.integers(2))]
    arrays = [Array(name, 1536, 3.0, 1.0, float(name == "a")) for name in "abc"]
    programs = [Program([*arrays, Array("chase", 4096, 1.0, 0.0)], 48, 5)]
    loop = _loop([DRAM, wrong, CXL], programs, rng)
    loop.run(45)
    return loop


def restless(rng: Rng) -> Loop:
    """Two programs whose five arrays' use changes at random, every 12 s."""
    kinds = zip("abcde", (1.0, 0.0, 1.0, 0.0, 0.5), (0, 0.8, 0, 0, 0.5), strict=True)
    arrays = [
        Array(name, int(_near(rng, 3000)), 1, streamed, skew=skew) for name, streamed, skew in kinds
    ]
    loop = _loop(
        [DRAM, replace(HBM, pages=4000), CXL], [Program(arrays[:3], 8), Program(arrays[3:], 8)], rng
    )
    for _ in range(5):
        loop.run(12)
        for array in arrays:
            array.lines = float(rng.choice([0.1, 0.2, 1.0, 3.0]))
        loop.machine.refresh()
    return loop


def tenants(rng: Rng) -> Loop:
    """Held out: a streaming and a skewed tenant that change places every 10 s."""
    one, other = Array("one", int(_near(rng, 5000)), 3, 1.0), Array("other", 5000, 3, 0.0, skew=0.9)
    two = [Array("first", int(_near(rng, 3000)), 1, 1.0), Array("second", 3000, 1, 0.0, 0.3, 0.7)]
    programs = [Program([one, two[1]], 24), Program([other, two[0]], 16)]
    loop = _loop([replace(DRAM, pages=7000), replace(HBM, pages=5000), CXL], programs, rng)
    for _ in range(5):
        loop.run(10)
        one.lines, two[1].lines = two[1].lines, one.lines
        other.lines, two[0].lines = two[0].lines, other.lines
        loop.machine.refresh()
    return loop


def skewed(rng: Rng) -> Loop:
    """Held out: skewed random access with writes, no tier overloaded, a slow large tier."""
    arrays = [
        Array(f"z{i}", int(_near(rng, 4000)), _near(rng, 1, 0.5), 0.0, 0.2, rng.uniform(0.5, 1.2))
        for i in range(4)
    ]
    programs = [Program([array], 8, 50) for array in arrays]
    loop = _loop([replace(DRAM, pages=5000), replace(CXL, bandwidth=60e9)], programs, rng)
    loop.run(30)
    return loop


def _drawn_array(name: str, rng: Rng) -> Array:
    return Array(
        name,
        int(_near(rng, 2000, 0.6)),
        _near(rng, 1, 0.8),
        float(rng.choice([0.0, 0.5, 1.0])),
        _near(rng, 0.3, 1),
        float(rng.choice([0.0, 0.8])),
    )


def drawn(rng: Rng) -> Loop:
    """Held out: tiers and programs drawn at random."""
    tiers = [
        replace(DRAM, pages=int(_near(rng, 8000)), bandwidth=_near(rng, 80e9, 0.6)),
        replace(HBM, pages=int(_near(rng, 5000, 0.8)), bandwidth=_near(rng, 300e9, 0.6)),
        replace(CXL, latency_ns=_near(rng, 350, 0.4), bandwidth=_near(rng, 40e9, 0.6)),
    ]
    programs = [
        Program(
            [_drawn_array(f"{p}{a}", rng) for a in range(3)],
            int(rng.integers(4, 32)),
            _near(rng, 20, 0.8),
        )
        for p in range(3)
    ]
    loop = _loop(tiers, programs, rng)
    loop.run(30)
    return loop


def _lines(machine: LineMachine, where: dict[str, list[int]], rng: Rng, seconds: float) -> Loop:
    marks = watermarks(low_watermark=0.0075, high_watermark=0.015, min_residency_s=1.0)
    loop = LineLoop(machine, CostPolicy(cost_settings(watermarks=marks, epoch_s=0.15)))
    loop.place(where)
    loop.begin_at({a.name: int(rng.integers(a.pages * LINES)) for a in machine.arrays})
    loop.run(seconds)
    return loop


def _lab(dram: int, hbm: int) -> list[SimTier]:
    return [
        SimTier(MemoryKind.DRAM, dram, 118, 2e9),
        SimTier(MemoryKind.HBM, hbm, 130, 8e9),
        SimTier(MemoryKind.CXL, 1024 * MIB, 430, 0.5e9),
    ]


def lab_streams(rng: Rng) -> Loop:
    """One CPU: four equal streams in four parts each that DRAM alone does not bear."""
    dram, _, cxl = _lab(64 * MIB, 0)
    names = [f"s{stream}.{part}" for stream in range(4) for part in range(4)]
    arrays = [LineArray(name, 2 * MIB, 4, instructions=2) for name in names]
    return _lines(LineMachine([dram, cxl], arrays, 8192), {a.name: [0] for a in arrays}, rng, 5)


def lab_uneven(rng: Rng) -> Loop:
    """One CPU, held out: streams of drawn sizes and rates in two or three parts."""
    dram, _, cxl = _lab(64 * MIB, 0)
    arrays = [
        LineArray(
            f"s{i}.{p}", int(rng.integers(1, 6)) * MIB, int(rng.integers(2, 9)), instructions=2
        )
        for i in range(4)
        for p in range(int(rng.integers(2, 4)))
    ]
    return _lines(LineMachine([dram, cxl], arrays, 8192), {a.name: [0] for a in arrays}, rng, 5)


def lab_analytics(rng: Rng) -> Loop:
    """One CPU: stream analytics with HBM of 5 to 20 %."""
    keys = [
        LineArray(name, 3 * MIB, count, every=every, instructions=4)
        for name, count, every in (("keys", 16, 2), ("index", 16, 2), ("merge", 12, 1))
    ]
    arrays = [*keys, LineArray("records", 39 * MIB, 6, random=True, instructions=4)]
    tiers = _lab(64 * MIB, int(rng.uniform(2.5, 10) * MIB))
    return _lines(LineMachine(tiers, arrays, 8192), {a.name: [0, 2] for a in arrays}, rng, 5)


LOADS: dict[str, tuple[Callable[[Rng], Loop], bool]] = {
    "triad": (triad, False),
    "overload": (overload, False),
    "analytics": (analytics, False),
    "liar": (liar, False),
    "restless": (restless, True),
    "tenants": (tenants, True),
    "skewed": (skewed, False),
    "drawn": (drawn, False),
    "lab streams": (lab_streams, False),
    "lab uneven": (lab_uneven, False),
    "lab analytics": (lab_analytics, False),
}
"""Each load, and whether it changes all the time, so that all of its run counts."""
