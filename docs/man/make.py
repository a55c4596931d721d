#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the manual pages: fills in commands, keys and exit codes, and calls scdoc.

docs/man/make.py FOLDER            writes FOLDER/man1/tierd.1 and so on
docs/man/make.py --source FOLDER   writes the filled-in scdoc sources only
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "daemon"))

from tierd.cli import build_parser  # noqa: E402
from tierd.config.model import Config  # noqa: E402
from tierd.config.schema import (  # noqa: E402
    REQUIRED,
    ListOf,
    Numbered,
    Section,
    options_of,
)
from tierd.config.whole import toml_value  # noqa: E402
from tierd.core.errors import ExitCode  # noqa: E402

EXIT_CODES = {
    ExitCode.OK: "All well.",
    ExitCode.FAILURE: "It failed.",
    ExitCode.USAGE: "The command line is wrong.",
    ExitCode.CONFIG: "The configuration is wrong; nothing was started.",
    ExitCode.NOTHING_TO_DO: "The host has one tier only: there is nothing to move between.",
    ExitCode.UNAVAILABLE: "The host lacks an ability: kernel, package or privilege.",
    ExitCode.TIMEOUT: "A bounded wait ran out.",
}


def escape(text: str) -> str:
    """Text that scdoc takes as it stands."""
    return "".join(f"\\{c}" if c in "\\*_" else c for c in text)


def exit_codes() -> Iterator[str]:
    """Every exit code."""
    for code in ExitCode:
        yield f"*{int(code)}*\n\t{EXIT_CODES[code]}\n"


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Name → parser of a parser's commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The options and arguments of one command."""
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            continue
        shown = [f"*{escape(each)}*" for each in action.option_strings]
        value = action.metavar or (
            "|".join(map(str, action.choices)) if action.choices else action.dest.upper()
        )
        if isinstance(value, tuple):
            value = " ".join(value)
        if not shown:
            shown = [f"_{escape(value)}_"]
        elif action.nargs != 0:
            shown = [f"{each} _{escape(value)}_" for each in shown]
        told = (action.help or "").replace("%%", "%")
        if "%(" in told:
            told %= {**vars(action), "prog": parser.prog}
        yield f"{', '.join(shown)}\n\t{escape(told) or '-'}\n"


def commands() -> Iterator[str]:
    """Every command with its options, and those of commands with commands of their own."""
    for name, parser in subparsers(build_parser()).items():
        yield f"## tierd {name}\n"
        yield f"{escape(parser.description or '')}\n"
        yield from options(parser)
        for inner, below in subparsers(parser).items():
            yield f"*tierd {escape(name)} {escape(inner)}*: {escape(below.description or '')}\n"
            yield from options(below)


def keys(cls: type[Any] = Config, path: str = "") -> Iterator[str]:
    """Every key of a table, then the tables in it."""
    inner = []
    if path:
        yield f"## {path}\n"
    for key, (_, made) in options_of(cls).items():
        here = f"{path.strip('[]')}.{key}" if path else key
        kind = made.kind
        if isinstance(kind, Section):
            inner.append((kind.cls, f"[{here}]"))
            continue
        if isinstance(kind, ListOf) and isinstance(kind.item, Section):
            inner.append((kind.item.cls, f"[[{here}]]"))
        elif isinstance(kind, Numbered) and isinstance(kind.item, Section):
            inner.append((kind.item.cls, f"[{here}.N]"))
        default = ""
        if made.default is REQUIRED:
            default = " Required."
        elif made.default is not None:
            default = f" Default: {toml_value(made.default)}."
        yield f"*{escape(key)}* ({escape(kind.about)})\n\t{escape(made.doc + default)}\n"
    for below, where in inner:
        yield from keys(below, where)


def filled(page: Path) -> str:
    """The scdoc source of one page."""
    text = page.read_text()
    fill = {
        "@COMMANDS@": commands,
        "@KEYS@": keys,
        "@EXIT_CODES@": exit_codes,
        "@RUN_OPTIONS@": lambda: options(subparsers(build_parser())["run"]),
    }
    for mark, make in fill.items():
        if mark in text:
            text = text.replace(mark, "\n".join(make()).strip())
    return text


def main() -> int:
    """Write all pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", action="store_true", help="scdoc sources only")
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    for page in sorted(HERE.glob("*.scd")):
        name = page.name.removesuffix(".scd")
        if args.source:
            args.folder.mkdir(parents=True, exist_ok=True)
            (args.folder / page.name).write_text(filled(page))
            continue
        folder = args.folder / f"man{name[-1]}"
        folder.mkdir(parents=True, exist_ok=True)
        made = subprocess.run(
            ["scdoc"], input=filled(page).encode(), stdout=subprocess.PIPE, check=True
        )
        (folder / name).write_bytes(made.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
