# SPDX-License-Identifier: Apache-2.0
"""`tierd doctor`: what tierd could do on this host, why not, and what would help."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tierd.core.errors import UnavailableError
from tierd.doctor import examine
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
    print(json.dumps(as_json(report), indent=2) if args.json else as_text(report).rstrip())
    return report.exit_code
