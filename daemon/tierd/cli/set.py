# SPDX-License-Identifier: Apache-2.0
"""`tierd set`: give one key of the running service's configuration another value."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tierd.cli._client import add_arguments as add_common
from tierd.cli._client import connect
from tierd.config import DEFAULT_PATH
from tierd.control.assignment import parse_assignment, persist
from tierd.core.errors import ExitCode, UnavailableError

HELP = "give a key of the running service's configuration another value"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tierd set`."""
    add_common(parser)
    parser.add_argument(
        "assignment", metavar="KEY=VALUE", help='e.g. migration.rate_limit="500MB/s"'
    )
    parser.add_argument(
        "--persist",
        action="store_true",
        help="write it to conf.d/90-set.toml too, for the next reload or start",
    )


def run(args: argparse.Namespace) -> int:
    """Have the service use the value; then keep it if asked to."""
    key, value = parse_assignment(args.assignment)
    with connect(args) as client:
        told = client.ask("set", key=key, value=value)
    kept = ""
    if args.persist:
        main = args.config or _main_file(told["files"])
        try:
            kept = str(persist(main, key, value))
        except OSError as error:
            raise UnavailableError(
                f"{key} is in force, but cannot be kept: {error.strerror}: {error.filename}"
            ) from error
    if args.json:
        print(json.dumps(told | {"file": kept}))
        return ExitCode.OK
    if key in told["restart"]:
        print(f"{key} takes effect at the next start only" + ("" if kept else ", if persisted"))
    else:
        print(f"{key} is in force" if told["changed"] else f"{key} had that value already")
    if kept:
        print(f"  kept in {kept}")
    elif told["changed"]:
        print("  until the next reload or start; --persist keeps it")
    return ExitCode.OK


def _main_file(files: list[str]) -> Path:
    """The main file of those a configuration was read from."""
    if not files:
        return DEFAULT_PATH
    first = Path(files[0])
    return first.parent.parent / DEFAULT_PATH.name if first.parent.name == "conf.d" else first
