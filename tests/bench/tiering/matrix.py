# SPDX-License-Identifier: Apache-2.0
"""`make bench`, `bench-short`, `bench-quick`: runs the matrix and writes what came of it.

Cells that are in the result file are not run again, so a run can be stopped at any time and
taken up on another machine. Each is a boot of its own, which repeats bit for bit (sealed.py):
`--twice` has that checked. The oracle needs the counts of first touch with the same seed, which
is run again for it if it has to.

A seed gives other random numbers and another moment for the workload to begin. Whoever decides on
a mechanism needs several, the same ones with it and without it: `--seeds 1,2,3` and `--variant`
(variants.py). compare.py compares two folders.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plan import LENGTH, METHODS, OTHER_KERNELS, QUICK, planned, scaled
from report import write_report
from results import DEFAULTS, FILE, RETRY_SEED, Cell, Key, ResultFile, differences
from runner import LIMIT_S, SEED, Runner, end_on_sigterm
from variants import VARIANTS, placed
from versions import versions

from tierd_lab import Machine
from tierd_lab.host import find_kernel
from workloads import WORKLOADS, Workload

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "docs/research/benchmarks"


def show(cell: Cell, done: int, total: int, begun: float, host_s: float) -> None:
    """One line of progress."""
    took = (time.monotonic() - begun) / done
    left = took * (total - done)
    what = (
        f"{cell.seconds:8.3f} s, {cell.fast_share or 0:6.1%} served fast"
        if cell.seconds is not None
        else f"failed: {cell.why}"
    )
    print(
        f"[{done}/{total}] {cell.key.label}: {what} ({host_s:.0f} s; {left / 60:.0f} min left)",
        file=sys.stderr,
        flush=True,
    )


class Matrix:
    """Runs cells of workloads and keeps them.

    Args:
        twice: run each cell a second time, and see that it is the same.

    Attributes:
        different: cells of which two runs were not the same.
    """

    def __init__(
        self, runner: Runner, file: ResultFile, facts: dict[str, Any], *, twice: bool
    ) -> None:
        self._runner = runner
        self._file = file
        self._facts = facts
        self._twice = twice
        self.different: list[Key] = []

    def run(self, workload: Workload, key: Key) -> Cell:
        """Run a cell and keep it."""
        if placed(key.method, key.variant) and (workload, key.seed) not in self._runner.counted:
            again = self._run(workload, key._replace(method="first-touch"))
            if again.seconds is None:
                cell = Cell(*key[:2], why=f"no counts: {again.why}", seed=key.seed)
                self._file.add(cell)
                return cell
        cell = self._run(workload, key)
        self._file.add(cell)
        if self._twice:
            unlike = differences(cell, self._run(workload, key))
            if unlike:
                self.different.append(key)
                print(f"{key.label}: two runs differ in {', '.join(unlike)}", file=sys.stderr)
            else:
                print(f"{key.label}: two runs are the same", file=sys.stderr)
        return cell

    def _run(self, workload: Workload, key: Key) -> Cell:
        cell = self._runner.run(
            workload,
            key.method,
            variant=key.variant,
            seed=key.seed,
            pages=key.method == "first-touch",
        )
        cell.facts.update(self._facts)
        return cell


def run_matrix(
    file: ResultFile,
    workloads: Sequence[Workload],
    wanted: Sequence[Key],
    *,
    again: bool,
    twice: bool,
    limit_s: float,
    until: float,
    kernel: str | None = None,
) -> bool:
    """Run what is missing; True if every cell has a figure, and ran the same twice if asked to."""
    machine = Machine.load("bench")
    by_name = {workload.name: workload for workload in workloads}
    others = file.of_other_work({name: workload.work for name, workload in by_name.items()})
    if others:
        print(
            f"{len(others)} cells there have another amount of work ({others[0].label} "
            "is one): give another --folder, or the --scale that they ran with",
            file=sys.stderr,
        )
        return False
    missing = file.missing(wanted, again=again)
    print(f"{len(missing)} of {len(wanted)} cells to run", file=sys.stderr, flush=True)
    begun = time.monotonic()
    with Runner(machine, find_kernel(kernel), limit_s=limit_s) as runner:
        matrix = Matrix(runner, file, versions(machine, runner.kernel), twice=twice)
        for done, key in enumerate(missing, start=1):
            start = time.monotonic()
            if start > until:
                print("the time is up", file=sys.stderr)
                return False
            cell = matrix.run(by_name[key.workload], key)
            show(cell, done, len(missing), begun, time.monotonic() - start)
    return not matrix.different and all(file.cells[key].seconds is not None for key in wanted)


def seeds(text: str) -> list[int]:
    """Seeds with commas between them.

    Raises:
        ValueError: something else, which argparse tells.
    """
    found = list(dict.fromkeys(int(word) for word in text.split(",")))
    if not all(0 < seed < RETRY_SEED for seed in found):
        raise ValueError(text)
    return found


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--workload", action="append", choices=WORKLOADS, help="these only")
    add("--method", action="append", choices=(*METHODS, *OTHER_KERNELS), help="these only")
    add("--kernel", help="which to boot: a release or a file; the newest that is installed")
    add(
        "--variant",
        action="append",
        choices=VARIANTS,
        help="settings of tierd, of methods that they change: "
        + " ".join(f"{name}: {variant.what}" for name, variant in VARIANTS.items()),
    )
    add("--seeds", type=seeds, default=[SEED], help="samples of each cell: 1,2,3")
    add("--quick", action="store_true", help="one workload, three methods")
    add("--again", action="store_true", help="run failed cells again")
    add("--twice", action="store_true", help="run each cell twice: both have to be the same")
    add("--folder", type=Path, default=FOLDER, help="where results are kept")
    add("--scale", type=float, help=f"of the work; {LENGTH:g}, and 1 with --quick")
    add("--limit", type=float, default=LIMIT_S, help="host seconds for a cell")
    add("--for", dest="minutes", type=float, default=0, help="stop after so many")
    add("--report-only", action="store_true", help="write the report anew")
    return parser.parse_args()


def main() -> int:
    """0 if every cell that was asked for has a figure."""
    end_on_sigterm()
    args = arguments()
    names = args.workload or (["updates"] if args.quick else list(WORKLOADS))
    methods = args.method or (QUICK if args.quick else METHODS)
    scale = args.scale or (1.0 if args.quick else LENGTH)
    wanted = planned(names, methods, args.variant or [DEFAULTS], args.seeds)
    file = ResultFile(args.folder / FILE)
    whole = True
    try:
        if not args.report_only:
            whole = run_matrix(
                file,
                [scaled(WORKLOADS[name], scale) for name in names],
                wanted,
                again=args.again,
                twice=args.twice,
                limit_s=args.limit,
                kernel=args.kernel,
                until=time.monotonic() + args.minutes * 60 if args.minutes else float("inf"),
            )
    finally:
        if file.cells:
            write_report(args.folder, file.cells, wanted)
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
