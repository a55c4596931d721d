# SPDX-License-Identifier: Apache-2.0
"""Runs a cell several times, with one seed and with others, and says what came of it.

Runs with one seed have to be the same in everything but the host's own time. Runs with several tell
how much of a figure is the moment at which the cell started.

usage: repeat.py --workload moving --method tierd-neoprof [--seed 1 --seed 1 --seed 2 ...]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict

from matrix import METHODS
from results import Cell
from runner import Runner, end_on_sigterm

from tierd_lab import Machine
from workloads import WORKLOADS

OF_THE_HOST = ("host_s",)
"""Facts of a cell that are not the machine's."""


def figures(cell: Cell) -> str:
    """All of a cell that has to repeat, as a text."""
    known = asdict(cell)
    known["facts"] = {name: fact for name, fact in cell.facts.items() if name not in OF_THE_HOST}
    return json.dumps(known, sort_keys=True)


def differing(cells: Sequence[Cell]) -> list[int]:
    """Seeds of which two runs were not the same."""
    first: dict[int, str] = {}
    for cell in cells:
        first.setdefault(cell.facts["seed"], figures(cell))
    return sorted(
        {cell.facts["seed"] for cell in cells if figures(cell) != first[cell.facts["seed"]]}
    )


def spread(cells: Sequence[Cell]) -> str:
    """The seconds of different seeds in one line."""
    by_seed = {cell.facts["seed"]: cell.seconds or 0.0 for cell in cells}
    low, high = min(by_seed.values()), max(by_seed.values())
    mean = statistics.mean(by_seed.values())
    return (
        f"{len(by_seed)} seeds: {low:.3f} to {high:.3f} s, mean {mean:.3f}, "
        f"{(high - low) / mean:.1%} from the least to the most"
    )


def main() -> int:
    """0 if whatever ran twice was the same twice."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--method", choices=METHODS, required=True)
    parser.add_argument("--seed", type=int, action="append", help="1, 1, 2 and 3 if not given")
    args = parser.parse_args()
    workload, cells = WORKLOADS[args.workload], []
    with Runner(Machine.load("bench")) as runner:
        if args.method == "oracle":
            runner.run(workload, "first-touch", pages=True)
        for seed in args.seed or (1, 1, 2, 3):
            cell = runner.run(workload, args.method, seed=seed)
            if cell.seconds is None:
                print(f"seed {seed}: failed: {cell.why}")
                return 1
            told = f"seed {seed}: {cell.seconds:.9f} s, {sum(cell.instructions.values())} "
            told += f"instructions, {cell.promoted} promoted, {cell.demoted} demoted, "
            told += (
                f"requests {cell.facts['dump']}, {cell.facts['host_s']['done']:.0f} s of the host"
            )
            print(told, flush=True)
            cells.append(cell)
    print(spread(cells))
    different = differing(cells)
    if different:
        print(f"two runs differ: seed {', '.join(map(str, different))}")
    elif len(cells) > len({cell.facts["seed"] for cell in cells}):
        print("runs with one seed are the same")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
