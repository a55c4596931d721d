# SPDX-License-Identifier: Apache-2.0
"""`tierd doctor`: what tierd could do on this host, why not, and what would help."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tierd.cli._client import connect
from tierd.core.errors import TierdError, UnavailableError
from tierd.doctor import Finding, Group, Status, examine
from tierd.doctor.findings import as_json, as_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tierd doctor`."""
    parser.add_argument("--json", action="store_true", help="print JSON (docs/operate/topology.md)")
    parser.add_argument(
        "--root",
        type=Path,
        default=Path("/"),
        metavar="DIR",
        help="read sys/, proc/ and lib/ below DIR and try no system call (default: /)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the report; 0 if tierd can run, 4 with one tier, 5 if something is missing."""
    if not args.root.is_dir():
        raise UnavailableError(f"{args.root} is not a folder")
    report = examine(args.root)
    if args.root == Path("/"):
        report = replace(report, findings=(*report.findings, *of_service(_status())))
    print(json.dumps(as_json(report), indent=2) if args.json else as_text(report).rstrip())
    return report.exit_code


def _status() -> Mapping[str, Any]:
    """The running service's status; empty if none runs here, or it does not answer."""
    try:
        with connect(argparse.Namespace(config=None, socket=None)) as client:
            return dict(client.ask("status", hottest=False))
    except (TierdError, OSError):
        return {}


def of_service(told: Mapping[str, Any]) -> Iterator[Finding]:
    """What a running service finds in its way."""
    alone = told["totals"]["left_alone"] if told else {"pages": {}, "limited": {}}
    if pages := sum(alone["pages"].values()):
        of = ", ".join(f"{count} {result}" for result, count in alone["pages"].items() if count)
        pids = ", ".join(alone["limited"])
        whose = f"process {pids}" if pids else "processes of which other pages move"
        yield Finding(
            "service.refusals",
            Group.MOVING,
            "refused moves",
            Status.NO,
            f"the service leaves {pages} pages alone ({of}), of {whose}",
            "tierd explain PID ADDRESS tells why: memory that processes share, or that is pinned, "
            "stays where it is; bind it with a memory policy, or deny its process in [targets]",
        )
