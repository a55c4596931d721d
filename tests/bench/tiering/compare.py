# SPDX-License-Identifier: Apache-2.0
"""Compares two folders of results, seed by seed, and says whether the second one is slower.

    compare.py BASE NEW                      each method and variant that both folders have
    compare.py F F --base tierd-neoprof --new tierd-neoprof/fast-path-off

Exit status 1: on some workload NEW takes more time than BASE by more than --slower, or over
workloads it does by more than --mean-slower, or a cell failed that ran in BASE. 2: there is nothing
to compare, or the cells have another amount of work.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from estimates import Estimate, Ratio
from results import FILE, Cell, ResultFile
from samples import Comparison, Samples, compare
from table import pairs

from tierd.core.errors import TierdError
from workloads import WORKLOADS

SLOWER = 2.0
"""Per cent of time by which a workload may be slower: about what chance does on most of them."""
MEAN_SLOWER = 0.0
EXACT = 1e-9
"""Logarithms of ratios that differ by less are the same figure."""


class IncomparableError(TierdError):
    """The folders have no cells that can be compared."""


@dataclass(frozen=True)
class Bounds:
    """How much slower NEW may be, per cent of time: on a workload, and over workloads."""

    workload: float = SLOWER
    mean: float = MEAN_SLOWER


def is_slower(ratio: Ratio, per_cent: float) -> bool:
    """Whether the mean takes more time by more than so many per cent."""
    return 1 / ratio.value > 1 + per_cent / 100 + EXACT


def faults(comparison: Comparison, bounds: Bounds) -> list[str]:
    """What is wrong with NEW, a sentence each."""
    found = [
        f"{pair.workload}: {1 / pair.ratio.value - 1:.1%} slower, {bounds.workload:g} % are allowed"
        for pair in comparison.pairs
        if is_slower(pair.ratio, bounds.workload)
    ]
    mean = comparison.mean
    if mean is not None and is_slower(mean, bounds.mean):
        found.append(
            f"geometric mean: {1 / mean.value - 1:.2%} slower, {bounds.mean:g} % are allowed"
        )
    return found


def failed(base: Samples, new: Samples, comparison: Comparison) -> list[str]:
    """Cells of NEW that failed, and ran in BASE."""
    return [
        f"{cell.key.label}: {cell.why}"
        for workload in WORKLOADS
        for cell in new.cells(workload, comparison.new)
        if cell.seconds is None and cell.seed in base.seconds(workload, comparison.base)
    ]


def not_compared(base: Samples, new: Samples, comparison: Comparison) -> list[str]:
    """Cells that only one of the two has, and that nobody ran in the other."""
    found = []
    for workload in WORKLOADS:
        seeds = [
            {cell.seed for cell in samples.cells(workload, column)}
            for samples, column in ((base, comparison.base), (new, comparison.new))
        ]
        found += [f"{workload}, seed {seed}" for seed in sorted(seeds[0] ^ seeds[1])]
    return found


def cells(folder: Path) -> list[Cell]:
    """All cells of a folder.

    Raises:
        IncomparableError: it has none.
    """
    found = list(ResultFile(folder / FILE).cells.values())
    if not found:
        raise IncomparableError(f"there are no results in {folder}")
    return found


def same_work(base: Sequence[Cell], new: Sequence[Cell]) -> None:
    """See that each workload has the same to do in both.

    Raises:
        IncomparableError: one has not.
    """
    known: dict[str, tuple[Any, ...]] = {}
    for cell in (*base, *new):
        work = tuple(cell.facts.get(name) for name in ("work", "size", "fast"))
        if cell.seconds is not None and known.setdefault(cell.workload, work) != work:
            raise IncomparableError(
                f"{cell.workload} has another amount of work or memory in some cells "
                f"({cell.key.label} is one): they cannot be compared"
            )


def compared(base: Samples, new: Samples, columns: Sequence[tuple[str, str]]) -> list[Comparison]:
    """The comparisons of these columns, those without a common cell left out.

    Raises:
        IncomparableError: nothing is left.
    """
    made = [compare(base, one, new, other, [*WORKLOADS]) for one, other in columns]
    kept = [comparison for comparison in made if comparison.pairs]
    if not kept:
        raise IncomparableError("the two have no cell in common: workload, method and seed")
    return kept


def _of_estimate(known: Estimate) -> dict[str, Any]:
    return {"mean_s": known.mean, "interval_half_s": known.half}


def _of_ratio(ratio: Ratio | None) -> dict[str, Any] | None:
    if ratio is None:
        return None
    return {
        "times_as_fast": ratio.value,
        "interval": ratio.interval,
        "beyond_two_errors": ratio.differs,
        "seeds": ratio.logs.count,
        "workloads": ratio.workloads,
    }


def as_json(comparison: Comparison, wrong: Sequence[str], left: Sequence[str]) -> dict[str, Any]:
    """A comparison for programs."""
    return {
        "base": comparison.base,
        "new": comparison.new,
        "workloads": {
            pair.workload: {
                "base": _of_estimate(pair.base),
                "new": _of_estimate(pair.new),
                **(_of_ratio(pair.ratio) or {}),
            }
            for pair in comparison.pairs
        },
        "geometric_mean": _of_ratio(comparison.mean),
        "faults": list(wrong),
        "not_compared": list(left),
    }


def show(comparison: Comparison, wrong: Sequence[str], left: Sequence[str]) -> None:
    """A comparison for people."""
    print(f"{comparison.new} against {comparison.base}\n\n{pairs(comparison)}\n")
    if left:
        print(f"Not compared, for one of the two has not run: {'; '.join(left)}.\n")
    for each in wrong:
        print(f"- {each}")


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("base_folder", type=Path, metavar="BASE", help="a folder of results")
    add("new_folder", type=Path, metavar="NEW", help="the folder that it is compared with")
    add("--base", help="one method of BASE, METHOD or METHOD/VARIANT")
    add("--new", help="what of NEW it is compared with; the same if not given")
    add("--slower", type=float, default=SLOWER, help="per cent allowed on a workload")
    add("--mean-slower", type=float, default=MEAN_SLOWER, help="per cent allowed over workloads")
    add("--json", action="store_true", help="for programs")
    return parser.parse_args()


def main() -> int:
    """0 if NEW is not slower."""
    args = arguments()
    bounds = Bounds(args.slower, args.mean_slower)
    try:
        found = [cells(folder) for folder in (args.base_folder, args.new_folder)]
        same_work(*found)
        base, new = map(Samples, found)
        both = [name for name in base.columns if name in new.columns]
        columns = [(name, name) for name in both]
        if args.base or args.new:
            columns = [(args.base or args.new, args.new or args.base)]
        comparisons = compared(base, new, columns)
    except IncomparableError as error:
        print(f"compare: {error}", file=sys.stderr)
        return 2
    told, slow = [], False
    for comparison in comparisons:
        wrong = faults(comparison, bounds) + failed(base, new, comparison)
        left = not_compared(base, new, comparison)
        slow |= bool(wrong)
        if args.json:
            told.append(as_json(comparison, wrong, left))
        else:
            show(comparison, wrong, left)
    if args.json:
        print(json.dumps(told, indent=1))
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
