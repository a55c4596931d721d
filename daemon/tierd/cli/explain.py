# SPDX-License-Identifier: Apache-2.0
"""`tierd explain`: why a process's pages are where they are."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

from tierd.cli._client import add_arguments as add_common
from tierd.cli._client import connect, plain
from tierd.core.errors import ExitCode

HELP = "say why the pages of a process or control group are where they are"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tierd explain`."""
    add_common(parser)
    parser.add_argument("what", metavar="PID|CGROUP", help="a process, or a path with a slash")
    parser.add_argument(
        "--address", type=lambda text: int(text, 0), help="one page of the process, e.g. 0x7f..."
    )


def run(args: argparse.Namespace) -> int:
    """Print the explanation."""
    wanted: dict[str, Any] = {"cgroup": args.what}
    if args.what.isascii() and args.what.isdigit():
        wanted = {"pid": int(args.what)}
    if args.address is not None:
        wanted["address"] = args.address
    with connect(args) as client:
        told = client.ask("explain", **wanted)
    if args.json:
        print(json.dumps(told, indent=2))
        return ExitCode.OK
    if "targets" in told:
        print(f"{told['targets']} watched processes in {plain(told['cgroup'])}")
    for process in told["processes"]:
        print("\n".join(_lines(process, "")))
    if told.get("left_out"):
        print(f"... and {told['left_out']} smaller processes")
    return ExitCode.OK


def _lines(told: Mapping[str, Any], indent: str) -> Iterator[str]:
    """A mapping of JSON values, one key a line."""
    for key, value in told.items():
        name = plain(key).replace("_", " ")
        if isinstance(value, Mapping):
            if value:
                yield f"{indent}{name}:"
                yield from _lines(value, indent + "  ")
        elif isinstance(value, list):
            yield f"{indent}{name}: {len(value)}"
            for entry in value:
                shown = entry if isinstance(entry, Mapping) else {"": entry}
                yield (
                    indent
                    + "  - "
                    + ", ".join(
                        plain(f"{k} {v}".strip()) for k, v in shown.items() if v is not None
                    )
                )
        else:
            yield f"{indent}{name}: {'-' if value is None else plain(value)}"
