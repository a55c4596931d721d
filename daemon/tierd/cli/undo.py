# SPDX-License-Identifier: Apache-2.0
"""`tierd undo`: has the service put pages back where it found them, and follows that."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any, Final

from tierd.cli._client import add_arguments as add_common
from tierd.cli._client import connect
from tierd.control.protocol import AnswerError, Client
from tierd.core.errors import ExitCode

NOT_PUT_BACK: Final = {"not_moved", "refused", "failed"}
"""Reasons for which pages are left that an operator may do something about."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tierd undo`."""
    add_common(parser)
    parser.add_argument("--no-wait", action="store_true", help="do not wait until it is done")


def run(args: argparse.Namespace) -> int:
    """Ask for it, and follow it to its end; to stop waiting does not stop it."""
    with connect(args) as client:
        pause = client.ask("undo")
        told: dict[str, Any] = {"active": True, "left_alone": {}}
        while told["active"] and not args.no_wait:
            if (told := undone(client))["active"]:
                left = told["pages_left"]  # 0 until the service has begun
                said = f"{left} pages are to be put back" if left else "waiting for the service"
                print(said, file=sys.stderr)
                time.sleep(1)
    kept = bool(pause.get("kept", True))
    if args.json:
        print(json.dumps(told | {"note": pause["note"], "kept": kept}))
    else:
        _tell(told, pause["note"])
    return ExitCode.FAILURE if NOT_PUT_BACK & told["left_alone"].keys() or not kept else ExitCode.OK


def _tell(told: dict[str, Any], note: str) -> None:
    if told["active"]:
        print("pages are being put back; tierd status says how far it is")
    else:
        print(f"put back: {told['put_back']} pages of 4 KiB; nothing is moved until tierd resume")
        for reason, pages in told["left_alone"].items():
            print(f"  left where they are, {reason.replace('_', ' ')}: {pages}")
    if note:
        print(f"  {note}")


def undone(client: Client) -> dict[str, Any]:
    """How far an undo is."""
    return dict(ask_patiently(client, "status")["undo"])


def ask_patiently(client: Client, command: str) -> Any:
    """`Client.ask`, again for as long as the loop has no time to answer: it moves many pages."""
    while True:
        try:
            return client.ask(command)
        except AnswerError as error:
            if error.exit_code != ExitCode.TIMEOUT:
                raise
