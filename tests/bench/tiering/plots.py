# SPDX-License-Identifier: Apache-2.0
"""The benchmark's plots, as SVG."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from results import Key, column
from samples import Samples

BASE = "first-touch"
BOUND = ("all-fast", "all-slow")
"""Methods whose share served fast is no curve."""


def draw(folder: Path, samples: Samples, keys: Sequence[Key]) -> list[str]:
    """Draw what is known of the cells; the plots' names. None without matplotlib (`bench`)."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("no plots: pip install 'tierd[bench]'", file=sys.stderr)
        return []
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "tierd"
    from matplotlib import pyplot as plt

    columns = list(dict.fromkeys(column(key.method, key.variant) for key in keys))
    shown = [
        workload
        for workload in dict.fromkeys(key.workload for key in keys)
        if any(cell.curve for each in columns for cell in samples.ran(workload, each))
    ]
    if not shown:
        return []
    colour = {each: f"C{i % 10}" for i, each in enumerate(columns)}
    for name, drawn in (
        ("convergence.svg", _convergence(plt, samples, shown, colour)),
        ("speedup.svg", _speed_up(plt, samples, shown, colour)),
    ):
        drawn.tight_layout()
        drawn.savefig(folder / name, metadata={"Date": None})
        plt.close(drawn)
    return ["speedup.svg", "convergence.svg"]


def _convergence(plt: Any, samples: Samples, shown: Sequence[str], colour: dict[str, str]) -> Any:
    """The share served fast over time, of each cell's first seed."""
    rows = -(-len(shown) // 2)
    figure, axes = plt.subplots(rows, 2, figsize=(11, 2.8 * rows), squeeze=False)
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    for axis, workload in zip(axes.flat, shown, strict=False):
        for each, drawn in colour.items():
            cells = samples.ran(workload, each)
            if cells and cells[0].curve and each not in BOUND:
                axis.plot(*zip(*cells[0].curve, strict=True), color=drawn, lw=1, label=each)
        axis.set(title=workload, ylim=(0, 1), xlabel="modelled s", ylabel="served fast")
        axis.legend(fontsize=6)
    return figure


def _speed_up(plt: Any, samples: Samples, shown: Sequence[str], colour: dict[str, str]) -> Any:
    """Bars: how many times as fast as first touch, with the seeds' interval."""
    bars = [each for each in colour if each != BASE and any(samples.ran(w, each) for w in shown)]
    figure, axis = plt.subplots(figsize=(11, 3.5))
    width = 1 / (len(bars) + 1)
    for i, each in enumerate(bars):
        ratios = [samples.ratio([workload], each, BASE) for workload in shown]
        places = [n + (i + 0.5) * width for n in range(len(shown))]
        heights = [ratio.value if ratio else 0 for ratio in ratios]
        axis.bar(places, heights, width, label=each, color=colour[each])
        for place, ratio in zip(places, ratios, strict=True):
            if ratio and ratio.interval:
                axis.plot([place, place], ratio.interval, color="black", lw=0.7)
    axis.axhline(1, color="black", lw=0.5)
    axis.set_xticks([n + 0.5 for n in range(len(shown))], shown)
    axis.set_ylabel("times as fast as first touch")
    axis.legend(fontsize=7, ncols=3)
    return figure
