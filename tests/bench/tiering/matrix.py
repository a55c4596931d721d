# SPDX-License-Identifier: Apache-2.0
"""`make bench`, `bench-short`, `bench-quick`: runs the matrix and writes what came of it.

Cells that are in the result file are not run again, so a run can be stopped at any time and
taken up on another machine. Each is a boot of its own, which repeats bit for bit (sealed.py). The
oracle needs the counts of first touch, which is run again for it if it has to.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from report import LENGTH, write_report
from results import Cell, ResultFile
from runner import LIMIT_S, SEED, Runner, end_on_sigterm

from tierd_lab import Machine
from tierd_lab.host import find_kernel, find_qemu, qemu_version
from workloads import WORKLOADS, Workload

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "docs/benchmarks"
WAVES = (
    ("first-touch", "oracle", "numa-balancing-1-3s", "tierd-neoprof"),
    ("numa-balancing", "tierd-scan"),
    ("damon", "tierd-damon"),
    ("pebs-weak", "pebs-histogram", "pte-scan", "all-slow", "all-fast"),
)
"""Methods in the order in which they run: each wave over all workloads, what says most first."""
METHODS = tuple(method for wave in WAVES for method in wave)
QUICK = ("first-touch", "oracle", "tierd-neoprof")


def versions(machine: Machine) -> dict[str, Any]:
    """What the cells run with."""
    kernel, system = find_kernel(), platform.freedesktop_os_release()["PRETTY_NAME"]
    found: dict[str, Any] = {
        "kernel": kernel.version,
        "qemu": qemu_version(find_qemu()),
        "python": platform.python_version(),
        "host": f"{platform.machine()}, {os.cpu_count()} CPUs, {system}",
        "machine": machine.name,
    }
    for package in ("tierd", "damo", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    commit = subprocess.run(
        ["git", "-C", ROOT, "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    found["source"] = commit.stdout.strip() or "unknown"
    return found


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
        f"[{done}/{total}] {cell.workload} / {cell.method}: {what} "
        f"({host_s:.0f} s; {left / 60:.0f} min left)",
        file=sys.stderr,
        flush=True,
    )


class Matrix:
    """Runs cells of workloads and keeps them."""

    def __init__(self, runner: Runner, file: ResultFile, facts: dict[str, Any]) -> None:
        self._runner = runner
        self._file = file
        self._facts = facts

    def run(self, workload: Workload, method: str) -> Cell:
        """Run a cell and keep it."""
        if method == "oracle" and workload not in self._runner.counted:
            again = self._run(workload, "first-touch")
            if again.seconds is None:
                cell = Cell(workload.name, method, why=f"no counts: {again.why}")
                self._file.add(cell)
                return cell
        cell = self._run(workload, method)
        self._file.add(cell)
        return cell

    def _run(self, workload: Workload, method: str) -> Cell:
        cell = self._runner.run(workload, method, pages=method == "first-touch")
        cell.facts.update(self._facts)
        return cell


def in_order(
    workloads: Sequence[Workload], methods: Sequence[str]
) -> Iterator[tuple[Workload, str]]:
    """The cells, wave by wave."""
    for wave in WAVES:
        for workload in workloads:
            for method in wave:
                if method in methods:
                    yield workload, method


def run_matrix(
    file: ResultFile,
    workloads: Sequence[Workload],
    methods: Sequence[str],
    *,
    again: bool,
    limit_s: float,
    until: float,
    seed: int,
) -> bool:
    """Run what is missing; True if every cell has a figure."""
    machine = Machine.load("bench")
    others = file.of_other_work({workload.name: workload.work for workload in workloads})
    if others:
        print(
            f"{len(others)} cells there have another amount of work ({' / '.join(others[0])} "
            "is one): give another --folder, or the --scale that they ran with",
            file=sys.stderr,
        )
        return False
    wanted = [(workload.name, method) for workload in workloads for method in methods]
    missing = set(file.missing(wanted, again=again))
    print(f"{len(missing)} of {len(wanted)} cells to run", file=sys.stderr, flush=True)
    begun, done = time.monotonic(), 0
    with Runner(machine, limit_s=limit_s, seed=seed) as runner:
        matrix = Matrix(runner, file, versions(machine))
        for workload, method in in_order(workloads, methods):
            if (workload.name, method) not in missing:
                continue
            if time.monotonic() > until:
                print("the time is up", file=sys.stderr)
                return False
            start = time.monotonic()
            cell = matrix.run(workload, method)
            done += 1
            show(cell, done, len(missing), begun, time.monotonic() - start)
    return all(file.cells[key].seconds is not None for key in wanted)


def scaled(workload: Workload, scale: float) -> Workload:
    """The workload with more or less to do."""
    return Workload(
        workload.name,
        max(1, round(workload.work * scale)),
        workload.what,
        workload.size,
        workload.fast,
    )


def main() -> int:
    """0 if every cell that was asked for has a figure."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="these only")
    parser.add_argument("--method", action="append", choices=METHODS, help="these only")
    parser.add_argument("--quick", action="store_true", help="one workload, three methods")
    parser.add_argument("--again", action="store_true", help="run failed cells again")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where results are kept")
    parser.add_argument("--scale", type=float, help=f"of the work; {LENGTH:g}, and 1 with --quick")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="host seconds for a cell")
    parser.add_argument("--seed", type=int, default=SEED, help="another sample of all cells")
    parser.add_argument("--for", dest="minutes", type=float, default=0, help="stop after so many")
    parser.add_argument("--report-only", action="store_true", help="write the report anew")
    args = parser.parse_args()
    names = args.workload or (["updates"] if args.quick else list(WORKLOADS))
    methods = args.method or (QUICK if args.quick else METHODS)
    scale = args.scale or (1.0 if args.quick else LENGTH)
    file = ResultFile(args.folder / "tiering.jsonl")
    whole = True
    try:
        if not args.report_only:
            whole = run_matrix(
                file,
                [scaled(WORKLOADS[name], scale) for name in names],
                methods,
                again=args.again,
                limit_s=args.limit,
                seed=args.seed,
                until=time.monotonic() + args.minutes * 60 if args.minutes else float("inf"),
            )
    finally:
        if file.cells:
            write_report(args.folder, file.cells, names, methods)
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
