# SPDX-License-Identifier: Apache-2.0
"""The benchmark's tables, as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from estimates import Estimate, Ratio
from results import Cell, Key
from samples import Comparison, Samples


def best_of(samples: Samples, workload: str, columns: Iterable[str]) -> str | None:
    """The column of the least mean seconds on a workload; None if none ran."""
    ran = [(mean.mean, each) for each in columns if (mean := samples.mean(workload, each))]
    return min(ran)[1] if ran else None


def _row(values: Iterable[str]) -> str:
    return "| " + " | ".join(values) + " |"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join([_row(head), _row(rule), *map(_row, rows)])


def _mean(values: Iterable[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return format(statistics.fmean(known), form) if known else "-"


def told(mean: Estimate) -> str:
    """Seconds with half of their interval, if there are several seeds."""
    return f"{mean.mean:.3f}" if mean.half is None else f"{mean.mean:.3f} ± {mean.half:.3f}"


def interval(ratio: Ratio | None) -> str:
    """The 95 % interval of a ratio."""
    if ratio is None or ratio.interval is None:
        return "-"
    return f"{ratio.interval[0]:.3f} to {ratio.interval[1]:.3f}"


def _differs(ratio: Ratio | None) -> str:
    if ratio is None or ratio.differs is None:
        return "-"
    return "yes" if ratio.differs else "no"


def times(samples: Samples, workloads: Sequence[str], columns: Sequence[str], base: str) -> str:
    """Modelled seconds, a row a workload; the last row is the mean speed-up over `base`."""
    rows = []
    for workload in workloads:
        row = [workload]
        for each in columns:
            mean = samples.mean(workload, each)
            if mean is not None:
                row.append(told(mean))
            else:
                row.append("failed" if samples.cells(workload, each) else "not run")
        rows.append(row)
    ratios = [samples.ratio(workloads, each, base) for each in columns]
    means = [f"{ratio.value:.3f}" if ratio else "-" for ratio in ratios]
    rows.append([f"speed-up over {base} (geometric mean)", *means])
    return _table(["modelled seconds", *columns], rows)


def pairs(comparison: Comparison) -> str:
    """Two columns seed by seed, a row a workload; the last row is over workloads."""
    head = ["workload", "seeds", f"{comparison.base}, s", f"{comparison.new}, s"]
    head += ["times as fast", "95 % interval", "beyond two standard errors"]
    rows = [
        [
            pair.workload,
            str(pair.ratio.logs.count),
            told(pair.base),
            told(pair.new),
            f"{pair.ratio.value:.3f}",
            interval(pair.ratio),
            _differs(pair.ratio),
        ]
        for pair in comparison.pairs
    ]
    mean = comparison.mean
    if mean is not None:
        name = f"geometric mean of {mean.workloads}"
        ratio = [f"{mean.value:.3f}", interval(mean), _differs(mean)]
        rows.append([name, str(mean.logs.count), "", "", *ratio])
    return _table(head, rows)


def details(samples: Samples, workload: str, columns: Sequence[str]) -> str:
    """What else is known of one workload's cells; means over seeds."""
    head = ["method", "seeds", "seconds", "served fast", "s to 95 %", "promoted", "demoted"]
    rows = []
    for each in columns:
        cells, mean = samples.ran(workload, each), samples.mean(workload, each)
        if mean is None:
            continue
        rows.append(
            [
                each,
                str(len(cells)),
                told(mean),
                _mean((cell.fast_share for cell in cells), ".1%"),
                _mean((cell.seconds_to_95 for cell in cells), ".2f"),
                _mean((cell.promoted for cell in cells), ".0f"),
                _mean((cell.demoted for cell in cells), ".0f"),
                _mean((cell.ping_pong for cell in cells), ".0f"),
                _mean((cell.daemon_share for cell in cells), ".2%"),
            ]
        )
    return _table([*head, "ping-pong", "daemon's instructions"], rows)


def gaps(cells: dict[Key, Cell], wanted: Sequence[Key]) -> str:
    """Every cell that has no figure, and why."""
    lines = []
    for key in wanted:
        cell = cells.get(key)
        if cell is None or cell.seconds is None:
            lines.append(f"- {key.label}: {cell.why if cell else 'not run'}")
    return "\n".join(lines) or "Every cell ran."
