# SPDX-License-Identifier: Apache-2.0
"""`tierd record`: the service in the foreground, recording what it sees and does."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from tierd.cli import run as service
from tierd.core import units

HELP = "run the service and record what it sees and does, for replay and report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of `tierd run`, and how long and how much to record."""
    service.add_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        dest="record",
        type=Path,
        metavar="FILE",
        help="file to make (default: tierd-TIME.rec in this folder); never replaced",
    )
    parser.add_argument(
        "--duration",
        dest="record_duration",
        type=_duration,
        metavar="TIME",
        help='end after this time, for example "60s"; otherwise on SIGINT or SIGTERM',
    )
    parser.add_argument(
        "--size",
        dest="record_size",
        type=_size,
        metavar="SIZE",
        help="end when the file would grow beyond this (default: record.size, 256MiB)",
    )
    parser.set_defaults(record_only=True)


def run(args: argparse.Namespace) -> int:
    """Record; the exit codes are those of `tierd run`."""
    if args.record is None:
        args.record = Path(time.strftime("tierd-%Y%m%dT%H%M%SZ.rec", time.gmtime()))
    return service.run(args)


def _duration(text: str) -> int:
    try:
        return units.parse_duration_ns(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _size(text: str) -> int:
    try:
        size = units.parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if size < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is less than 64KiB")
    return size
