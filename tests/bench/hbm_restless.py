# SPDX-License-Identifier: Apache-2.0
"""The cost policy under random load for long, on made-up memory: `hbm_restless.py [MINUTES]`.

Prints one JSON object: what the policy and the simulator's own truth say of gains, how often
pages moved, and whether watermarks held. Ends with 1 if a bound of docs/hbm.md did not.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from tierloop import restless
from tiersim import SimTier

from tierd.policy.cost import CostPolicy, CostSettings
from tierd.policy.watermark import WatermarkSettings
from tierd.tiermap import MemoryKind

TIERS = (
    SimTier(MemoryKind.DRAM, 6000, 118, 60e9),
    SimTier(MemoryKind.HBM, 10_000, 130, 400e9),
    SimTier(MemoryKind.CXL, 20_000, 430, 20e9),
)
RESIDENCY_S, EVERY_S, SEED = 5.0, 30.0, 4


def main() -> int:
    """0 if all bounds hold."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    policy = CostPolicy(CostSettings(watermarks=WatermarkSettings(min_residency_s=RESIDENCY_S)))
    loop = restless(TIERS, policy, SEED, minutes * 60, EVERY_S)
    gained = np.array([tick.gained for tick in loop.history])
    spent = np.array([tick.spent_s for tick in loop.history])
    window = min(len(gained), int(60 / loop.tick_s))
    minute = np.convolve(gained * policy.settings.horizon_s - spent, np.ones(window), "valid")
    moves = loop.moves_of[loop.node >= 0]
    low = np.floor([0.02 * tier.pages for tier in loop.machine.tiers])
    free = np.array([tick.free for tick in loop.history[10:]])
    told = {
        "minutes": minutes,
        "epochs": len(policy.outcomes.epochs),
        "rank_correlation": policy.outcomes.correlation,
        "worst_minute_s": float(minute.min()),
        "minutes_lost_share": float((minute < 0).mean()),
        "moves_a_page": float(moves.mean()),
        "most_moves_of_a_page": int(moves.max()),
        "most_by_residency": minutes * 60 / RESIDENCY_S,
        "watermarks_kept": bool(np.all(free >= low)),
        "stood_still": policy.outcomes.stood_still,
        "alarms": policy.outcomes.alarms,
    }
    print(json.dumps(told, indent=1))
    held = told["watermarks_kept"] and minute.min() >= 0 and policy.outcomes.correlation >= 0.7
    return 0 if held and moves.max() <= minutes * 60 / RESIDENCY_S else 1


if __name__ == "__main__":
    sys.exit(main())
