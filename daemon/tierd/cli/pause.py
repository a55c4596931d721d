# SPDX-License-Identifier: Apache-2.0
"""`tierd pause`: move nothing until `tierd resume`, across restarts."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from tierd.cli._client import add_arguments as add_common
from tierd.cli._client import configured, connect
from tierd.control.client import NotRunningError
from tierd.control.pause import Pause, PauseFile
from tierd.core.errors import ExitCode

HELP = "move nothing until tierd resume, across restarts"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tierd pause`."""
    add_common(parser)
    parser.add_argument("--reason", default="", help="kept, and shown by tierd status")


def run(args: argparse.Namespace) -> int:
    """Pause; a service that does not run will start paused."""
    running = True
    try:
        with connect(args) as client:
            told = client.ask("pause", reason=args.reason)
    except NotRunningError:
        running = False
        pause = Pause(time.time(), os.getuid(), args.reason)
        PauseFile(Path(configured(args).state)).write(pause)
        told = {"paused": pause.as_json(), "kept": True, "note": ""}
    if args.json:
        print(json.dumps(told | {"running": running}))
        return ExitCode.OK if told["kept"] else ExitCode.FAILURE
    print(
        "paused: pages are watched, none is moved" if running
        else "tierd does not run; it will start paused"
    )  # fmt: skip
    if told["note"]:
        print(f"  {told['note']}")
    return ExitCode.OK if told["kept"] else ExitCode.FAILURE
