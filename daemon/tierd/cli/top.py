# SPDX-License-Identifier: Apache-2.0
"""`tierd top`: the service live: tiers, rates, hottest targets, sources and their loss."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tierd.cli._client import add_arguments as add_common
from tierd.cli._client import connect, table
from tierd.cli.status import head, tiers
from tierd.control.protocol import Client
from tierd.core.errors import ExitCode, UnavailableError
from tierd.core.units import format_size

Status = Mapping[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tierd top`."""
    add_common(parser, as_json=False)
    parser.add_argument(
        "--interval", type=_seconds, default=2.0, metavar="SECONDS", help="default: 2"
    )
    parser.add_argument(
        "--count", type=int, default=0, metavar="N", help="end after N screens (0: never)"
    )
    parser.add_argument(
        "--plain", action="store_true", help="print one screen after the other; no terminal needed"
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError("not between 0.1 and 3600")
    return value


def run(args: argparse.Namespace) -> int:
    """Show screens until the user or the service ends it."""
    with connect(args) as client:
        if args.plain or not sys.stdout.isatty():
            for number, lines in enumerate(_screens(client, args.count), 1):
                print("\n".join(lines), flush=True)
                if number != args.count:
                    print(flush=True)
                    time.sleep(args.interval)
        else:
            _on_terminal(client, args.interval, args.count)
    return ExitCode.OK


def _screens(client: Client, count: int) -> Iterator[list[str]]:
    before: Status | None = None
    shown = 0
    while not count or shown < count:
        now = client.ask("status", hottest=True)
        yield screen(now, before)
        before, shown = now, shown + 1


def _on_terminal(client: Client, interval: float, count: int) -> None:
    try:
        import curses
    except ImportError as error:
        raise UnavailableError(
            "this Python has no curses", hint="tierd top --plain works without"
        ) from error

    def show(window: Any) -> None:
        curses.use_default_colors()
        window.timeout(int(interval * 1000))
        for lines in _screens(client, count):
            _draw(window, [*lines, "", "q: quit"])
            while (key := window.getch()) == curses.KEY_RESIZE:
                _draw(window, [*lines, "", "q: quit"])
            if key in (ord("q"), 27):
                return

    try:
        curses.wrapper(show)
    except curses.error as error:
        raise UnavailableError(
            f"cannot draw on this terminal: {error}", hint="tierd top --plain works everywhere"
        ) from error


def _draw(window: Any, lines: list[str]) -> None:
    height, width = window.getmaxyx()
    window.erase()
    for row, line in enumerate(lines[:height]):
        # One column short: curses cannot write the last cell of the screen.
        window.addnstr(row, 0, line, max(1, width - 1))
    window.refresh()


def screen(now: Status, before: Status | None) -> list[str]:
    """The lines of one screen; rates are since `before`, or since the start."""
    return [*head(now), "", *tiers(now), "", *_rates(now, before), "", *_hottest(now)]


def _rates(now: Status, before: Status | None) -> list[str]:
    seconds = now["time"] - (before["time"] if before else now["start_time"])
    seconds = max(float(seconds), 1e-3)

    def rate(read: Callable[[Status], Any]) -> float:
        since = float(read(before)) if before else 0.0
        return max(0.0, float(read(now)) - since) / seconds

    rows: list[list[Any]] = [["PER SECOND" if before else "PER SECOND (since start)", ""]]
    for title, name in (("promoted pages", "promoted_pages"), ("demoted pages", "demoted_pages")):
        rows.append([title, f"{rate(lambda s, n=name: s['totals'][n]):.1f}"])  # type: ignore[misc]
    rows.append(["moved", format_size(rate(lambda s: s["totals"]["moved_bytes"]))])
    move_cpu = rate(lambda s: s["totals"]["move_cpu_seconds"])
    rows.append(["CPU for moving", f"{100 * move_cpu:.2f}%"])
    for name in now["source"]["order"]:
        seen = rate(lambda s, n=name: s["source"]["samples"].get(n, 0))  # type: ignore[misc]
        lost = rate(lambda s, n=name: s["source"]["lost"].get(n, 0))  # type: ignore[misc]
        if seen or lost or name == now["source"]["active"]:
            rows.append([f"records of {name}", f"{seen:.0f}"])
            rows.append([f"lost of {name}", f"{lost:.0f}"])
    return table(rows, frozenset({1}))


def _hottest(now: Status) -> list[str]:
    rows: list[list[Any]] = [["PID", "NAME", "HEAT", "RESIDENT", "CGROUP"]]
    for target in now.get("hottest", []):
        resident = format_size(target["resident_bytes"])
        rows.append(
            [target["pid"], target["comm"], f"{target['heat']:.0f}", resident, target["cgroup"]]
        )
    return table(rows, frozenset({0, 2, 3}))
