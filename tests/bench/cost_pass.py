# SPDX-License-Identifier: Apache-2.0
"""What a pass of the cost policy costs beside one of the watermark policy: `cost_pass.py [PAGES]`.

A heat table of so many tracked pages (4 Mi, 16 GiB, if not said) on DRAM, HBM and CXL, of which a
tenth is accessed. Prints one JSON object: CPU milliseconds of a decision, median of nine.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from policies import cost_settings, watermarks
from tiersim import SimTier, tier_map

from tierd.core.access import AccessBatch
from tierd.core.pagekey import PAGE_SIZE
from tierd.core.tiermap import MemoryKind, NodeUsage
from tierd.hotness.pattern import PatternTracker
from tierd.hotness.table import HeatTable
from tierd.policy.cost import CostPolicy
from tierd.policy.inputs import Inputs, LoadSource, Policy, Traffic
from tierd.policy.limits import Budget
from tierd.policy.watermark import WatermarkPolicy

TICKS = 9


def main() -> int:
    """Always 0."""
    pages = int(sys.argv[1]) if len(sys.argv) > 1 else 4 << 20
    sizes = (pages // 4, pages // 4, pages - pages // 2)
    kinds = (MemoryKind.DRAM, MemoryKind.HBM, MemoryKind.CXL)
    figures = ((118, 200e9), (130, 800e9), (430, 60e9))
    tiers = tier_map(
        [
            SimTier(kind, int(size * 1.05), *each)
            for kind, size, each in zip(kinds, sizes, figures, strict=True)
        ],
        64,
    )
    told: dict[str, float] = {"pages": pages}
    made: dict[str, Policy] = {
        "watermark": WatermarkPolicy(watermarks()),
        "cost": CostPolicy(cost_settings()),
    }
    for name, policy in made.items():
        told[f"{name}_ms"] = round(1e3 * median(_decisions(policy, tiers, pages, sizes)), 1)
    print(json.dumps(told))
    return 0


def _decisions(policy: Policy, tiers: object, pages: int, sizes: tuple[int, ...]) -> list[float]:
    rng, now = np.random.default_rng(1), 10**9
    heat, patterns = HeatTable(capacity_pages=2 * pages, half_life_s=5.0), PatternTracker(5.0)
    heat.advance(now)
    node = np.repeat(np.arange(3, dtype=np.int16), sizes)
    every = np.arange(pages, dtype=np.uint64)
    heat.place(every, node, np.zeros(pages, np.uint8), insert_on=range(3))
    usage = {
        n: NodeUsage(int(s * 1.05) * PAGE_SIZE, s // 20 * PAGE_SIZE, 0) for n, s in enumerate(sizes)
    }
    spent = []
    for _ in range(TICKS):
        now += 10**9
        page = (rng.integers(0, pages // 10, 100_000) * 10).astype(np.uint64)
        ones = np.ones(len(page), np.float32)
        batch = AccessBatch(page, ones, now, "bench", ordered=True)
        heat.ingest(batch)
        patterns.add(batch)
        traffic = Traffic(
            now,
            5.0,
            load={0: 100e9, 1: 50e9, 2: 30e9},
            source=dict.fromkeys(range(3), LoadSource.UNCORE),
            lines_per_count=20_000.0,
            patterns=patterns.snapshot(),
        )
        inputs = Inputs(heat, tiers, usage, Budget(200_000_000), traffic=traffic)  # type: ignore[arg-type]
        begun = time.process_time()
        policy.decide(inputs)
        spent.append(time.process_time() - begun)
    return spent


if __name__ == "__main__":
    sys.exit(main())
