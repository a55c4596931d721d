# SPDX-License-Identifier: Apache-2.0
"""`tierd report`: what a recording holds, as text or one HTML page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from tierd.core import units
from tierd.core.errors import ConfigError, ExitCode, UnavailableError

FORMATS: Final = ("text", "html")
ENDINGS: Final = {".html": "html", ".htm": "html"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tierd report`."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the recording")
    parser.add_argument(
        "--format", choices=FORMATS, help="form of the report (default: by OUT's ending, or text)"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="OUT", help="file to write (default: stdout)"
    )
    parser.add_argument(
        "--target",
        type=int,
        metavar="PID",
        help="process of the heat map (default: that with the most accesses)",
    )
    parser.add_argument(
        "--memory",
        default="4GiB",
        metavar="SIZE",
        help="refuse a recording whose heat table may take more (default: 4GiB)",
    )


def run(args: argparse.Namespace) -> int:
    """Make the report."""
    from tierd.observe.recording.reader import Recording
    from tierd.report import page, text
    from tierd.report.analysis import analyse

    form = args.format or ENDINGS.get(args.output.suffix if args.output else "", "text")
    try:
        memory = units.parse_size(args.memory)
    except ValueError as error:
        raise ConfigError("--memory", str(error)) from None
    module = page if form == "html" else text
    report = analyse(
        Recording(args.file),
        columns=module.COLUMNS,
        rows=module.ROWS,
        target=args.target,
        memory_bytes=memory,
    )
    data = module.render(report).encode("utf-8", "backslashreplace")
    if args.output is None:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return int(ExitCode.OK)
    try:
        args.output.write_bytes(data)
    except OSError as error:
        raise UnavailableError(f"cannot write {args.output}: {error.strerror}") from None
    return int(ExitCode.OK)
