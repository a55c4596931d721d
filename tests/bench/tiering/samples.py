# SPDX-License-Identifier: Apache-2.0
"""The cells of a matrix as tables want them: by workload and column, each with its seeds.

A column is a method, or a method with a variant of its settings (`results.column`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from estimates import Estimate, Ratio, estimate, over_workloads, paired
from results import Cell


class Samples:
    """Cells by workload, column and seed."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._cells: dict[tuple[str, str], dict[int, Cell]] = {}
        for cell in cells:
            self._cells.setdefault((cell.workload, cell.column), {})[cell.seed] = cell

    @property
    def columns(self) -> list[str]:
        """Every column that has a cell, in the order in which they came."""
        return list(dict.fromkeys(column for _, column in self._cells))

    def cells(self, workload: str, column: str) -> list[Cell]:
        """All cells, by seed, those that failed included."""
        return [cell for _, cell in sorted(self._cells.get((workload, column), {}).items())]

    def ran(self, workload: str, column: str) -> list[Cell]:
        """Those that have a figure."""
        return [cell for cell in self.cells(workload, column) if cell.seconds is not None]

    def seconds(self, workload: str, column: str) -> dict[int, float]:
        """Modelled seconds by seed."""
        return {cell.seed: cell.seconds for cell in self.ran(workload, column) if cell.seconds}

    def mean(self, workload: str, column: str) -> Estimate | None:
        """Mean of the seconds; None if no cell has a figure."""
        seconds = self.seconds(workload, column)
        return estimate(list(seconds.values())) if seconds else None

    def ratio(self, workloads: Iterable[str], column: str, base: str) -> Ratio | None:
        """How many times `column` is as fast as `base` over workloads."""
        return over_workloads(
            [(self.seconds(each, base), self.seconds(each, column)) for each in workloads]
        )


@dataclass(frozen=True)
class Pair:
    """One workload in two columns, of the seeds that both have.

    Attributes:
        base, new: their seconds.
        ratio: how many times `new` is as fast as `base`.
    """

    workload: str
    base: Estimate
    new: Estimate
    ratio: Ratio


@dataclass(frozen=True)
class Comparison:
    """Two columns, workload by workload.

    Attributes:
        base, new: what the columns are called.
        pairs: the workloads that have a seed in both.
        mean: over workloads; None without any.
    """

    base: str
    new: str
    pairs: tuple[Pair, ...]
    mean: Ratio | None


def compare(
    base: Samples,
    base_column: str,
    new: Samples,
    new_column: str,
    workloads: Sequence[str],
) -> Comparison:
    """Compare a column of one matrix with a column of another, or of the same one."""
    pairs, seconds = [], []
    for workload in workloads:
        theirs, ours = base.seconds(workload, base_column), new.seconds(workload, new_column)
        ratio = paired(theirs, ours)
        if ratio is not None:
            common = sorted(theirs.keys() & ours.keys())
            means = [estimate([each[seed] for seed in common]) for each in (theirs, ours)]
            pairs.append(Pair(workload, means[0], means[1], ratio))
            seconds.append((theirs, ours))
    return Comparison(base_column, new_column, tuple(pairs), over_workloads(seconds))
