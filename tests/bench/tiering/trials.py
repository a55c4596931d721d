# SPDX-License-Identifier: Apache-2.0
"""`tierd trial` against the benchmark: does it find the gain that the benchmark's cells have?

A trial runs beside a workload without end, on the machine and with the memory of the workload's
cells. The benchmark's two cells, first touch and accessed bits, give the gain that the trial should
find, but for the way to the placement: it is a part of the cell, and before a trial's windows.
Cells that are in the folder's file are not run again. The table compares both.

usage: trials.py [--workload NAME ...] [--seeds 1,2,3] [--trials-only] [--folder F] [--limit S]
                 [--report-only]
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from matrix import seeds
from plan import LENGTH, scaled
from results import FILE, Cell, Key, ResultFile
from runner import Runner, end_on_sigterm
from versions import versions

from tierd_lab import Machine
from workloads import WORKLOADS

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "docs/research/benchmarks/trial"
TRIAL = ("trial-scan", "trial")
ENDLESS = ("updates", "stencil", "redis")
"""Workloads that know --endless; moving does as well, whose hot set moves all the time then."""
LIMIT_S = 7200.0
"""Host seconds for a trial: about 110 s of the guest, which took 8 to 24 s each on a busy host."""
HEADER = """\
| workload | seed | benchmark's gain | trial's gain | interval | tiering | CPU of the service |
|---|---:|---:|---:|---|---|---:|
"""


def keys(workloads: list[str], samples: list[int]) -> list[Key]:
    """The cells: all of one seed first."""
    return [
        key
        for seed in samples
        for name in workloads
        for key in (
            Key(name, *TRIAL, seed),
            Key(name, "first-touch", seed=seed),
            Key(name, "tierd-scan", seed=seed),
        )
    ]


def row(name: str, seed: int, cells: dict[Key, Cell]) -> str:
    """A workload and seed of the table."""
    trial, *pair = (cells.get(key) for key in keys([name], [seed]))
    gain = "-"
    if all(cell is not None and cell.seconds for cell in pair):
        untiered, tiered = (cell.seconds or 0.0 for cell in pair if cell is not None)
        gain = f"{untiered / tiered - 1:+.1%}"
    if trial is None or trial.why:
        return f"| {name} | {seed} | {gain} | - | - | {trial.why if trial else '-'} | - |\n"
    told = trial.facts["method"]["trial"]
    high = "any" if told["high"] is None else f"{told['high']:+.1%}"
    interval = f"{told['low']:+.1%} to {high}"
    return (
        f"| {name} | {seed} | {gain} | {told['gain']:+.1%} | {interval} | {told['answer']} | "
        f"{told['cpu_share']:.1%} |\n"
    )


def main() -> int:
    """0 if every cell has a figure."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--workload", action="append", choices=ENDLESS)
    add("--seeds", type=seeds, default=[1])
    add("--folder", type=Path, default=FOLDER)
    add("--limit", type=float, default=LIMIT_S, help="host seconds for a cell")
    add("--trials-only", action="store_true", help="without the benchmark's own cells")
    add("--report-only", action="store_true")
    args = parser.parse_args()
    names = args.workload or list(ENDLESS)
    wanted = [
        key for key in keys(names, args.seeds) if key.method == TRIAL[0] or not args.trials_only
    ]
    file = ResultFile(args.folder / FILE)
    if not args.report_only:
        machine = Machine.load("bench")
        with Runner(machine, limit_s=args.limit) as runner:
            facts = versions(machine, runner.kernel)
            for key in file.missing(wanted, again=True):
                workload = scaled(WORKLOADS[key.workload], LENGTH)
                cell = runner.run(workload, key.method, variant=key.variant, seed=key.seed)
                cell.facts.update(facts)
                # The curve of a trial has a point for each interval of a minute.
                file.add(replace(cell, curve=[]) if key.method == TRIAL[0] else cell)
                print(f"{key.label}: {cell.why or cell.seconds}", file=sys.stderr, flush=True)
    table = "".join(row(name, seed, file.cells) for name in names for seed in args.seeds)
    print(HEADER + table, end="")
    return 0 if all(key in file.cells and not file.cells[key].why for key in wanted) else 1


if __name__ == "__main__":
    sys.exit(main())
