# SPDX-License-Identifier: Apache-2.0
"""``python -m neoprof TRACE``: feed a trace of addresses to a card, print its hot list.

A trace is text, one request a line: ``R`` or ``W`` and a device physical address (decimal or
0x...), ``#`` starts a comment; or, if its name ends in ``.npy``, a NumPy array of uint64 as
`Card.push` takes it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from neoprof.card import WRITE, Card, CardError

_CHUNK = 1 << 20
_ADDRESS_LIMIT = 1 << 44


class TraceError(Exception):
    """A line of the trace is not a request."""


def parse_trace(path: Path) -> npt.NDArray[np.uint64]:
    """Return the requests of a trace file. Raises TraceError with the line number."""
    if path.suffix == ".npy":
        array = np.load(path, allow_pickle=False)
        if array.dtype != np.uint64 or array.ndim != 1:
            raise TraceError(
                f"{path}: is {array.dtype} with {array.ndim} dimensions, "
                "expected one dimension of uint64"
            )
        return np.asarray(array, dtype=np.uint64)
    requests = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            kind, address = words[0].upper(), int(words[1], 0)
            if len(words) != 2 or kind not in ("R", "W") or not 0 <= address < _ADDRESS_LIMIT:
                raise ValueError
        except (ValueError, IndexError):
            raise TraceError(
                f"{path}:{number}: found {line.strip()!r}, expected 'R' or 'W' and an address "
                f"below 0x{_ADDRESS_LIMIT:x}"
            ) from None
        requests.append(address | (WRITE if kind == "W" else 0))
    return np.array(requests, dtype=np.uint64)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m neoprof",
        description="feed a trace to a NeoProf card, print its hot list",
    )
    parser.add_argument("trace", type=Path, help="text (R/W address a line) or .npy")
    parser.add_argument("--card", choices=("model", "rtl"), default="model")
    parser.add_argument("--threshold", type=int, default=100, help="report above this count")
    parser.add_argument("--unit", type=int, default=12, help="log2 of the unit size, 12 to 21")
    parser.add_argument("--conservative", action="store_true", help="conservative update")
    parser.add_argument("--statistics", action="store_true", help="print counts to standard error")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        requests = parse_trace(options.trace)
        with Card(options.card) as card:
            card.start(options.threshold, unit_log2=options.unit, conservative=options.conservative)
            print("# address count")
            for start in range(0, len(requests), _CHUNK):
                card.push(requests[start : start + _CHUNK])
                for unit, count in card.drain():
                    print(f"0x{unit << options.unit:x} {count}")
            shot = card.snapshot()
    except (OSError, TraceError, CardError) as error:
        print(f"neoprof: {error}", file=sys.stderr)
        return 1
    if options.statistics:
        print(
            f"offered {shot.offered} counted {shot.counted} out of range {shot.skipped_range} "
            f"reports {shot.reports} refused {shot.reports_refused} saturated {shot.saturated}",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
