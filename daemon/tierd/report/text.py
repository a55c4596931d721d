# SPDX-License-Identifier: Apache-2.0
"""A report in plain characters, and the words that both forms of a report use."""

from __future__ import annotations

import math
import textwrap

import numpy as np
import numpy.typing as npt

from tierd.core.logfmt import printable
from tierd.core.pagekey import PAGE_SHIFT, F64Array
from tierd.core.quantiles import Quantiles
from tierd.core.units import format_ns, format_size
from tierd.report.analysis import SHARES, Report

COLUMNS, ROWS = 64, 24
_LEVELS = " .:-=+*#%@"
_LABEL = 14
_WIDTH = 80
_HEIGHT = 6


def render(report: Report) -> str:
    """The whole report; lines are at most 80 characters."""
    parts = textwrap.wrap(title(report), _WIDTH)
    for note in notes(report):
        parts += textwrap.wrap(f"note: {note}", _WIDTH - 2, initial_indent="  ")
    parts.append("")
    parts += [f"  {name:32}{value}" for name, value in totals(report)]
    parts += ["", *_targets(report), "", *_heat_map(report)]
    for name, share in zip(report.tiers[:-1], report.shares, strict=True):
        parts += ["", *_chart(f"share of accesses served by {name}", share, report, "%", 100.0)]
    whole = f"working set: memory that holds {SHARES[2]:.0%} of the accesses of "
    whole += duration(float(report.seconds[1]))
    parts += ["", *_chart(whole, report.working_set[2], report, "B")]
    parts += ["", *_chart("promoted a second", report.promoted, report, "B")]
    parts += ["", *_chart("demoted a second", report.demoted, report, "B")]
    return "\n".join(line.rstrip() for line in parts) + "\n"


def _targets(report: Report) -> list[str]:
    total = sum(report.accesses.values()) or 1.0
    ranked = sorted(report.accesses.items(), key=lambda item: -item[1])
    lines = [f"  {target_name(report, n):56}{held / total:>8.1%}" for n, held in ranked[:10]]
    if len(ranked) > 10:
        lines.append(f"  and {len(ranked) - 10} more")
    return ["targets, by their share of the accesses", *lines]


def _heat_map(report: Report) -> list[str]:
    if report.shown is None or not report.areas:
        return ["heat map: no access was seen"]
    top = float(report.heat.max())
    lines = [f"heat map of {target_name(report, report.shown)}", "addresses down, time across"]
    # Each character stands for ten times less than the third one after it.
    level: npt.NDArray[np.int64] = np.zeros(report.heat.shape, np.int64)
    seen = report.heat > 0
    if top > 0:
        decades = np.log10(report.heat[seen] / top)
        level[seen] = np.clip(np.ceil((len(_LEVELS) - 1) * (1 + decades / 3)), 1, None)
    for area in report.areas:
        for row in range(area.first_row, area.last_row):
            start = area.start + (row - area.first_row) * area.pages_a_row
            cells = "".join(_LEVELS[each] for each in level[row])
            lines.append(f"{address(start):>{_LABEL}} |{cells}")
        lines.append(f"{address(area.end):>{_LABEL}} +" + "-" * len(level[0]))
    lines.append(_time_axis(report))
    lines.append(
        f"'@' is {top:.3g} accesses a second and page, '{_LEVELS[1]}' a 500th of it and less"
    )
    return lines


def _time_axis(report: Report) -> str:
    end = duration(float(report.seconds[-1]))
    width = len(report.seconds) - 1
    return f"{'':{_LABEL}}  0 s{end:>{max(width - 3, 0)}}"


def _chart(
    name: str, values: F64Array, report: Report, unit: str, top: float | None = None
) -> list[str]:
    """A column chart of `_HEIGHT` lines; gaps where there is no value."""
    shown = values * (100.0 if unit == "%" else 1.0)
    highest = top if top is not None else float(np.nanmax(shown, initial=0.0))
    lines = [name]
    if highest <= 0:
        return [f"{name}: none"]
    full = np.nan_to_num(shown / highest * _HEIGHT, nan=0.0)
    for line in range(_HEIGHT, 0, -1):
        label = highest * line / _HEIGHT
        text = f"{label:.0f} %" if unit == "%" else format_size(label)
        cells = "".join(
            "#" if each >= line - 0.25 else "." if each > line - 1 + 1e-9 else " " for each in full
        )
        lines.append(f"{text:>{_LABEL}} |{cells}")
    lines.append(f"{'0':>{_LABEL}} +" + "-" * len(full))
    lines.append(_time_axis(report))
    return lines


def short(text: str, limit: int = 40) -> str:
    """A name that a process chose."""
    shown = printable(text)
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def address(vpn: float) -> str:
    """A virtual page number as an address."""
    return f"{int(vpn) << PAGE_SHIFT:#x}"


def duration(seconds: float) -> str:
    """Seconds, or minutes and seconds."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{int(seconds // 60)} min {seconds % 60:.0f} s"


def title(report: Report) -> str:
    """What was recorded, in a line."""
    sources = ", ".join(short(name) for name in report.sources) or "no source"
    return (
        f"{duration(float(report.seconds[-1]))} from {short(report.meta.started)}, "
        f"{report.ticks} ticks, {sources}"
    )


def target_name(report: Report, number: int) -> str:
    """A target for people."""
    target = report.targets.get(number)
    if target is None:
        return f"target {number}"
    return f"{short(target.comm)} (pid {target.pid})"


def notes(report: Report) -> list[str]:
    """What the reader has to know of the recording."""
    found = []
    if report.meta.dry_run:
        found.append("a dry run: nothing was moved")
    if report.missing:
        found.append(f"{report.missing} ticks are missing: places of pages may be wrong after them")
    if report.cut:
        found.append(f"{report.cut}; read up to there")
    if report.lost:
        found.append(f"the sources lost {report.lost} records")
    if report.areas and report.area_share < 0.999:
        found.append(f"the heat map shows {report.area_share:.1%} of the target's accesses")
    return found


def totals(report: Report) -> list[tuple[str, str]]:
    """The figures of the whole recording: name and value."""
    width = float(report.seconds[1] - report.seconds[0])
    rows = [
        (f"accesses served by {name}", f"{share:.1%}" if math.isfinite(share) else "-")
        for name, share in report.overall.items()
    ]
    rows.append(("promoted", format_size(float(report.promoted.sum()) * width)))
    rows.append(("demoted", format_size(float(report.demoted.sum()) * width)))
    rows += [
        (f"moves {name.replace('_', ' ')}", f"{pages} pages")
        for name, pages in report.fates.items()
        if name != "moved"
    ]
    rows += [
        (name, _times(times))
        for name, times in (
            ("a tick took", report.tick_ns),
            ("CPU time of a moved page", report.move_page_cpu_ns),
        )
        if times.count
    ]
    return rows


def _times(times: Quantiles) -> str:
    return "median {}, 99 % {}, longest {}".format(
        *(format_ns(times.quantile(q)) for q in (0.5, 0.99, 1))
    )
