# SPDX-License-Identifier: Apache-2.0
"""The benchmark's report: a Markdown page, and plots beside it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from results import Cell
from table import Cells, best_of, details, gaps, geometric_mean, speed_ups, times

from workloads import WORKLOADS

KERNEL = ("first-touch", "numa-balancing", "numa-balancing-1-3s", "damon")
"""What a stock kernel offers."""
LENGTH = 3.0
"""Times the work that is told of a workload that it does in the table: so that the way to a good
placement, half a second to a second, is a small part of it."""
LAB = Path(__file__).resolve().parents[3] / "docs/lab.md"
NOT_COMPARED = ("first-touch", "all-fast", "all-slow", "oracle")
HEAD = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
# tierd against other ways of tiering, in modelled time

Made by `make bench`; [tiering.jsonl](tiering.jsonl) has every figure. What time
means here, and what is modelled: [lab.md]({lab}). The machine: 512 MiB DRAM (118 ns,
100 GB/s) and 2 GiB of CXL-like memory (430 ns, 20 GB/s), one CPU that executes an instruction
a nanosecond out of its cache. The guest's clock is modelled time: intervals of daemons and
kernel are what they say.

Every cell of a workload begins the same. The pages that it touched first, a third of its
memory, are on the fast node, the others on the slow one, and 12 MiB of the fast node are free.
Methods begin a second before the workload goes on, and know its process then. So the seconds
hold the way to a good placement, which a service that has run for hours has behind it.

The oracle puts the pages that an earlier run of the same cell asked for most on the fast node, as
many as fit, before the region begins; it never moves anything in it.
"""


def fastest_of_the_kernel(cells: Cells, workloads: Sequence[str], method: str) -> float | None:
    """Geometric mean of how many times as fast `method` is as the kernel's best on each."""
    ratios = []
    for workload in workloads:
        best, ours = best_of(cells, workload, KERNEL), cells.get((workload, method))
        if best and ours and ours.seconds and best.seconds:
            ratios.append(best.seconds / ours.seconds)
    return geometric_mean(ratios)


def length(cells: Cells) -> str:
    """A paragraph on how long regions are, if that is not as usual."""
    times = {
        cell.facts["work"] / WORKLOADS[cell.workload].work
        for cell in cells.values()
        if cell.workload in WORKLOADS and "work" in cell.facts
    }
    if times <= {LENGTH}:
        return ""
    shares = sorted({min(times) / LENGTH, max(times) / LENGTH})
    told = " to ".join(f"{each:.3g}" for each in shares)
    return f"Workloads have {told} times as much to do here as in the table of `make bench`.\n"


def markdown(
    cells: Cells,
    workloads: Sequence[str],
    methods: Sequence[str],
    reading: str,
    plots: Sequence[str],
    *,
    lab: str,
) -> str:
    """The page; `lab`: where docs/lab.md lies, seen from it."""
    parts = [HEAD.format(lab=lab), *filter(None, [length(cells)])]
    ran = sum(c.seconds is not None for c in cells.values())
    parts.append(f"{ran} of {len(workloads) * len(methods)} cells ran.\n")
    parts += ["## Modelled seconds\n", times(cells, workloads, methods, "first-touch") + "\n"]
    parts += [
        "`not run`: the run was stopped before; `make bench` goes on there. A mean is over "
        "the workloads that both methods ran, so means of an incomplete table are not to be "
        "compared with each other.\n"
    ]
    parts += ["## Speed-up over each baseline\n", _speed_ups(cells, workloads, methods)]
    parts += [f"![{name}]({name})\n" for name in plots]
    if reading:
        parts += ["## Reading\n", reading]
    parts.append("## Cells\n")
    for workload in workloads:
        if any((workload, method) in cells for method in methods):
            parts += [f"### {workload}\n", details(cells, workload, methods) + "\n"]
    parts += ["## What did not run\n", gaps(cells, workloads, methods) + "\n"]
    parts += ["## Ran with\n", _versions(cells)]
    return "\n".join(parts)


def _speed_ups(cells: Cells, workloads: Sequence[str], methods: Sequence[str]) -> str:
    bases = [method for method in methods if not method.startswith("tierd")]
    lines = [f"| times as fast as | {' | '.join(bases)} | the kernel's best |"]
    lines.append("|---|" + "---:|" * (len(bases) + 1))
    for method in methods:
        if not method.startswith("tierd"):
            continue
        row = []
        for base in bases:
            ratios = speed_ups(cells, workloads, method, base)
            mean = geometric_mean(ratios)
            row.append("-" if mean is None else f"{mean:.3f} ({len(ratios)})")
        mean = fastest_of_the_kernel(cells, workloads, method)
        row.append("-" if mean is None else f"{mean:.3f}")
        lines.append(f"| {method} | {' | '.join(row)} |")
    note = f"In brackets: workloads that both ran. The kernel's own: {', '.join(KERNEL)}."
    return "\n".join([*lines, "", note, ""])


def _versions(cells: Cells) -> str:
    keys = ("kernel", "qemu", "python", "damo", "numpy", "tierd", "source", "machine", "host")
    lines = []
    for key in keys:
        seen = sorted({str(cell.facts[key]) for cell in cells.values() if key in cell.facts})
        lines.append(f"- {key}: {', '.join(seen) or 'unknown'}")
    return "\n".join(lines) + "\n"


def draw(folder: Path, cells: Cells, workloads: Sequence[str], methods: Sequence[str]) -> list[str]:
    """Plots as SVG; their names. None without matplotlib (the extra `report`)."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("no plots: pip install 'tierd[report]'", file=sys.stderr)
        return []
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "tierd"
    from matplotlib import pyplot as plt

    colour = {method: f"C{i % 10}" for i, method in enumerate(methods)}
    shown = [w for w in workloads if any((w, m) in cells and cells[w, m].curve for m in methods)]
    if not shown:
        return []
    rows = -(-len(shown) // 2)
    figure, axes = plt.subplots(rows, 2, figsize=(11, 2.8 * rows), squeeze=False)
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    for axis, workload in zip(axes.flat, shown, strict=False):
        for method in methods:
            cell = cells.get((workload, method))
            if cell is not None and cell.curve and method not in ("all-fast", "all-slow"):
                style = {"color": colour[method], "lw": 1, "label": method}
                axis.plot(*zip(*cell.curve, strict=True), **style)
        axis.set(title=workload, ylim=(0, 1), xlabel="modelled s", ylabel="served fast")
        axis.legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(folder / "convergence.svg", metadata={"Date": None})
    plt.close(figure)

    bars = [m for m in methods if m != "first-touch" and any((w, m) in cells for w in shown)]
    figure, axis = plt.subplots(figsize=(11, 3.5))
    for i, method in enumerate(bars):
        ratios = [speed_ups(cells, [workload], method, "first-touch") for workload in shown]
        heights = [ratio[0] if ratio else 0 for ratio in ratios]
        places = [n + (i + 0.5) / (len(bars) + 1) for n in range(len(shown))]
        axis.bar(places, heights, 1 / (len(bars) + 1), label=method, color=colour[method])
    axis.axhline(1, color="black", lw=0.5)
    axis.set_xticks([n + 0.5 for n in range(len(shown))], shown)
    axis.set_ylabel("times as fast as first touch")
    axis.legend(fontsize=7, ncols=3)
    figure.tight_layout()
    figure.savefig(folder / "speedup.svg", metadata={"Date": None})
    plt.close(figure)
    return ["speedup.svg", "convergence.svg"]


def write_report(
    folder: Path,
    cells: dict[tuple[str, str], Cell],
    workloads: Sequence[str],
    methods: Sequence[str],
) -> None:
    """Write tiering.md and the plots into the folder of the results."""
    plots = draw(folder, cells, workloads, methods)
    file = folder / "reading.md"
    reading = file.read_text(encoding="utf-8") if file.exists() else ""
    lab = os.path.relpath(LAB, folder)
    page = markdown(cells, workloads, methods, reading, plots, lab=lab)
    (folder / "tiering.md").write_text(page.rstrip() + "\n", encoding="utf-8")
