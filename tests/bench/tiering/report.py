# SPDX-License-Identifier: Apache-2.0
"""The benchmark's report: a Markdown page, and plots beside it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from estimates import Ratio, over_workloads
from plan import LENGTH, METHODS
from plots import draw
from results import Cell, Key, column
from samples import Samples, compare
from table import best_of, details, gaps, pairs, times
from variants import VARIANTS

from workloads import WORKLOADS

KERNEL = ("first-touch", "numa-balancing", "numa-balancing-1-3s", "damon")
"""What a stock kernel offers."""
LAB = Path(__file__).resolve().parents[3] / "docs/research/lab.md"
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


def fastest_of_the_kernel(samples: Samples, workloads: Sequence[str], name: str) -> Ratio | None:
    """How many times as fast a column is as the kernel's best on each workload."""
    pairs = []
    for workload in workloads:
        best = best_of(samples, workload, KERNEL)
        if best is not None:
            pairs.append((samples.seconds(workload, best), samples.seconds(workload, name)))
    return over_workloads(pairs)


def length(cells: Iterable[Cell]) -> str:
    """A paragraph on how long regions are, if that is not as usual."""
    times = {
        cell.facts["work"] / WORKLOADS[cell.workload].work
        for cell in cells
        if cell.workload in WORKLOADS and "work" in cell.facts
    }
    if times <= {LENGTH}:
        return ""
    shares = sorted({min(times) / LENGTH, max(times) / LENGTH})
    told = " to ".join(f"{each:.3g}" for each in shares)
    return f"Workloads have {told} times as much to do here as in the table of `make bench`.\n"


SEEDS = """\
A figure is the mean of the cell's seeds, and ± half of its 95 % interval (Student's t); without it
there is one seed, whose figure is one sample of those that the cell can take.
"""


def markdown(
    cells: dict[Key, Cell], wanted: Sequence[Key], reading: str, plots: Sequence[str], *, lab: str
) -> str:
    """The page.

    Args:
        cells: those of the result file.
        wanted: keys of all cells that the page is about.
        lab: where docs/research/lab.md lies, seen from the page.
    """
    samples = Samples(cells.values())
    workloads = list(dict.fromkeys(key.workload for key in wanted))
    columns = list(dict.fromkeys(column(key.method, key.variant) for key in wanted))
    parts = [HEAD.format(lab=lab), *filter(None, [length(cells.values())])]
    ran = sum(c.seconds is not None for c in cells.values())
    parts.append(f"{ran} of {len(wanted)} cells ran.\n")
    parts += ["## Modelled seconds\n", times(samples, workloads, columns, "first-touch") + "\n"]
    parts += [
        "`not run`: the run was stopped before; `make bench` goes on there. A mean is over "
        "the workloads that both methods ran, so means of an incomplete table are not to be "
        "compared with each other.\n",
        SEEDS,
    ]
    parts += ["## Speed-up over each baseline\n", _speed_ups(samples, workloads, columns)]
    parts += _paired(samples, workloads, columns)
    parts += [f"![{name}]({name})\n" for name in plots]
    if reading:
        parts += ["## Reading\n", reading]
    parts.append("## Cells\n")
    for workload in workloads:
        if any(samples.cells(workload, each) for each in columns):
            parts += [f"### {workload}\n", details(samples, workload, columns) + "\n"]
    parts += ["## What did not run\n", gaps(cells, wanted) + "\n"]
    parts += ["## Ran with\n", _versions(cells.values())]
    return "\n".join(parts)


def _speed_ups(samples: Samples, workloads: Sequence[str], columns: Sequence[str]) -> str:
    bases = [name for name in columns if not name.startswith("tierd")]
    lines = [f"| times as fast as | {' | '.join(bases)} | the kernel's best |"]
    lines.append("|---|" + "---:|" * (len(bases) + 1))
    for name in columns:
        if not name.startswith("tierd"):
            continue
        row = []
        for base in bases:
            ratio = samples.ratio(workloads, name, base)
            row.append("-" if ratio is None else f"{ratio.value:.3f} ({ratio.workloads})")
        best = fastest_of_the_kernel(samples, workloads, name)
        row.append("-" if best is None else f"{best.value:.3f}")
        lines.append(f"| {name} | {' | '.join(row)} |")
    note = f"In brackets: workloads that both ran. The kernel's own: {', '.join(KERNEL)}."
    return "\n".join([*lines, "", note, ""])


def _paired(samples: Samples, workloads: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Sections on pairs of columns, seed by seed: variants, and the two precise sources."""
    parts = []
    for base, new in _pairs_of(columns):
        compared = compare(samples, base, samples, new, workloads)
        if compared.pairs and any(pair.ratio.logs.count > 1 for pair in compared.pairs):
            parts += [f"### {new} against {base}\n", pairs(compared) + "\n"]
            variant = VARIANTS.get(new.partition("/")[2])
            parts += [f"{variant.what}\n"] if variant else []
    return [f"## Pairs\n\n{PAIRED}", *parts] if parts else []


def _pairs_of(columns: Sequence[str]) -> list[tuple[str, str]]:
    """(base, new): a method and its variants, and accessed bits beside NeoProf."""
    found = [(name.partition("/")[0], name) for name in columns if "/" in name]
    sources = ("tierd-scan", "tierd-neoprof")
    return [*found, sources] if set(sources) <= set(columns) else found


PAIRED = """\
Two columns are compared seed by seed: the mean of the logarithms of their ratios, and its interval.
Above 1 the second one is faster. The interval tells of other seeds, not of other workloads.
"""


def _versions(cells: Iterable[Cell]) -> str:
    keys = ("kernel", "qemu", "python", "damo", "numpy", "tierd", "source", "machine", "host")
    known, lines = list(cells), []
    for key in keys:
        seen = sorted({str(cell.facts[key]) for cell in known if key in cell.facts})
        lines.append(f"- {key}: {', '.join(seen) or 'unknown'}")
    return "\n".join(lines) + "\n"


def in_order(keys: Iterable[Key]) -> list[Key]:
    """Keys in the order of the page; what nothing is known of any more comes last."""

    def place(name: str, known: Iterable[str]) -> tuple[int, str]:
        names = list(known)
        return (names.index(name) if name in names else len(names)), name

    return sorted(
        keys,
        key=lambda key: (
            place(key.method, METHODS),
            place(key.workload, WORKLOADS),
            place(key.variant, VARIANTS),
            key.seed,
        ),
    )


def write_report(folder: Path, cells: dict[Key, Cell], wanted: Sequence[Key]) -> None:
    """Write tiering.md and the plots into the folder of the results.

    Args:
        cells: all that the result file has; all of them are shown.
        wanted: those that were asked for; the page says which of them did not run.
    """
    keys = in_order({*cells, *wanted})
    plots = draw(folder, Samples(cells.values()), keys)
    file = folder / "reading.md"
    reading = file.read_text(encoding="utf-8") if file.exists() else ""
    lab = os.path.relpath(LAB, folder)
    page = markdown(cells, keys, reading, plots, lab=lab)
    (folder / "tiering.md").write_text(page.rstrip() + "\n", encoding="utf-8")
