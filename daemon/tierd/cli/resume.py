# SPDX-License-Identifier: Apache-2.0
"""`tierd resume`: end a pause."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tierd.cli._client import add_arguments as add_common
from tierd.cli._client import configured, connect
from tierd.control.client import NotRunningError
from tierd.control.pause import PauseFile
from tierd.core.errors import ExitCode

HELP = "end a pause: move pages again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tierd resume`."""
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Resume; for a service that does not run, forget the pause it would start with."""
    running = True
    try:
        with connect(args) as client:
            was = bool(client.ask("resume")["was_paused"])
    except NotRunningError:
        running = False
        kept = PauseFile(Path(configured(args).state))
        was = kept.read() is not None
        kept.clear()
    if args.json:
        print(json.dumps({"paused": None, "was_paused": was, "running": running}))
    elif not was:
        print("it was not paused")
    else:
        print("resumed" if running else "tierd does not run; it will not start paused")
    return ExitCode.OK
