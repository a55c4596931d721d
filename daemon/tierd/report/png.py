# SPDX-License-Identifier: Apache-2.0
"""A report as one picture, drawn by matplotlib (the extra `tierd[report]`)."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from tierd.core.errors import UnavailableError
from tierd.report.analysis import SHARES, Report
from tierd.report.words import address_marks, notes, target_name, title

COLUMNS, ROWS = 240, 120
TIER_COLOURS = ("#d1495b", "#2e86ab", "#edae49", "#66a182", "#8d6a9f")


def render(report: Report) -> bytes:
    """The picture, a PNG.

    Raises:
        UnavailableError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise UnavailableError(
            "a PNG needs matplotlib, which is not installed",
            hint="pip install 'tierd[report]', or use --format html",
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context({"font.size": 9, "axes.grid": True, "grid.alpha": 0.25}):
        figure, axes = pyplot.subplots(
            4, 1, sharex=True, figsize=(11, 12), height_ratios=(3, 1, 1, 1), layout="constrained"
        )
        figure.suptitle(_escape("\n".join(["tierd recording: " + title(report), *notes(report)])))
        _heat_map(axes[0], report, figure)
        _served(axes[1], report)
        _working_set(axes[2], report)
        _migrations(axes[3], report)
        axes[-1].set_xlabel("time since the first tick [s]")
        axes[-1].set_xlim(0, float(report.seconds[-1]))
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=110)
        pyplot.close(figure)
    return picture.getvalue()


def _escape(text: str) -> str:
    return text.replace("$", r"\$")  # a name shall not be read as mathematics


def _heat_map(axis: Any, report: Report, figure: Any) -> None:
    from matplotlib.colors import LogNorm

    if report.shown is None or not report.areas:
        axis.set_title("heat map: no access was seen")
        return
    top = float(report.heat.max())
    rows = np.arange(report.heat.shape[0] + 1)
    shown = np.ma.masked_less_equal(report.heat, 0.0)
    mesh = axis.pcolormesh(
        report.seconds, rows, shown, cmap="inferno", norm=LogNorm(top / 1e3, top), shading="flat"
    )
    axis.set_facecolor("#f4f4f4")
    axis.grid(False)
    axis.invert_yaxis()
    for area in report.areas:
        axis.axhline(area.first_row, color="#888888", linewidth=0.6)
    marks = address_marks(report, 12)
    ticks, labels = [row for row, _ in marks], [text for _, text in marks]
    axis.set_yticks(ticks, labels, family="monospace", fontsize=8)
    axis.set_ylabel("address")
    axis.set_title(_escape(f"accesses of {target_name(report, report.shown)}"))
    figure.colorbar(mesh, ax=axis, label="accesses a second and 4 KiB page", pad=0.01)


def _served(axis: Any, report: Report) -> None:
    middle = (report.seconds[:-1] + report.seconds[1:]) / 2
    shares = np.nan_to_num(report.shares) * 100
    colours = [TIER_COLOURS[i % len(TIER_COLOURS)] for i in range(len(shares))]
    axis.stackplot(middle, shares, labels=report.tiers[:-1], colors=colours, alpha=0.85)
    axis.set_ylim(0, 100)
    axis.set_ylabel("served by tier [%]")
    axis.legend(loc="lower left", ncols=max(1, len(shares)))


def _working_set(axis: Any, report: Report) -> None:
    middle = (report.seconds[:-1] + report.seconds[1:]) / 2
    for share, values in zip(SHARES, report.working_set, strict=True):
        axis.plot(middle, values / 2**20, label=f"{share:.0%}", linewidth=1.2)
    axis.set_ylabel("working set [MiB]")
    axis.set_ylim(bottom=0)
    width = float(report.seconds[1])
    axis.legend(loc="upper left", ncols=4, title=f"share of the accesses of {width:.3g} s")


def _migrations(axis: Any, report: Report) -> None:
    width = float(report.seconds[1])
    start = report.seconds[:-1]
    more = {"width": width, "align": "edge"}
    axis.bar(start, report.promoted / 2**20, color="#d1495b", label="promoted", **more)
    axis.bar(start, -report.demoted / 2**20, color="#2e86ab", label="demoted", **more)
    axis.axhline(0, color="#444444", linewidth=0.8)
    axis.set_ylabel("moved [MiB/s]")
    axis.yaxis.set_major_formatter(lambda value, _: f"{abs(value):.3g}")
    axis.legend(loc="upper right", ncols=2)
