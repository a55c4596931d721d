# SPDX-License-Identifier: Apache-2.0
"""`tierd reload`: have the running service read its configuration again."""

from __future__ import annotations

import argparse
import json

from tierd.cli._client import add_arguments as add_common
from tierd.cli._client import connect
from tierd.core.errors import ExitCode

HELP = "have the running service read its configuration again, all of it or nothing"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tierd reload`."""
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Reload; a refusal is an error with the service's reason, and nothing has changed."""
    with connect(args) as client:
        told = client.ask("reload")
    if args.json:
        print(json.dumps(told))
        return ExitCode.OK
    print(f"in force now: {', '.join(told['changed']) or 'nothing new'}")
    if told["restart"]:
        print(f"  after a restart: {', '.join(told['restart'])}")
    return ExitCode.OK
