# SPDX-License-Identifier: Apache-2.0
"""The benchmark's tables, as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from results import Cell

Cells = Mapping[tuple[str, str], Cell]


def geometric_mean(values: Iterable[float]) -> float | None:
    """The geometric mean of positive numbers; None without any."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


def speed_ups(cells: Cells, workloads: Sequence[str], method: str, base: str) -> list[float]:
    """How many times `method` is as fast as `base`, on the workloads that both ran."""
    ratios = []
    for workload in workloads:
        ours, theirs = cells.get((workload, method)), cells.get((workload, base))
        if ours and theirs and ours.seconds and theirs.seconds:
            ratios.append(theirs.seconds / ours.seconds)
    return ratios


def best_of(cells: Cells, workload: str, methods: Iterable[str]) -> Cell | None:
    """The fastest of some methods on a workload."""
    ran = [c for m in methods if (c := cells.get((workload, m))) is not None and c.seconds]
    return min(ran, key=lambda cell: cell.seconds or math.inf, default=None)


def _row(values: Iterable[str]) -> str:
    return "| " + " | ".join(values) + " |"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join([_row(head), _row(rule), *map(_row, rows)])


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def times(cells: Cells, workloads: Sequence[str], methods: Sequence[str], base: str) -> str:
    """Modelled seconds, a row a workload; the last row is the mean speed-up over `base`."""
    rows = []
    for workload in workloads:
        row = [workload]
        for method in methods:
            cell = cells.get((workload, method))
            if cell is None:
                row.append("not run")
            elif cell.seconds is None:
                row.append("failed")
            else:
                row.append(f"{cell.seconds:.3f}")
        rows.append(row)
    means = [
        _number(geometric_mean(speed_ups(cells, workloads, method, base)), ".3f")
        for method in methods
    ]
    rows.append([f"speed-up over {base} (geometric mean)", *means])
    return _table(["modelled seconds", *methods], rows)


def details(cells: Cells, workload: str, methods: Sequence[str]) -> str:
    """What else is known of one workload's cells."""
    head = ["method", "seconds", "served fast", "s to 95 %", "promoted", "demoted", "bounced"]
    rows = []
    for method in methods:
        cell = cells.get((workload, method))
        if cell is None or cell.seconds is None:
            continue
        rows.append(
            [
                method,
                f"{cell.seconds:.3f}",
                _number(cell.fast_share, ".1%"),
                _number(cell.seconds_to_95, ".2f"),
                str(cell.promoted),
                str(cell.demoted),
                _number(cell.ping_pong, "d"),
                _number(cell.daemon_share, ".2%"),
            ]
        )
    return _table([*head, "daemon's instructions"], rows)


def gaps(cells: Cells, workloads: Sequence[str], methods: Sequence[str]) -> str:
    """Every cell that has no figure, and why."""
    lines = []
    for workload in workloads:
        for method in methods:
            cell = cells.get((workload, method))
            if cell is None:
                lines.append(f"- {workload} / {method}: not run")
            elif cell.seconds is None:
                lines.append(f"- {workload} / {method}: {cell.why}")
    return "\n".join(lines) or "Every cell ran."
