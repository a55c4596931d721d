# SPDX-License-Identifier: Apache-2.0
"""Programs on DRAM, HBM and CXL in the lab's modelled time, in one boot; one line of JSON a run.

`mixed`: a triad beside a pointer chase, of which first touch fills DRAM with the triad's arrays
and leaves HBM to the chase, the wrong way round; by the cost policy, by idle latency alone, and
by all placements of whole arrays (`search`). `streams`, `tenants` and `analytics` (hbmcases.py):
static placements, and tierd. `restless`: what moves did to single pages and to watermarks under
load that is never at rest. Nobody tells the daemon what is what.

Milliseconds are those of a sweep, the median of the last five, which run after the daemon has
ended and so show what its placement is worth.

usage: hbm_lab.py [--sweeps N] [--minutes N] [--enough S] [--shares S ... --] [WHAT ...]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import hbmcases
import numpy as np
from hbmcases import MIB, Case, sweep_ms
from hbmlab import CONFIG, DRAM, HBM, ROOT, HbmLab

from tierd.policy.regression_window import rank_correlation

FREE = {DRAM: 26 * MIB, HBM: 34 * MIB}
"""The chase's 8 MiB and two of the triad's arrays of 8 MiB fit DRAM, all three of them HBM."""
MIXED = [str(ROOT / "build/workloads/mixed"), "--size", "32M", "--work"]
SHARES = [0.1, 0.2, 0.5]
WHAT = ("mixed", "search", "streams", "tenants", "analytics", "restless")


def tell(name: str, figures: Mapping[str, Any]) -> None:
    """Print one run."""
    told: dict[str, Any] = {"run": name, "free bytes by node": figures["free"]}
    if figures["sweeps"]:
        told["ms"] = round(sweep_ms(figures), 3)
        told["pages by node"] = figures["last"]
    if figures["others"]:
        told["chase_ms"] = round(1e3 * sorted(figures["others"][-5:])[2], 3)
    if daemon := figures["daemon"]:
        told["moved pages"] = daemon["totals"]["migration_results"]
        told["lost samples"] = daemon["lost"]
        told["epochs"] = len(daemon["epochs"])
        for key in ("alarms", "correlation", "pages"):
            told[key] = daemon[key]
    print(json.dumps(told), flush=True)


def tell_gains(lab: HbmLab) -> None:
    """Predicted and observed gains of all runs by the rule, together."""
    if not lab.epochs:
        return
    epochs = np.concatenate(lab.epochs)
    told = {
        "run": "gains of all runs by the rule",
        "epochs": len(epochs),
        "rank correlation": rank_correlation(epochs[:, 1], epochs[:, 2]),
        "least gain in a minute of each, s": lab.worst_s,
        "epochs that cost more than they gained, [end, predicted, observed, left]": [
            [round(figure, 6) for figure in epoch] for epoch in epochs.tolist() if epoch[3] < 0
        ],
    }
    print(json.dumps(told), flush=True)


def mixed(lab: HbmLab, sweeps: int) -> None:
    """First touch, and both ladders."""
    tell("mixed, first touch", lab.run([*MIXED, "7"], free=FREE))
    for latency_model in ("loaded", "idle"):
        config = CONFIG.format(latency_model=latency_model)
        figures = lab.run([*MIXED, str(sweeps)], free=FREE, config=config)
        tell(f"mixed, tierd by {latency_model}", figures)


def search(lab: HbmLab) -> None:
    """The best placements of whole arrays, and the worst."""
    found = {
        name: sweep_ms(lab.run([*MIXED, "7"], free=FREE, place=place))
        for name, place in hbmcases.mixed_placements().items()
    }
    order = sorted(found, key=lambda name: found[name])
    best = {name: round(found[name], 3) for name in order[:5] + order[-1:]}
    print(json.dumps({"run": "mixed, whole arrays", "tried": len(found), "ms": best}), flush=True)


def case(lab: HbmLab, which: Case) -> None:
    """All statics of a case, and tierd."""
    for name in which.statics:
        tell(f"{which.name}: {name}", which.static(lab, name))
    tell(f"{which.name}: tierd", which.tierd(lab))


def main() -> int:
    """One line of JSON for each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", choices=[*WHAT, []], default=list(WHAT))
    parser.add_argument("--sweeps", type=int, default=330, help="of mixed with tierd")
    parser.add_argument("--minutes", type=float, default=2.0, help="guest minutes of restless")
    parser.add_argument("--enough", type=float, help="host seconds that restless may take")
    parser.add_argument(
        "--shares", type=float, nargs="+", default=SHARES, help="of the footprint, of HBM"
    )
    args = parser.parse_args()
    subprocess.run(["make", "-s", "-C", ROOT / "fpga", "lab"], check=True)
    subprocess.run(["make", "-s", "-C", ROOT / "tests/workloads", "all"], check=True)
    subprocess.run(["make", "-s", "-C", ROOT / "tests/workloads/suite"], check=True)
    with HbmLab() as lab:
        for what in args.what:
            begun = time.monotonic()
            match what:
                case "mixed":
                    mixed(lab, args.sweeps)
                case "search":
                    search(lab)
                case "streams":
                    case(lab, hbmcases.STREAMS)
                    twice = replace(hbmcases.STREAMS, sweeps=2 * hbmcases.STREAMS.sweeps)
                    tell(f"{twice.name}: tierd, twice as many sweeps", twice.tierd(lab))
                case "restless":
                    tell("restless", hbmcases.restless(lab, args.minutes, args.enough))
                case _:
                    make = hbmcases.tenants if what == "tenants" else hbmcases.analytics
                    for share in args.shares:
                        case(lab, make(share))
            told = {"run": what, "host seconds": round(time.monotonic() - begun)}
            print(json.dumps(told), flush=True)
        tell_gains(lab)
    return 0


if __name__ == "__main__":
    sys.exit(main())
