# SPDX-License-Identifier: Apache-2.0
"""Words and numbers that every form of a report shows."""

from __future__ import annotations

import math

from tierd.core.pagekey import PAGE_SHIFT
from tierd.core.units import format_size
from tierd.report.analysis import Report


def printable(text: str, limit: int = 40) -> str:
    """A name that a process chose, without what a terminal or a page would obey."""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def address(vpn: float) -> str:
    """A virtual page number as an address."""
    return f"{int(vpn) << PAGE_SHIFT:#x}"


def address_marks(report: Report, most: int) -> list[tuple[int, str]]:
    """Row edges of the heat map to label, and their addresses; about `most`."""
    rows = report.areas[-1].last_row
    marks = []
    for area in report.areas:
        parts = max(1, round(most * (area.last_row - area.first_row) / rows))
        for part in range(parts):
            row = area.first_row + (area.last_row - area.first_row) * part // parts
            vpn = area.start + (row - area.first_row) * area.pages_a_row
            marks.append((row, address(vpn)))
    return [*marks, (rows, address(report.areas[-1].end))]


def duration(seconds: float) -> str:
    """Seconds, or minutes and seconds."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{int(seconds // 60)} min {seconds % 60:.0f} s"


def title(report: Report) -> str:
    """What was recorded, in a line."""
    sources = ", ".join(printable(name) for name in report.sources) or "no source"
    return (
        f"{duration(float(report.seconds[-1]))} from {printable(report.meta.started)}, "
        f"{report.ticks} ticks, {sources}"
    )


def target_name(report: Report, number: int) -> str:
    """A target for people."""
    target = report.targets.get(number)
    if target is None:
        return f"target {number}"
    return f"{printable(target.comm)} (pid {target.pid})"


def notes(report: Report) -> list[str]:
    """What the reader has to know of the recording."""
    told = []
    if report.meta.dry_run:
        told.append("a dry run: nothing was moved")
    if report.missing:
        told.append(f"{report.missing} ticks are missing: places of pages may be wrong after them")
    if report.cut:
        told.append(f"{report.cut}; read up to there")
    if report.lost:
        told.append(f"the sources lost {report.lost} records")
    if report.areas and report.area_share < 0.999:
        told.append(f"the heat map shows {report.area_share:.1%} of the target's accesses")
    return told


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
    return rows
