# SPDX-License-Identifier: Apache-2.0
"""The command line: one module per command, imported only when it is called.

A command is a module in this package with `HELP: str`,
`add_arguments(parser)` and `run(args) -> int`, or an object with these names in
the table `COMMANDS` of a module.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence

from tierd import __version__
from tierd.core.errors import exit_code_of

ELSEWHERE = {
    "gpu": "tierd_gpu.cli",
    "record": "tierd.cli.run",
    **dict.fromkeys(("events", "explain", "pause", "reload", "resume", "set"), "tierd.cli._client"),
}
"""Commands that are no modules of this package, and the modules that have them."""


def command_names() -> list[str]:
    """Names of all commands: the public modules of this package, and those of `ELSEWHERE`."""
    own = (module.name for module in pkgutil.iter_modules(__path__) if module.name[0] != "_")
    return sorted([*own, *ELSEWHERE])


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The whole parser, or with `only` the parser that loads one command's module."""
    parser = argparse.ArgumentParser(prog="tierd", description=__doc__.splitlines()[0])
    parser.description = "Keep hot pages in fast memory and cold pages in large memory."
    parser.add_argument("--version", action="version", version=f"tierd {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in [only] if only else command_names():
        module = importlib.import_module(ELSEWHERE.get(name, f"{__name__}.{name}"))
        command = getattr(module, "COMMANDS", {}).get(name, module)
        sub = commands.add_parser(name, help=command.HELP, description=command.HELP)
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    only = argv[0] if argv and argv[0] in command_names() else None
    args = build_parser(only).parse_args(argv)
    return exit_code_of(f"tierd {args.command}", lambda: args.run(args))
