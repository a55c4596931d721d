# SPDX-License-Identifier: Apache-2.0
"""The demo's result as one HTML page: no network, no script.

Everything in it was measured by the workload (which knows its hot pages and asks the kernel where
they are) or counted by tierd.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from figures import SplitRecord

from tierd.report.page import chart, curve, document, image, legend, png, table

COLOURS = {
    "cold, in CXL": (206, 210, 216),
    "cold, in DRAM": (150, 190, 214),
    "hot, in CXL": (200, 55, 75),
    "hot, in DRAM": (31, 120, 80),
}
"""Red, green and blue of a page, by its digit in the workload's map: 1 for DRAM plus 2 for hot."""
IN_DRAM, FIRST_HOT = 1, 2
ROW_PAGES = 640
PAGE_MIB = 4096 / 2**20
HEIGHT = 160


def page(story: SplitRecord, rows: Sequence[Sequence[str]], machine: str) -> str:
    """The page of a demo without tierd and with it.

    Args:
        story: what the guest told.
        rows: the result's table, its head first.
        machine: on what it ran, for people.
    """
    reports = story.reports["with"]
    samples = [each for each in reports if each["event"] == "sample"]
    maps = [each for each in reports if "map" in each]
    handed_over = story.notes["handed_over", "with"]["clock"] - (
        reports[0]["clock"] - reports[0]["t"]
    )
    end_s = float(samples[-1]["t"]) if samples else 1.0
    parts = [
        f"<p>{html.escape(machine)}. A program updates memory at random: nine of ten updates go to "
        f"{reports[0]['hot_pages']:,} hot pages among {reports[0]['pages']:,}, which are scattered "
        "over it. The hot pages were put into CXL memory on purpose. tierd is not told which they "
        f"are; it gets the program {handed_over:.1f} s after the start. Seconds are those of the "
        "virtual machine.</p>",
        table(rows[0], rows[1:]),
        "<h2>Accesses served by DRAM</h2>",
        legend(("with tierd", "without")),
        chart(
            _shares(samples, end_s, "la") + _shares(_samples(story, "without"), end_s, "lb"),
            HEIGHT,
            end_s,
            [(HEIGHT * (1 - each / 100), f"{each} %") for each in (0, 25, 50, 75, 100)],
        ),
        "<h2>Where the pages are</h2>",
        _key(),
    ]
    for title, each in zip(("Before", "After"), maps, strict=False):
        parts += [f"<h3>{title}: {_counted(each)}</h3>", _places(each["map"])]
    if len(maps) == 2:
        parts += ["<h2>Where pages went</h2>", _went(maps[0]["map"], maps[1]["map"])]
    return document("tierd demo", parts)


def _samples(story: SplitRecord, phase: str) -> list[dict[str, Any]]:
    return [each for each in story.reports[phase] if each["event"] == "sample"]


def _shares(samples: Sequence[dict[str, Any]], end_s: float, style: str) -> str:
    """A run's curve, as far as the axis goes."""
    shown = [each for each in samples if each["t"] <= end_s]
    if not shown:
        return ""
    # The curve goes through the middles of its columns; each report is of the time until it.
    edges = np.array([0.0, *(each["t"] for each in shown)])
    share = np.array([each["fast_share"] for each in shown])
    if edges[-1] < end_s:
        edges, share = np.append(edges, end_s), np.append(share, share[-1])
    return curve(edges, share, HEIGHT, style)


def _pages(digits: str) -> npt.NDArray[np.uint8]:
    """uint8[pages], 0 to 3, in order of address."""
    return np.frombuffer(digits.encode(), np.uint8) - ord("0")


def _counted(report: dict[str, Any]) -> str:
    pages = _pages(report["map"])
    hot = pages >= FIRST_HOT
    fast = np.count_nonzero(pages[hot] & IN_DRAM)
    return f"{fast:,} of {np.count_nonzero(hot):,} hot pages in DRAM"


def _places(digits: str) -> str:
    """A picture with a pixel a page."""
    pages = _pages(digits)
    rows = -(-len(pages) // ROW_PAGES)
    rgba = np.zeros((rows * ROW_PAGES, 4), np.uint8)
    rgba[: len(pages), :3] = np.array(list(COLOURS.values()), np.uint8)[pages]
    rgba[: len(pages), 3] = 255
    picture = png(rgba.reshape(rows, ROW_PAGES, 4))
    mib = len(pages) * PAGE_MIB
    labels = [(HEIGHT * 2 * each, f"{each * mib:.0f} MiB") for each in (0, 0.25, 0.5, 0.75, 1)]
    width_mib = ROW_PAGES * PAGE_MIB
    across = "address: down, and within a row across [MiB]"
    return chart(
        image(picture, HEIGHT * 2), HEIGHT * 2, width_mib, labels, lines=False, across=across
    )


def _key() -> str:
    keys = (
        f'<span class="key" style="background:rgb{colour}"></span>{name}'
        for name, colour in COLOURS.items()
    )
    return f"<p>Each pixel is a page of 4 KiB.{''.join(keys)}</p>"


def _went(before: str, after: str) -> str:
    """A table of the pages by where they were and are."""
    was, now = _pages(before), _pages(after)
    rows = []
    for name, hot in (("hot", True), ("cold", False)):
        own = (was >= FIRST_HOT) == hot
        ways = [(1, 1), (0, 0), (0, 1), (1, 0)]
        counts = [
            np.count_nonzero(own & (was & IN_DRAM == one) & (now & IN_DRAM == other))
            for one, other in ways
        ]
        rows.append([name, *(f"{each:,}" for each in counts)])
    head = ("pages", "stayed in DRAM", "stayed in CXL", "came to DRAM", "left for CXL")
    return table(head, rows)
