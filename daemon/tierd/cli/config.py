# SPDX-License-Identifier: Apache-2.0
"""`tierd config`: check the configuration, or show it as tierd understands it.

Owns: the output of the command.
Must not touch: the host; missing NUMA nodes are found when tierd runs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tierd import config
from tierd.errors import ExitCode

HELP = "check the configuration, or show it with every default filled in"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tierd config`."""
    parser.add_argument("action", choices=("check", "show"), help="what to do")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"main file; conf.d/*.toml beside it is merged in (default: {config.DEFAULT_PATH})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Check or show; a mistake is a ConfigError, exit code 3."""
    found = config.load(args.config)
    if args.action == "show":
        print(json.dumps(config.as_table(found), indent=2) if args.json else config.dumps(found))
    elif args.json:
        print(json.dumps({"ok": True, "files": list(found.files)}))
    else:
        print(f"configuration is valid: {', '.join(found.files) or 'built-in defaults'}")
    return ExitCode.OK
