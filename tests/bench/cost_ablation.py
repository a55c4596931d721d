# SPDX-License-Identifier: Apache-2.0
"""What each mechanism of the cost policy is worth, on simulated memory: one off at a time.

Every run is a load of tests/support/cost_loads.py, a seed, and a mechanism that is switched off.
What is compared, in pairs of the same load and seed, is the rate at which programs go (geometric
mean of all programs) in the second half of the run, with the copies that moves take.

usage: cost_ablation.py [--off NAME ...] [--load NAME ...] [--seed N ...] [--jobs N] [--json]
       cost_ablation.py --table FILE ...      tables of what --json printed
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from cost_loads import LOADS
from lineloop import LineLoop
from tierloop import Loop

from tierd.core.tuning import COST, FEEDBACK, REGRESSION, TRIAL
from tierd.hotness import pattern
from tierd.policy import demand, pageset
from tierd.policy.cost_decision import CostRound
from tierd.policy.demand import ResidualLoad
from tierd.policy.placement import Search
from tierd.policy.regression_window import RegressionWindow


def _as_told(_: ResidualLoad, model: Any, known: Any, *__: object) -> Any:
    silent = np.array([source == "none" for source in model.source])
    return replace(model, load=np.where(silent, known, model.load))


def _own_heat(pages: Any, *_: object) -> Any:
    heat = pages.heat.astype(np.float64)
    return heat, heat / (pageset.sizes(pages) // 4096)


def _here_only(search: Search) -> Iterator[Any]:
    yield search._here


SERIES = (RegressionWindow, "add", lambda *_: None)
ALARM = (FEEDBACK, "alarm_loss", 9.0)
TRIALS = (TRIAL, "overloaded_factor", math.inf)
PROMISE = (TRIAL, "model_min_gain", 0.0)
WHOLE = (CostRound, "_make_whole", lambda _: None)
RESIDUAL = (ResidualLoad, "follow", _as_told)
MECHANISMS: dict[str, list[tuple[Any, str, Any]]] = {
    "nothing": [],
    "trials": [TRIALS],
    "least promise": [PROMISE],
    "trials and least promise": [TRIALS, PROMISE],
    "series of losses": [SERIES],
    "alarm after one epoch": [ALARM],
    "both roll-backs": [SERIES, ALARM],
    "derating": [(FEEDBACK, "derating_range", (1.0, 1.0))],
    "ramp-up": [(FEEDBACK, "first_line_fraction", 1.0)],
    "noise estimate": [(REGRESSION, "standard_deviations", 0.0)],
    "residual load": [RESIDUAL],
    "pause after a change": [(COST, "residual_load_fraction", math.inf)],
    "whole regions": [WHOLE],
    "load step": [(COST, "load_step", 9.0)],
    "starts": [(Search, "_beginnings", _here_only)],
    "mean prices": [(COST, "gradient_points", 1)],
    "smoothed heat": [(demand, "_smoothed", _own_heat)],
    "shared counts": [(pattern, "_shared", lambda _, counted, __: counted.copy())],
    "five heuristics": [TRIALS, PROMISE, SERIES, WHOLE, RESIDUAL],
    "all": [TRIALS, PROMISE, SERIES, WHOLE, RESIDUAL, ALARM],
}
"""What is switched off, by putting something else in the place of an attribute."""


def measure(off: str, load: str, seed: int) -> dict[str, Any]:
    """Figures of one run."""
    rates: list[Any] = []
    found, changes = LOADS[load]
    with ExitStack() as stack:
        for where, name, value in MECHANISMS[off]:
            stack.enter_context(patch.object(where, name, value))
        stack.enter_context(patch.object(Loop, "_gained", lambda *_: 0.0))  # of no use here, slow
        for kind in (Loop, LineLoop):
            stack.enter_context(patch.object(kind, "_advance", _noting(kind._advance, rates)))
        loop = found(np.random.default_rng([seed, *map(ord, load)]))
    speed = np.log(np.array(rates)).mean(axis=1)
    late = speed[len(speed) // 8 if changes else len(speed) // 2 :]
    return {
        "off": off,
        "load": load,
        "seed": seed,
        "log_rate": float(late.mean()),
        "worst": float(math.exp(speed.min() - speed[0])),
        "moves": sum(tick.moved for tick in loop.history),
    }


def _noting(advance: Callable[[Any], Any], rates: list[Any]) -> Callable[[Any], Any]:
    def wrapped(loop: Any) -> Any:
        found = advance(loop)
        rates.append(found[0])
        return found

    return wrapped


def _cell(values: list[float]) -> str:
    """Mean and two standard errors, in percent."""
    error = 2 * np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{np.mean(values):+.1f} ± {error:.1f}"


def table(runs: list[dict[str, Any]]) -> Iterator[str]:
    """Markdown: the change of the rate in percent without each mechanism, and of moves."""
    found = {(r["off"], r["load"], r["seed"]): r for r in runs}
    loads = [load for load in LOADS if any(r["load"] == load for r in runs)]
    yield "| without | " + " | ".join([*loads, "all loads", "moves"]) + " |"
    yield "|---" * (len(loads) + 3) + "|"
    for off in MECHANISMS:
        row, every, moves = [off], [], []
        for load in loads:
            pairs = [
                (r, found["nothing", load, r["seed"]])
                for r in runs
                if (r["off"], r["load"]) == (off, load) and ("nothing", load, r["seed"]) in found
            ]
            changes = [100 * math.expm1(a["log_rate"] - b["log_rate"]) for a, b in pairs]
            row.append(_cell(changes) if changes else "")
            every += changes
            moves += [(a["moves"], b["moves"]) for a, b in pairs]
        if every and off != "nothing":
            ratio = sum(a for a, _ in moves) / max(1, sum(b for _, b in moves))
            yield f"| {' | '.join(row)} | {_cell(every)} | {ratio:.2f} |"


def main() -> int:
    """Always 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--off", nargs="+", choices=MECHANISMS, default=list(MECHANISMS))
    parser.add_argument("--load", nargs="+", choices=LOADS, default=list(LOADS))
    parser.add_argument("--seed", type=int, nargs="+", default=range(5))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one object a run, no table")
    parser.add_argument("--table", nargs="+", type=Path, help="files of --json; nothing is run")
    args = parser.parse_args()
    if args.table:
        texts = [line for path in args.table for line in path.read_text().splitlines()]
        print(*table([json.loads(text) for text in texts]), sep="\n")
        return 0
    todo = [(o, w, s) for s in args.seed for o in args.off for w in args.load]
    with ProcessPoolExecutor(args.jobs) as pool:
        runs = []
        for run in pool.map(measure, *zip(*todo, strict=True)):
            runs.append(run)
            if args.json:
                print(json.dumps(run), flush=True)
    if not args.json:
        print(*table(runs), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
