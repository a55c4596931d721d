# SPDX-License-Identifier: Apache-2.0
"""The demo's tables, for people."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any


def table_rows(result: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The result for people, its head first."""

    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.1%}"

    rows = [
        ("", "without tierd", "with tierd"),
        (
            "accesses served by DRAM, at the end",
            share(result["fast_share_before"]),
            share(result["fast_share_after"]),
        ),
        (
            "lowest share after it first reached 95 %",
            "",
            share(result["fast_share_lowest_after_95"]),
        ),
        ("seconds until 90 % (guest time)", "never", str(result["seconds_to_90_percent"])),
        (
            "pages promoted / demoted",
            "0 / 0",
            f"{result['promoted_pages']} / {result['demoted_pages']}",
        ),
        ("moves per hot page", "0", str(result["moves_per_hot_page"])),
        (
            "updates per second",
            str(result["updates_per_second_without"]),
            str(result["updates_per_second_with"]),
        ),
        ("tierd's CPU seconds (emulated)", "", str(result["tierd_cpu_seconds"])),
        ("samples lost", "", str(result["samples_lost"])),
        ("memory checksum", "", "right" if result["checksum_ok"] else "WRONG"),
    ]
    if result["scanner"]:
        share, budget = result["scanner"]["cpu_share"], result["scanner"]["budget"]
        rows.insert(-1, ("kernel scanner's CPU, of its budget", "", f"{share:.1%} of {budget:.1%}"))
    return rows


def print_table(rows: Sequence[tuple[str, str, str]]) -> None:
    """The result for people."""
    print()
    for name, left, right in rows:
        print(f"  {name:<42}{left:>16}{right:>18}")
    print()


COLUMNS = {
    "at the end": "fast_share_after",
    "to 90 %": "seconds_to_90_percent",
    "to 95 % of steady": "seconds_to_95_percent_of_steady",
    "moved: first": "fast_share_after_move_at_first",
    "moved: to 90 %": "seconds_to_90_percent_after_move",
    "promoted": "promoted_pages",
    "demoted": "demoted_pages",
    "a hot page": "moves_per_hot_page",
    "at least": "least_moves_per_hot_page",
    "first set": "moves_per_hot_page_before_move",
    "bounced": "ping_pong_pages",
    "MB/s": "most_megabytes_promoted_in_a_second",
    "CPU": "tierd_cpu_seconds",
}
"""Headings of the table of sources, and the figures below them."""
LEGEND = (
    "Shares are of the accesses that DRAM serves; seconds are the guest's. At the end; until "
    "90 %, and until 95 % of its own steady state; after the hot set moved, at first and until "
    "90 % again; pages promoted and demoted, both per hot page, and the fewest that bring all hot "
    "pages into the DRAM left free (where the hot set moved, moves of the first set as well), and "
    "back within 5 s; the most MB promoted in any second; CPU seconds of the service."
)


def source_table(sources: dict[str, dict[str, Any]]) -> list[str]:
    """The sources side by side, a row each; columns that none has a figure for are left out."""
    columns = {
        heading: key
        for heading, key in COLUMNS.items()
        if any(figures.get(key) is not None for figures in sources.values())
    }
    rows = [["source", *columns]]
    for source, figures in sources.items():
        cells = (figures.get(key) for key in columns.values())
        rows.append([source, *("never" if cell is None else str(cell) for cell in cells)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + row[0].ljust(widths[0])
        + "".join(f"  {c:>{w}}" for c, w in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]


def print_sources(sources: dict[str, dict[str, Any]]) -> None:
    """The table of sources, for people."""
    print()
    for line in source_table(sources):
        print(line)
    print()
    for line in textwrap.wrap(LEGEND, 96, initial_indent="  ", subsequent_indent="  "):
        print(line)
    print(flush=True)
