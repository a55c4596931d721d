# SPDX-License-Identifier: Apache-2.0
"""One cell of the benchmark, inside the machine: one workload under one method.

Owns: the order of things, from an empty machine to an empty machine.
Must not touch: the watching of memory traffic; the host does that between `ready` and `go`.

Prints one JSON object a line: `ready` when the workload waits and the method runs, `end`
when the workload has ended, `done` with the figures, or `failed` with why.

usage: cell.py --method NAME --shared DIR --free BYTES --workload PROGRAM [ARGUMENT...]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import memory
import methods
import numpy as np

TLB_PERIOD_US = 4000
"""See tests/workloads/tlbtick.c; beside every method, so that all are alike."""


def tell(event: str, **fields: Any) -> None:
    """Print one event."""
    print(json.dumps({"event": event, **fields}), flush=True)


@contextlib.contextmanager
def tlbtick() -> Iterator[None]:
    """The emulator's TLB forgets, as hardware's does."""
    with subprocess.Popen([methods.BUILT / "tlbtick", str(TLB_PERIOD_US)]) as process:
        try:
            yield
        finally:
            process.kill()


def wait_for(file: Path) -> None:
    """Wait without sleeping: an idle machine with counted instructions skips its sleeps, and
    hours would pass for the methods while the host thinks."""
    while not file.exists():
        pass
    file.unlink()


def run(args: argparse.Namespace) -> dict[str, Any]:
    """The cell; its figures."""
    shared = Path(args.shared)
    method = methods.METHODS[args.method](shared)
    memory.leave_free(None)
    method.prepare()
    free = memory.leave_free(args.free if method.limited else None)
    with subprocess.Popen(
        [*method.wrapper, *args.workload],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=memory.default_policy,  # noqa: PLW1509
    ) as work:
        assert work.stdin is not None
        assert work.stdout is not None
        ready = json.loads(work.stdout.readline())
        pid = ready["pid"]
        vpns, pfns = memory.page_table(pid)
        fast = float((memory.nodes_of(pid, vpns) == memory.FAST).mean())
        before = memory.moves()
        method.begin(pid)
        if args.pages:
            np.savez(shared / "pages.npz", vpn=vpns, pfn=pfns)
        begun = time.monotonic()
        tell("ready", pid=pid, bytes=ready["bytes"], free=free, fast_at_start=fast)
        wait_for(shared / "go")
        waited = time.monotonic() - begun
        work.stdin.write(b"\n")
        work.stdin.flush()
        end = json.loads(work.stdout.readline())
    after = memory.moves()
    tell("end", **{key: end[key] for key in ("ok", "answer", "operations", "max_rss")})
    figures = method.end()
    memory.leave_free(None)
    return {
        "method": figures,
        "waited_s": waited,
        "moves": {name: after[name] - before[name] for name in after},
        "status": work.returncode,
    }


def main() -> int:
    """0 if the cell ran."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", required=True, choices=methods.METHODS)
    parser.add_argument("--shared", required=True)
    parser.add_argument("--free", type=int, required=True)
    parser.add_argument("--pages", action="store_true", help="tell which frames the pages have")
    parser.add_argument("--workload", nargs=argparse.REMAINDER, required=True)
    args = parser.parse_args()
    try:
        with tlbtick():
            tell("done", **run(args))
    except Exception as error:
        traceback.print_exc()
        tell("failed", why=f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
