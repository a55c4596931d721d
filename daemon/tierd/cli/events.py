# SPDX-License-Identifier: Apache-2.0
"""`tierd events`: decisions as the service makes them."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from typing import Any

from tierd.cli._client import add_arguments as add_common
from tierd.cli._client import connect, plain
from tierd.core.errors import ExitCode

HELP = "show decisions as the service makes them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tierd events`."""
    add_common(parser)
    parser.add_argument(
        "--count", type=int, default=0, metavar="N", help="end after N events (0: never)"
    )


def run(args: argparse.Namespace) -> int:
    """Print events until the service ends, or the wanted number."""
    with connect(args) as client:
        for number, event in enumerate(client.events(), 1):
            print(json.dumps(event) if args.json else text(event), flush=True)
            if number == args.count:
                break
    return ExitCode.OK


def text(event: Mapping[str, Any]) -> str:
    """One event on one line."""
    kind = event.get("kind")
    when = time.strftime("%H:%M:%S", time.localtime(float(event.get("time", time.time()))))
    if kind == "moves":
        fates = ", ".join(f"{name} {count}" for name, count in event["migration_results"].items())
        low, high = event["heat"]
        return plain(
            f"{when} {event['direction']} {event['source']} > {event['dest']} "
            f"{event['comm']}[{event['pid']}] {event['moved']}/{event['pages']} pages, "
            f"heat {low:g} to {high:g}{f' ({fates})' if fates else ''} {event['cgroup']}"
        )
    if kind == "held back":
        reasons = ", ".join(f"{why} {count}" for why, count in event["reasons"].items())
        return plain(f"{when} held back: {reasons}")
    if kind == "dropped":
        return f"{when} {event['events']} events were dropped: this reader is too slow"
    rest = {key: value for key, value in event.items() if key not in ("kind", "time")}
    return plain(f"{when} {kind} {json.dumps(rest)}")
