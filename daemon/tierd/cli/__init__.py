# SPDX-License-Identifier: Apache-2.0
"""The command line: one module per command, imported only when it is called.

The module of a command has `add_arguments(parser)` and `run(args) -> int`, or a table `COMMANDS`
of objects that have them.
"""

from __future__ import annotations

import argparse
import codecs
import importlib
import io
import sys
from collections.abc import Sequence
from typing import Final

from tierd import __version__
from tierd.core.errors import exit_code_of

SUMMARIES: Final = {
    "config": "check the configuration, show it with every default filled in,"
    " or tell what it changes",
    "doctor": "say what tierd can use on this host, why not, and what conflicts with it",
    "events": "show decisions as the service makes them",
    "explain": "say why the pages of a process or control group are where they are",
    "gpu": "show GPUs and the links between them, or lend their free memory to each other",
    "pause": "move nothing until tierd resume, across restarts",
    "record": "run the service and record what it sees and does, for replay and report",
    "reload": "have the running service read its configuration again, all of it or nothing",
    "replay": "run another policy or other settings over a recording",
    "report": "show a recording: heat map, working set, migrations, who served what",
    "resume": "end a pause: move pages again",
    "run": "run the service: find hot pages and move them (SIGHUP: read the configuration again)",
    "set": "give a key of the running service's configuration another value",
    "status": "say what the running service sees and does",
    "top": "show what the running service does, live",
    "topology": "show the memory tiers, where each number comes from, and where the kernel differs",
    "trial": "find out whether tiering pays here: with and without it, in random order",
    "undo": "put pages back where tierd found them, and move nothing until tierd resume",
}
"""Every command, and what it does."""
ELSEWHERE: Final = {
    "gpu": "tierd_gpu.cli",
    "record": "tierd.cli.run",
    **dict.fromkeys(("events", "explain", "pause", "reload", "resume", "set"), "tierd.cli._client"),
}
"""Commands that are no modules of this package, and the modules that have them."""


def build_parser(only: str | None = None, *, load: bool = True) -> argparse.ArgumentParser:
    """The parser of all commands, or of `only` one; `load` their modules, for their arguments."""
    parser = argparse.ArgumentParser(
        prog="tierd", description="Keep hot pages in fast memory and cold pages in large memory."
    )
    parser.add_argument("--version", action="version", version=f"tierd {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in [only] if only else SUMMARIES:
        sub = commands.add_parser(name, help=SUMMARIES[name], description=SUMMARIES[name])
        if load:
            module = importlib.import_module(ELSEWHERE.get(name, f"{__name__}.{name}"))
            command = getattr(module, "COMMANDS", {}).get(name, module)
            command.add_arguments(sub)
            sub.set_defaults(run=command.run)
    return parser


_PLAIN: Final = {"\u2192": "->", "\u2026": "...", "\u00b5": "u", "\u00d7": "x", "\u2265": ">="}
"""What stands for characters that a terminal may lack."""


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Handler of characters that an encoding has not got: plain ones, or their numbers."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_PLAIN.get(c) or ascii(c)[1:-1] for c in lacking), error.end


def speak_plainly() -> None:
    """Whatever the locale is, what is printed can be printed."""
    codecs.register_error("tierd.plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="tierd.plain")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    speak_plainly()
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv and argv[0] in SUMMARIES:
        parser = build_parser(argv[0])
    else:  # --version and --help need the arguments of no command
        parser = build_parser(load=not SUMMARIES.keys().isdisjoint(argv))
    args = parser.parse_args(argv)
    return exit_code_of(f"tierd {args.command}", lambda: args.run(args))
