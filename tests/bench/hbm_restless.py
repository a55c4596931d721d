# SPDX-License-Identifier: Apache-2.0
"""The cost policy under random load for long, on made-up memory.

Prints one JSON object for each seed: what the policy and the simulator's own truth say of
gains, how often pages moved, and whether watermarks held. Ends with 1 if a bound of
docs/concepts/hbm.md did not.

usage: hbm_restless.py [--seed N ...] [MINUTES]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from policies import cost_settings, watermarks
from tierloop import restless
from tiersim import SimTier

from tierd.core.tiermap import MemoryKind
from tierd.policy.cost import CostPolicy

TIERS = (
    SimTier(MemoryKind.DRAM, 6000, 118, 60e9),
    SimTier(MemoryKind.HBM, 10_000, 130, 400e9),
    SimTier(MemoryKind.CXL, 20_000, 430, 20e9),
)
RESIDENCY_S, EVERY_S = 5.0, 30.0


def half_hour(seed: int, minutes: float) -> dict[str, Any]:
    """Figures of one run, and whether they keep the bounds."""
    policy = CostPolicy(cost_settings(watermarks=watermarks(min_residency_s=RESIDENCY_S)))
    loop = restless(TIERS, policy, seed, minutes * 60, EVERY_S)
    gained = np.array([tick.gained for tick in loop.history])
    spent = np.array([tick.spent_s for tick in loop.history])
    window = min(len(gained), int(60 / loop.tick_s))
    minute = np.convolve(gained * policy.settings.horizon_s - spent, np.ones(window), "valid")
    moves = loop.moves_of[loop.node >= 0]
    low = np.floor([0.02 * tier.pages for tier in loop.machine.tiers])
    free = np.array([tick.free for tick in loop.history[10:]])
    told = {
        "seed": seed,
        "minutes": minutes,
        "epochs": len(policy.outcomes.epochs),
        "rank_correlation": policy.outcomes.correlation,
        "worst_minute_s": float(minute.min()),
        "minutes_lost_share": float((minute < 0).mean()),
        "moves_a_page": float(moves.mean()),
        "most_moves_of_a_page": int(moves.max()),
        "most_by_residency": minutes * 60 / RESIDENCY_S,
        "watermarks_kept": bool(np.all(free >= low)),
        "alarms": policy.outcomes.alarms,
    }
    told["held"] = bool(
        told["watermarks_kept"]
        and minute.min() >= 0
        and policy.outcomes.correlation >= 0.7
        and moves.max() <= told["most_by_residency"]
    )
    return told


def main() -> int:
    """0 if all bounds hold with all seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("minutes", nargs="?", type=float, default=30.0)
    parser.add_argument("--seed", type=int, nargs="+", default=[4], help="of the load")
    args, held = parser.parse_args(), True
    for seed in args.seed:
        told = half_hour(seed, args.minutes)
        print(json.dumps(told), flush=True)
        held = held and told["held"]
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
