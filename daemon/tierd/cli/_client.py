# SPDX-License-Identifier: Apache-2.0
"""What the commands share that talk to the running service."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tierd.config import ControlConfig, load_section
from tierd.control.client import Client
from tierd.core.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser, *, as_json: bool = True) -> None:
    """The options that all of them have."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration of the service")
    parser.add_argument("--socket", type=Path, metavar="PATH", help="overrides control.socket")
    if as_json:
        parser.add_argument("--json", action="store_true", help="print JSON (docs/control.md)")


def configured(args: argparse.Namespace) -> ControlConfig:
    """[control] of the configuration; of a broken one too, as long as that part is right.

    Whoever has just broken the configuration needs these commands most.

    Raises:
        ConfigError: [control] itself is wrong, or a file that was named cannot be read.
    """
    try:
        return load_section(ControlConfig, "control", args.config)
    except ConfigError:
        if args.config is not None:
            raise
        return ControlConfig()


def connect(args: argparse.Namespace) -> Client:
    """A connection to the service.

    Raises:
        UnavailableError: it does not run, or this user may not.
    """
    return Client(args.socket or Path(configured(args).socket))


def plain(text: object) -> str:
    """`text` without control characters, which a process may put into its name."""
    shown = str(text).encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)


def share(part: float | None, whole: float | None) -> str:
    """A percentage, or "-" where it is not known."""
    return f"{100 * part / whole:.1f}%" if part is not None and whole else "-"


def table(rows: list[list[Any]], right: frozenset[int] = frozenset()) -> list[str]:
    """Rows with aligned columns; columns in `right` are aligned to the right."""
    texts = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in texts
    ]
