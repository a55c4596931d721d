# SPDX-License-Identifier: Apache-2.0
"""Programs with their room, their best static placements and tierd's run, for `HbmLab`.

A case's statics are what a search tries: whole arrays and shares of them. `least` runs them all.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from statistics import median
from typing import Any

from hbmlab import CONFIG, CXL, DRAM, HBM, RESTLESS, ROOT, HbmLab

MIB = 1 << 20
STATIC_SWEEPS = "7"
FOOTPRINT = 32 * MIB
HBM_KEPT = int(2.75 * MIB)
"""Of what is free in HBM, what tierd's high watermark and its own noise leave."""
SLOWER = CONFIG.format(latency_model="loaded")
for _was, _is in (
    ('\ninterval = "50ms"', '\ninterval = "200ms"'),
    ('half_life = "250ms"', 'half_life = "500ms"'),
    ('feedback_interval = "150ms"', 'feedback_interval = "400ms"'),
):
    assert _was in SLOWER
    SLOWER = SLOWER.replace(_was, _is)
"""Where all of DRAM's bandwidth must be in use: a pass takes 40 ms of the guest's one CPU."""


@dataclass(frozen=True)
class Case:
    """One program in so much memory.

    Attributes:
        name: of the case. program: of build/workloads.
        free: node → bytes that ballast leaves.
        statics: name → placement as of guest_hbm.py, None for first touch.
        sweeps: of tierd's run.
        first: words before the command, by the name of a static.
        weights: of interleaving, by the name of a static.
        config: of tierd.
    """

    name: str
    program: str
    free: Mapping[int, int]
    statics: Mapping[str, Mapping[str, Any] | None]
    sweeps: int
    first: Mapping[str, Sequence[str]] = field(default_factory=dict)
    weights: Mapping[str, Sequence[int]] = field(default_factory=dict)
    config: str = CONFIG.format(latency_model="loaded")

    def _command(self, sweeps: int | str, first: Sequence[str] = ()) -> list[str]:
        program = str(ROOT / "build/workloads" / self.program)
        return [*first, program, "--size", str(FOOTPRINT), "--work", str(sweeps)]

    def static(self, lab: HbmLab, name: str) -> dict[str, Any]:
        """Figures of one of the statics."""
        command = self._command(STATIC_SWEEPS, self.first.get(name, ()))
        weights = self.weights.get(name)
        return lab.run(command, free=self.free, place=self.statics[name], weights=weights)

    def tierd(self, lab: HbmLab) -> dict[str, Any]:
        """Figures of a run with tierd."""
        return lab.run(self._command(self.sweeps), free=self.free, config=self.config)


SPOTS_BYTES = 96 * MIB
SPOTS_SWEEPS = "900"
"""A surprise, as its own moves may be, has the policy wait for three seconds."""


def spots(lab: HbmLab) -> dict[str, Any]:
    """Figures of tierd with 2 MiB folios in CXL memory of which 16 pages each are in use.

    Heat lives longer than elsewhere and samples are more, so that single pages are known well.
    """
    config = SLOWER.replace('half_life = "500ms"', 'half_life = "1500ms"')
    assert config != SLOWER
    program = str(ROOT / "build/workloads/spots")
    return lab.run(
        [program, "--huge", "--size", str(SPOTS_BYTES), "--work", SPOTS_SWEEPS],
        # What the daemon reads for the first time after a boot fills some MiB of DRAM.
        free={DRAM: 18 * MIB, HBM: 4 * MIB},
        place={"spots": CXL},
        config=config,
        period=99,
    )


def sweep_ms(figures: Mapping[str, Any]) -> float:
    """Of the last five, which run when the daemon has ended; of both tenants together."""
    others = figures["others"] or [0.0] * len(figures["sweeps"])
    both = [one + other for one, other in zip(figures["sweeps"], others, strict=True)]
    return 1e3 * float(median(both[-5:]))


def _scattered(names: Sequence[str], share: float) -> dict[str, Any]:
    return {name: [[CXL, share, True]] for name in names}


def _filled(sizes: Mapping[str, int], room: int) -> dict[str, Any]:
    """Arrays of so many bytes into HBM, one after another, as far as there is room."""
    placed = {}
    for name, size in sizes.items():
        share = min(1.0, room / size)
        placed[name] = [[HBM, share]]
        room -= int(share * size)
    return placed


_STREAMS = ("s0", "s1", "s2", "s3")
STREAMS = Case(
    "four streams, DRAM and CXL",
    "streams",
    {DRAM: 48 * MIB, HBM: 2 * MIB},
    {
        "all in DRAM": None,
        "one in CXL": {"s0": CXL},
        "half of one in CXL": {"s0": [[CXL, 0.5]]},
        "three quarters of one in CXL": {"s0": [[CXL, 0.75]]},
        **{f"{s:.0%} of all in CXL": _scattered(_STREAMS, s) for s in (0.05, 0.1, 0.15, 0.2)},
    },
    sweeps=600,
    config=SLOWER,
)


INTERLEAVED = "interleaved by bandwidth"
BY_BANDWIDTH = (4, 16, 1)
"""Of the nodes of hbm-bench."""
_INTERLEAVE = (sys.executable, str(ROOT / "tests/vm/guest_interleave.py"))


def _few_fit(
    name: str, program: str, share: float, sweeps: int, wholes: Mapping[str, Mapping[str, int]]
) -> Case:
    """DRAM for all, HBM of a share of the footprint.

    Args:
        name: of the case. program: of build/workloads. sweeps: of tierd's run.
        share: of the footprint, 0 to 1.
        wholes: name of a static → the arrays that go into HBM as far as there is room, and
            their bytes, the first first.
    """
    room = int(share * FOOTPRINT)
    return Case(
        f"{name}, HBM {share:.0%}",
        program,
        {DRAM: 44 * MIB, HBM: room + HBM_KEPT},
        {
            "DRAM only": None,
            "HBM first": None,
            INTERLEAVED: None,
            **{static: _filled(sizes, room) for static, sizes in wholes.items()},
        },
        sweeps=sweeps,
        first={"HBM first": ("numactl", f"--preferred={HBM}"), INTERLEAVED: _INTERLEAVE},
        weights={INTERLEAVED: BY_BANDWIDTH},
    )


def tenants(share: float) -> Case:
    """Two tenants; HBM of a share of the footprint."""
    wholes = {
        "stream in HBM": dict.fromkeys(("b", "a"), FOOTPRINT // 4),
        "chase in HBM": {"chase": FOOTPRINT // 2},
    }
    return _few_fit("two tenants", "tenants", share, 140, wholes)


def analytics(share: float) -> Case:
    """Sort-and-merge; HBM of a share of the footprint."""
    wholes = {
        "keys in HBM": dict.fromkeys(("k0", "k1"), FOOTPRINT // 8),
        "records in HBM": {"records": FOOTPRINT * 3 // 4},
    }
    return _few_fit("stream analytics", "analytics", share, 120, wholes)


def mixed_placements() -> dict[str, dict[str, int]]:
    """All placements of `mixed`'s whole arrays in 26 MiB of DRAM and 34 MiB of HBM.

    The triad's arrays take turns, so that it does not matter which of them is where.
    """
    found = {}
    for triad in combinations_with_replacement((HBM, DRAM, CXL), 3):
        for chase in (DRAM, HBM, CXL):
            nodes = [*triad, chase]
            if nodes.count(DRAM) <= 3:
                name = ", ".join(("DRAM", "HBM", "CXL")[node] for node in nodes)
                found[name] = dict(zip(("a", "b", "c", "chase"), nodes, strict=True))
    return found


def restless(lab: HbmLab, minutes: float, enough_s: float | None = None) -> dict[str, Any]:
    """Figures of a run of so many guest minutes under a load that never rests.

    It is ended before if the host has spent `enough_s` seconds; the figures say how long it was.
    """
    program = str(ROOT / "build/workloads/restless")
    return lab.run(
        [program, "--size", "64M", "--work", str(int(minutes * 60_000))],
        free={DRAM: 26 * MIB, HBM: 20 * MIB, CXL: 96 * MIB},
        config=RESTLESS.format(tick_s=RESTLESS_TICK_S),
        period=499,
        poll_s=2.0,
        enough_s=enough_s,
        limit_s=1200 + minutes * 300,
    )


RESTLESS_TICK_S = 2
